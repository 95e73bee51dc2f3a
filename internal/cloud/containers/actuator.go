// SPDX-License-Identifier: Apache-2.0

// Package containers stops and starts the nodes of clusters that are containers, as kind and k3d make them, by the HTTP API that Docker and
// Podman share. A cluster's nodes are the containers with a label that has its name, or those whose names have a prefix.
//
// Reading order: engine_address.go (which engines may be reached) → credentials.go (the Secret) → client.go (one client per engine) →
// list_containers.go (one listing for all clusters of an engine) → order.go (one call per container) → errors.go (messages for users).
package containers

import (
	"context"
	"slices"
	"time"

	"k8s.io/utils/clock"

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

// Options say how to reach engines. The zero Options are good for production.
type Options struct {
	// Endpoints are the servers that ClusterDeployments may name, and whose words are shown to users.
	Endpoints egress.Endpoints
	// Sockets are those of the manager's own machine that ClusterDeployments may name; none allows none.
	Sockets []Socket
	// CallTimeout bounds one API call; 0 means 15 s.
	CallTimeout time.Duration
	// StopPatience is how long the end of a stop is waited for once the engine has the order; 0 means 2 s.
	StopPatience time.Duration
	// Attempts is how often a listing or a start is tried while the engine does not answer; 0 means 4.
	Attempts int
	// Clock tells how long ago a container was told to stop; nil means the machine's.
	Clock clock.PassiveClock
}

// Actuator stops and starts containers. It is safe for concurrent use.
type Actuator struct {
	options Options
	clients *rest.AccountCache[*engineClient]
}

// New returns an Actuator; it does not call any engine.
func New(o Options) *Actuator {
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.StopPatience == 0 {
		o.StopPatience = 2 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Actuator{options: o, clients: rest.NewAccountCache[*engineClient]()}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "containers" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "a label such as `io.x-k8s.kind.cluster=INFRA_ID`, or the beginning of their names", Stopped: "exited",
		Credentials: "a client certificate, or a socket that the operator of the hub lists", Calls: "one listing for an engine, one order for each container",
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

// Observe implements actuator.Actuator. A cluster without containers is no error here.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, selectors []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(selectors, "") {
		return nil, otherErrorf("nothing says what the containers are found by: set spec.clusterMetadata.infraID, or spec.platform.containers.namePrefix")
	}
	c, err := a.clientFor(t)
	if err != nil {
		return nil, err
	}
	return rest.RetryUnreachable(ctx, a.options.Attempts, func() (map[string][]actuator.Machine, error) { return c.listMachines(ctx, selectors) })
}

// RequireStopRights implements actuator.BatchActuator. Who may speak to an engine may do everything there.
func (*Actuator) RequireStopRights(context.Context, actuator.Target, []string) error { return nil }

// Stop implements actuator.Actuator.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The error names the containers that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator. A stop is sent once: whoever has one sent again first reads whether it is still wanted.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, stop, clusters, func(c *engineClient, id string) error { return c.stopContainer(ctx, id) })
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, start, clusters, func(c *engineClient, id string) error {
		_, err := rest.RetryUnreachable(ctx, a.options.Attempts, func() (struct{}, error) { return struct{}{}, c.startContainer(ctx, id) })
		return err
	})
}

func (a *Actuator) orderAll(t actuator.Target, operation string, clusters [][]string, do func(*engineClient, string) error) []error {
	c, err := a.clientFor(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return orders.Run(operation, clusters, func(id string) error { return do(c, id) })
}
