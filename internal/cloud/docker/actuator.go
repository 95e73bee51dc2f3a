// SPDX-License-Identifier: Apache-2.0

// Package docker stops and starts the nodes of clusters in containers, such as those of kind and k3d, through the
// HTTP API that Docker and Podman share. A cluster's nodes are the containers that have a label with its name, or a
// name with a given prefix.
//
// Reading order: engine_address.go (the allowed engines) → credentials.go (the Secret) → client.go (one client per
// engine) → list_containers.go (one listing for all clusters of an engine) → order.go (one call per container) →
// errors.go (messages for users).
package docker

import (
	"time"

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

// Options configures the access to engines. The zero value is suitable for production.
type Options struct {
	// Endpoints are the servers that ClusterDeployments may refer to. Their messages are shown to users. If empty, all
	// servers except link-local ones are allowed.
	Endpoints httpguard.Endpoints
	// Sockets are the sockets on the manager's own machine that ClusterDeployments may refer to. If empty, no socket
	// is allowed.
	Sockets []Socket
	// CallTimeout limits one API call; 0 means 15 s.
	CallTimeout time.Duration
	// StopPatience is how long to wait for a stop to complete after the order was sent; 0 means 2 s.
	StopPatience time.Duration
	// Attempts is the maximum number of attempts of a listing or a start while the engine does not respond; 0 means 4.
	Attempts int
	// Clock measures how long ago a container was ordered to stop; nil means the system clock.
	Clock clock.PassiveClock
}

// Actuator stops and starts containers. It is safe for concurrent use.
type Actuator struct {
	cloudrest.OneByOneActuator[*engineClient]

	options Options
	clients *cloudrest.AccountCache[*engineClient]
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
	a := &Actuator{options: o, clients: cloudrest.NewAccountCache[*engineClient]()}
	a.OneByOneActuator = cloudrest.OneByOneActuator[*engineClient]{FindAccount: a.clientFor, Attempts: o.Attempts, StopOperation: stop, StartOperation: start}
	return a
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "containers" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "a label such as `io.x-k8s.kind.cluster=INFRA_ID`, or the beginning of their names", Stopped: "exited",
		Credentials: "a client certificate, or a socket that the operator of the hub lists", Calls: "one listing for an engine, one order for each container",
		Errors: errorTable().Describe(),
	}
}
