// SPDX-License-Identifier: Apache-2.0

// Package azure stops and starts the virtual machines of clusters at Microsoft Azure. A cluster's machines are those of its resource
// group, and stopped means deallocated: a machine that is only shut down is paid for.
//
// Reading order: credentials.go (the Secret) → client_cache.go (one client per service principal and subscription) → list_machines.go
// (one listing for all clusters of a subscription) → rights.go, order.go (one call per machine) → errors.go (messages for users).
package azure

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/egress"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Options say how to reach the cloud. The zero Options are good for production.
type Options struct {
	// HTTPClient sends the requests of all accounts; nil means one with budgets for answers.
	HTTPClient policy.Transporter
	// Endpoints are the servers whose addresses may be dialled although they are link-local.
	Endpoints egress.Endpoints
	// WorkloadIdentities are the service principals as which the manager may log in by itself.
	WorkloadIdentities []WorkloadIdentity
	// TokenFile has the token of the manager's own ServiceAccount; empty means the file that AZURE_FEDERATED_TOKEN_FILE names.
	TokenFile string
	// CallTimeout bounds one API call with all its attempts; 0 means 15 s.
	CallTimeout time.Duration
	// Attempts is how often a call is tried while the cloud throttles or does not answer; 0 means 4.
	Attempts int32
}

// Actuator stops and starts machines at Azure. It is safe for concurrent use.
type Actuator struct {
	options Options
	clients clientCache
}

// New returns an Actuator; it does not call the cloud.
func New(o Options) *Actuator {
	if o.HTTPClient == nil {
		o.HTTPClient = newBoundedClient(o.Endpoints)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	return &Actuator{options: o, clients: clientCache{known: map[clientKey]*accountClient{}}}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "azure" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the resource group", Stopped: "deallocated", Credentials: "a service principal with a secret, a certificate or a workload identity",
		Calls: "one listing for a subscription, one order for each machine",
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

// Observe implements actuator.Actuator. A resource group without machines is no error here.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator. The infraIDs are names of resource groups.
func (a *Actuator) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	c, err := a.clientFor(t)
	if err != nil {
		return nil, err
	}
	return c.listMachines(ctx, infraIDs)
}

// RequireStopRights implements actuator.BatchActuator.
func (a *Actuator) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(t)
	if err != nil {
		return err
	}
	return c.requireRights(ctx, ids)
}

// Stop implements actuator.Actuator. Azure takes orders for single machines only, so that others stop beside one that it refuses.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if err := a.RequireStopRights(ctx, t, ids); err != nil {
		return err
	}
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The error names the machines that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator.
func (a *Actuator) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	// Whoever has a stop sent again first reads whether it is still wanted, so that the SDK must not do that by itself.
	once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	return a.orderAll(once, t, deallocate, clusters, func(ctx context.Context, c *accountClient, m machineName) error {
		_, err := c.machines.BeginDeallocate(ctx, m.group, m.name, nil)
		return err
	})
}

// StartAll implements actuator.BatchActuator.
func (a *Actuator) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(ctx, t, start, clusters, func(ctx context.Context, c *accountClient, m machineName) error {
		_, err := c.machines.BeginStart(ctx, m.group, m.name, nil)
		return err
	})
}
