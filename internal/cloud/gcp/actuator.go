// SPDX-License-Identifier: Apache-2.0

// Package gcp stops and starts clusters' instances in Google Cloud. A cluster's machines are the instances with its
// cluster label and a name that begins with its infraID and a hyphen, and the instances without any cluster label that
// have names such as INFRA_ID-worker-b-9vq4d.
//
// Reading order: credentials.go, login.go (the Secret, a token) → account.go (one for each service account) →
// list_machines.go (one listing for many clusters, in all zones) → rights.go, order.go (one call per machine, and its
// result) → errors.go (messages for users).
package gcp

import (
	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Actuator stops and starts instances in Google Cloud. It is safe for concurrent use.
type Actuator struct {
	cloudrest.OneByOneActuator[*projectAccount]

	options  cloudrest.CloudOptions
	accounts *cloudrest.AccountCache[*projectAccount]
}

// New returns an Actuator; it does not call the cloud.
func New(o cloudrest.CloudOptions) *Actuator {
	a := &Actuator{options: o.WithDefaults(), accounts: cloudrest.NewAccountCache[*projectAccount]()}
	a.OneByOneActuator = cloudrest.OneByOneActuator[*projectAccount]{FindAccount: a.accountOf, Attempts: a.options.Attempts, StopOperation: stop, StartOperation: start}
	return a
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "gcp" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "names that begin with the infraID and the label `" + clusterLabelPrefix + "INFRA_ID`, or names such as `INFRA_ID-worker-b-9vq4d`", Stopped: "terminated, which is Google's word for off",
		Credentials: "a key of a service account", Calls: "one listing for a project, one order for each instance",
		Errors: errorTable().Describe(),
	}
}
