// SPDX-License-Identifier: Apache-2.0

// Package libvirt stops and starts clusters' virtual machines through libvirt daemons. A cluster's machines are the
// domains with its infraID in their metadata, and the domains without such metadata that have names such as
// INFRA_ID-worker-0.
//
// Reading order: credentials.go (the Secret) → connection.go (frames, with budgets) → xdr.go, protocol.go (the calls)
// → list_machines.go → order.go, with pending_shutdowns.go (requested shutdowns) → errors.go (messages for users).
package libvirt

import (
	"context"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Options configures the access to daemons. The zero value is suitable for production, and refuses sockets.
type Options struct {
	// Socket is the daemon's socket on this machine. It is used for Secrets whose URI has no host. If Socket is empty,
	// such URIs are refused.
	Socket string
	// Endpoints are the servers that Secrets may refer to. Their messages are shown to users. If empty, all servers
	// except link-local ones are allowed over TLS.
	Endpoints httpguard.Endpoints
	// CallTimeout limits one call, and the connection to the daemon. 0 means 30 s, because a start waits for the
	// hypervisor's process.
	CallTimeout time.Duration
	// Clock measures how long ago machines were requested to turn off; nil means the system clock.
	Clock clock.PassiveClock
}

// Actuator stops and starts domains through libvirt daemons. It is safe for concurrent use, and keeps no connections
// open.
type Actuator struct {
	options Options
	pending *pendingShutdowns
}

// New returns an Actuator; it does not call any daemon.
func New(o Options) *Actuator {
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Actuator{options: o, pending: newPendingShutdowns(o.Clock)}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "libvirt" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "metadata, or names such as `INFRA_ID-worker-0`", Stopped: "shut off, by ACPI", Credentials: "`" + uriKey + "` with a client certificate",
		Calls:  "one listing and two small calls for each domain of a host, three calls for each machine of an order",
		Errors: errorTable().Describe(),
	}
}

// AccountOf implements actuator.BatchActuator.
func (*Actuator) AccountOf(_ context.Context, t actuator.Target) (string, error) {
	d, err := readCredentials(t.Credentials)
	return d.account, err
}

// Observe implements actuator.Actuator. A cluster without domains causes no error.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, actuator.Errorf(actuator.Other, "the infraID is empty, but Torpor finds domains by it: set spec.clusterMetadata.infraID")
	}
	var found map[string][]actuator.Machine
	err := a.connect(ctx, t, list, func(ctx context.Context, c *connection) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeoutFactor*a.options.CallTimeout)
		defer cancel()
		var err error
		found, err = c.listMachines(ctx, infraIDs, a.pending)
		return err
	})
	return found, err
}

// RequireStopRights implements actuator.BatchActuator. The right to stop a domain includes the right to start it.
// However, a transient domain disappears once it is off, and therefore keeps its cluster running.
func (a *Actuator) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	return a.connect(ctx, t, stop, func(ctx context.Context, c *connection) error { return c.requirePersistence(ctx, ids) })
}

// Stop implements actuator.Actuator. Each domain gets a separate order, so the refusal of one does not affect the
// others.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if err := a.RequireStopRights(ctx, t, ids); err != nil {
		return err
	}
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The RefusedIDs of the error are the domains whose start failed, unless all
// failed.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(ctx, t, stop, clusters, func(c *connection, id string) error { return c.stopDomain(ctx, id, a.pending) })
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(ctx, t, start, clusters, func(c *connection, id string) error { return c.startDomain(ctx, id, a.pending) })
}

// orderAll sends orders over one connection, several of them concurrently.
func (a *Actuator) orderAll(ctx context.Context, t actuator.Target, operation string, clusters [][]string, do func(*connection, string) error) []error {
	var errs []error
	err := a.connect(ctx, t, operation, func(ctx context.Context, c *connection) error {
		errs = onebyone.Run(operation, clusters, func(id string) error { return c.explainOrder(ctx, operation, do(c, id)) })
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return errs
}

// connect calls do with a connection, and closes the connection afterwards.
func (a *Actuator) connect(ctx context.Context, t actuator.Target, operation string, do func(context.Context, *connection) error) error {
	d, err := readCredentials(t.Credentials)
	if err != nil {
		return err
	}
	c, err := a.dial(ctx, d)
	if err == nil {
		defer c.close()
		err = do(ctx, c)
	}
	return a.errorExplainer(d).explainError(ctx, operation, err)
}
