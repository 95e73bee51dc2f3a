// SPDX-License-Identifier: Apache-2.0

// Package ibmcloud stops and starts clusters' instances in IBM Cloud VPC. A cluster's machines have names that begin
// with its infraID and a hyphen. They are in the VPC or the resource group that OpenShift's installer names after the
// infraID.
//
// Reading order: credentials.go, login.go (the Secret, a token) → account.go (one for each API key and region) →
// list_machines.go (one listing for all clusters of a region) → order.go (one call per machine, and its result) →
// errors.go (messages for users).
package ibmcloud

import (
	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

var (
	_ actuator.Actuator      = (*Actuator)(nil)
	_ actuator.BatchActuator = (*Actuator)(nil)
	_ actuator.Describer     = (*Actuator)(nil)
)

// Actuator stops and starts instances in IBM Cloud VPC. It is safe for concurrent use.
type Actuator struct {
	cloudrest.OneByOneActuator[*regionAccount]

	options  cloudrest.CloudOptions
	accounts *cloudrest.AccountCache[*regionAccount]
}

// New returns an Actuator; it does not call the cloud.
func New(o cloudrest.CloudOptions) *Actuator {
	a := &Actuator{options: o.WithDefaults(), accounts: cloudrest.NewAccountCache[*regionAccount]()}
	a.OneByOneActuator = cloudrest.OneByOneActuator[*regionAccount]{FindAccount: a.accountOf, Attempts: a.options.Attempts, StopOperation: stop, StartOperation: start}
	return a
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "ibmcloud" }

// Describe implements actuator.Describer.
func (*Actuator) Describe() actuator.Description {
	return actuator.Description{
		FoundBy: "names that begin with the infraID, in the VPC `INFRA_ID" + vpcSuffix + "` or the resource group `INFRA_ID`", Stopped: "stopped",
		Credentials: "an API key", Calls: "one listing for a region of an account, one order for each instance",
		Errors: errorTable().Describe(),
	}
}
