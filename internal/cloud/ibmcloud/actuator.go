// SPDX-License-Identifier: Apache-2.0

// Package ibmcloud stops and starts the instances of clusters at IBM Cloud VPC. A cluster's machines are those whose names begin with its
// infraID and a hyphen, in the VPC or the resource group that OpenShift's installer names after the infraID.
//
// Reading order: credentials.go, login.go (the Secret, a token) → account.go (one for each API key and region) → list_machines.go (one
// listing for all clusters of a region) → order.go (one call per machine, and what becomes of it) → errors.go (messages for users).
package ibmcloud

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

// Actuator stops and starts instances at IBM Cloud VPC. It is safe for concurrent use.
type Actuator struct {
	options  rest.CloudOptions
	accounts *rest.AccountCache[*regionAccount]
}

// New returns an Actuator; it does not call the cloud.
func New(o rest.CloudOptions) *Actuator {
	return &Actuator{options: o.WithDefaults(), accounts: rest.NewAccountCache[*regionAccount]()}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "ibmcloud" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "names that begin with the infraID, in the VPC `INFRA_ID" + vpcSuffix + "` or the resource group `INFRA_ID`", Stopped: "stopped",
		Credentials: "an API key", Calls: "one listing for a region of an account, one order for each instance",
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

// RequireStopRights implements actuator.BatchActuator. IBM Cloud does not tell beforehand.
func (*Actuator) RequireStopRights(context.Context, actuator.Target, []string) error { return nil }

// Stop implements actuator.Actuator. IBM Cloud takes orders for single instances only, so that others stop beside one that it refuses.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The error names the instances that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator. A stop is sent once: whoever has one sent again first reads whether it is still wanted.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, stop, clusters, func(c *regionAccount, id string) error { return c.stopInstance(ctx, id) })
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, start, clusters, func(c *regionAccount, id string) error {
		_, err := rest.RetryUnreachable(ctx, a.options.Attempts, func() (struct{}, error) { return struct{}{}, c.startInstance(ctx, id) })
		return err
	})
}

// orderAll stops or starts machines of clusters by one call each, and returns an error for each cluster.
func (a *Actuator) orderAll(t actuator.Target, operation string, clusters [][]string, do func(*regionAccount, string) error) []error {
	c, err := a.accountOf(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return orders.Run(operation, clusters, func(id string) error {
		if !isInstanceID(id) {
			return &orders.RefusedError{Class: actuator.NotFound, Code: "not_found", Message: "expected the id of an instance"}
		}
		return do(c, id)
	})
}
