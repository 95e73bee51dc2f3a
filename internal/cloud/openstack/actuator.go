// SPDX-License-Identifier: Apache-2.0

// Package openstack stops and starts clusters' servers in OpenStack. A cluster's servers have its infraID in the
// property openshiftClusterID. OpenShift's installer and its machine API set this property.
//
// Reading order: credentials.go (the Secret) → client.go (one client per project and region, its login) →
// list_machines.go (one listing for all clusters of a project) → order.go (one call per server) → errors.go (messages
// for users).
package openstack

import (
	"net/http"
	"time"

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
	// Transport sends the requests of all accounts whose Secrets contain no certificates. If nil, Go's transport with
	// limits is used.
	Transport http.RoundTripper
	// Endpoints are the servers that Secrets may refer to. Their messages are shown to users. If empty, all servers
	// except link-local ones are allowed.
	Endpoints httpguard.Endpoints
	// CallTimeout limits one API call; 0 means 15 s.
	CallTimeout time.Duration
	// Attempts is the maximum number of attempts of a listing or a start while the cloud does not respond; 0 means 4.
	Attempts int
}

// Actuator stops and starts servers in OpenStack. It is safe for concurrent use.
type Actuator struct {
	cloudrest.OneByOneActuator[*projectClient]

	options Options
	clients *cloudrest.AccountCache[*projectClient]
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
	a := &Actuator{options: o, clients: cloudrest.NewAccountCache[*projectClient]()}
	a.OneByOneActuator = cloudrest.OneByOneActuator[*projectClient]{FindAccount: a.clientFor, Attempts: o.Attempts, StopOperation: stop, StartOperation: start}
	return a
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "openstack" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "the property `" + clusterProperty + "`", Stopped: "stopped, or shelved with `stopMethod: Shelve`", Credentials: "`" + cloudsKey + "` with a password or an application credential",
		Calls:  "one listing for a project, one order for each server",
		Errors: errorTable().Describe(),
	}
}
