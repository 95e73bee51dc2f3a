// SPDX-License-Identifier: Apache-2.0

// Package azure stops and starts the virtual machines of clusters at Microsoft Azure. A cluster's machines are those of its resource
// group, and stopped means deallocated: a machine that is only shut down is paid for.
//
// Reading order: credentials.go (the Secret) → client.go (one client per service principal and subscription) → list_machines.go
// (one listing for all clusters of a subscription) → rights.go, order.go (one call per machine) → errors.go (messages for users).
package azure

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/torpor-dev/torpor/actuator"
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
	rest.OneByOneActuator[*accountClient]

	options Options
	clients *rest.AccountCache[*accountClient]
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
	a := &Actuator{options: o, clients: rest.NewAccountCache[*accountClient]()}
	// The SDK itself tries again what may be tried again.
	a.OneByOneActuator = rest.OneByOneActuator[*accountClient]{FindAccount: a.clientFor, Attempts: 1, StopOperation: deallocate, StartOperation: start}
	return a
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
