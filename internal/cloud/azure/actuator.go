// SPDX-License-Identifier: Apache-2.0

// Package azure stops and starts clusters' virtual machines in Microsoft Azure. A cluster's machines are the virtual
// machines in its resource group. A stopped machine is deallocated, because a machine that is only shut down is still
// billed.
//
// Reading order: credentials.go (the Secret) → client.go (one client per service principal and subscription) →
// list_machines.go, scale_sets.go (two listings for all clusters of a subscription) → rights.go, order.go (one call per
// machine) → errors.go (messages for users).
package azure

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Options configures the access to the cloud. The zero value is suitable for production.
type Options struct {
	// HTTPClient sends the requests of all accounts. If nil, a client that limits the size of responses is used.
	HTTPClient policy.Transporter
	// Endpoints are the servers that may be called although their addresses are link-local.
	Endpoints httpguard.Endpoints
	// WorkloadIdentities are the service principals that the manager may use with its own token.
	WorkloadIdentities []WorkloadIdentity
	// TokenFile is the file with the token of the manager's ServiceAccount. If empty, the environment variable
	// AZURE_FEDERATED_TOKEN_FILE is used.
	TokenFile string
	// CallTimeout limits one API call, including all attempts; 0 means 15 s.
	CallTimeout time.Duration
	// Clock decides when quotas are read again; nil means the system clock.
	Clock clock.PassiveClock
	// Attempts is the maximum number of attempts of a call that may be repeated, while the cloud throttles or does not
	// respond; 0 means 4.
	Attempts int32
}

// Actuator stops and starts machines in Azure. It is safe for concurrent use.
type Actuator struct {
	cloudrest.OneByOneActuator[*accountClient]

	options Options
	clients *cloudrest.AccountCache[*accountClient]
}

// New returns an Actuator; it does not call the cloud.
func New(o Options) *Actuator {
	if o.HTTPClient == nil {
		o.HTTPClient = newBoundedClient(o.Endpoints)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	a := &Actuator{options: o, clients: cloudrest.NewAccountCache[*accountClient]()}
	// The SDK itself retries the calls that may be retried.
	a.OneByOneActuator = cloudrest.OneByOneActuator[*accountClient]{FindAccount: a.clientFor, Attempts: 1, StopOperation: deallocate, StartOperation: start}
	return a
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "azure" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the resource group", Stopped: "deallocated", Credentials: "a service principal with a secret, a certificate or a workload identity",
		Calls:  "two listings for a subscription, one order for each machine",
		Errors: errorTable().Describe(),
	}
}
