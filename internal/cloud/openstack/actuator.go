// SPDX-License-Identifier: Apache-2.0

// Package openstack stops and starts the servers of clusters at OpenStack. A cluster's servers are those whose property openshiftClusterID
// is its infraID, as OpenShift's installer and its machines set it.
//
// Reading order: credentials.go (the Secret) → client.go (one client per project and region, its login) → list_machines.go (one listing
// for all clusters of a project) → order.go (one call per server) → errors.go (messages for users).
package openstack

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/orders"
	"github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/egress"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Options say how to reach the cloud. The zero Options are good for production.
type Options struct {
	// Transport sends the requests of all accounts whose Secrets have no certificates of their own; nil means Go's own with limits.
	Transport http.RoundTripper
	// Endpoints are the servers that Secrets may name, and whose words are shown to users.
	Endpoints egress.Endpoints
	// CallTimeout bounds one API call; 0 means 15 s.
	CallTimeout time.Duration
	// Attempts is how often a listing or a start is tried while the cloud does not answer; 0 means 4.
	Attempts int
}

// Actuator stops and starts servers at OpenStack. It is safe for concurrent use.
type Actuator struct {
	options Options
	clients *rest.AccountCache[*projectClient]
}

// New returns an Actuator; it does not call the cloud.
func New(o Options) *Actuator {
	if o.Transport == nil {
		o.Transport = newTransport(o.Endpoints, nil)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	return &Actuator{options: o, clients: rest.NewAccountCache[*projectClient]()}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "openstack" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the property `" + clusterProperty + "`", Stopped: "stopped, or shelved where that is asked for", Credentials: "`" + cloudsKey + "` with a password or an application credential",
		Calls: "one listing for a project, one order for each server",
	}
}

// AccountOf implements actuator.BatchActuator.
func (a *Actuator) AccountOf(_ context.Context, t actuator.Target) (string, error) {
	c, err := a.clientFor(t)
	if err != nil {
		return "", err
	}
	return c.account, nil
}

// Observe implements actuator.Actuator. A cluster without servers is no error here.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, otherErrorf("the infraID is empty, and servers are found by it: set spec.clusterMetadata.infraID")
	}
	c, err := a.clientFor(t)
	if err != nil {
		return nil, err
	}
	return rest.RetryUnreachable(ctx, a.options.Attempts, func() (map[string][]actuator.Machine, error) { return c.listMachines(ctx, infraIDs) })
}

// RequireStopRights implements actuator.BatchActuator. OpenStack does not tell beforehand.
func (*Actuator) RequireStopRights(context.Context, actuator.Target, []string) error { return nil }

// Stop implements actuator.Actuator. OpenStack takes orders for single servers only, so that others stop beside one that it refuses.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The error names the servers that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator. A stop is sent once: whoever has one sent again first reads whether it is still wanted.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, stop, clusters, func(c *projectClient, id string) error { return c.stopServer(ctx, id) })
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, start, clusters, func(c *projectClient, id string) error {
		_, err := rest.RetryUnreachable(ctx, a.options.Attempts, func() (struct{}, error) { return struct{}{}, c.startServer(ctx, id) })
		return err
	})
}

func (a *Actuator) orderAll(t actuator.Target, operation string, clusters [][]string, do func(*projectClient, string) error) []error {
	c, err := a.clientFor(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return orders.Run(operation, clusters, func(id string) error { return do(c, id) })
}
