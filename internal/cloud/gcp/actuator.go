// SPDX-License-Identifier: Apache-2.0

// Package gcp stops and starts the instances of clusters at Google Cloud. A cluster's machines are those whose names begin with its infraID
// and a hyphen, as Hive finds them, without those that labels give to another cluster.
//
// Reading order: credentials.go, login.go (the Secret, a token) → account.go (one for each service account) → list_machines.go (one
// listing for many clusters, in all zones) → rights.go, order.go (one call per machine, and what becomes of it) →
// errors.go (messages for users).
package gcp

import (
	"context"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/orders"
	"github.com/torpor-dev/torpor/internal/cloud/rest"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Actuator stops and starts instances at Google Cloud. It is safe for concurrent use.
type Actuator struct {
	options  rest.CloudOptions
	accounts *rest.AccountCache[*projectAccount]
}

// New returns an Actuator; it does not call the cloud.
func New(o rest.CloudOptions) *Actuator {
	return &Actuator{options: o.WithDefaults(), accounts: rest.NewAccountCache[*projectAccount]()}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "gcp" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "names that begin with the infraID, and the label `" + clusterLabelPrefix + "INFRA_ID`", Stopped: "terminated, which is Google's word for off",
		Credentials: "a key of a service account", Calls: "one listing for a project, one order for each instance",
	}
}

// AccountOf implements actuator.BatchActuator.
func (a *Actuator) AccountOf(_ context.Context, t actuator.Target) (string, error) {
	c, err := a.accountOf(t)
	if err != nil {
		return "", err
	}
	return c.name, nil
}

// Observe implements actuator.Actuator. A cluster without instances is no error here.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, otherErrorf("the infraID is empty, and instances are found by it: set spec.clusterMetadata.infraID")
	}
	c, err := a.accountOf(t)
	if err != nil {
		return nil, err
	}
	return rest.RetryUnreachable(ctx, a.options.Attempts, func() (map[string][]actuator.Machine, error) { return c.listMachines(ctx, infraIDs) })
}

// RequireStopRights implements actuator.BatchActuator.
func (a *Actuator) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.accountOf(t)
	if err != nil {
		return err
	}
	return c.requireRights(ctx, ids)
}

// Stop implements actuator.Actuator. Google Cloud takes orders for single instances only, so that others stop beside one that it refuses.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if err := a.RequireStopRights(ctx, t, ids); err != nil {
		return err
	}
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The error names the instances that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator. A stop is sent once: whoever has one sent again first reads whether it is still wanted.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, stop, clusters, func(c *projectAccount, m machineName) error { return c.stopInstance(ctx, m, t.DiscardLocalDisks) })
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, start, clusters, func(c *projectAccount, m machineName) error {
		_, err := rest.RetryUnreachable(ctx, a.options.Attempts, func() (struct{}, error) { return struct{}{}, c.startInstance(ctx, m) })
		return err
	})
}

// orderAll stops or starts machines of clusters by one call each, and returns an error for each cluster.
func (a *Actuator) orderAll(t actuator.Target, operation string, clusters [][]string, do func(*projectAccount, machineName) error) []error {
	c, err := a.accountOf(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return orders.Run(operation, clusters, func(id string) error {
		m, ok := parseMachineName(id)
		if !ok {
			return &orders.RefusedError{Class: actuator.NotFound, Code: "notFound", Message: "expected an id such as ZONE/NAME"}
		}
		return do(c, m)
	})
}
