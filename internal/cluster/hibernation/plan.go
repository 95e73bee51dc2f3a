// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// powerAction is the action in the events of this package.
const powerAction = "SetPowerState"

// Plan is the result of Decide: at most one action, and the report.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the action.
	Do Action
	// Hibernating, Ready and Unreachable are owned conditions. Every plan sets all of them.
	Hibernating, Ready, Unreachable decision.Condition
	// Degraded and Stalled are empty unless they are True.
	Degraded, Stalled decision.Condition
	// Record replaces the hibernation record.
	Record *hivev1.HibernationRecord
	// RequeueAfter is the time until the next pass. If it is zero, the next pass waits for an event.
	RequeueAfter time.Duration
	// CloudInterval is the interval of polling the machines until one changes; zero without such polls. An observed
	// change triggers a pass.
	CloudInterval time.Duration
	// ProbeInterval is the interval of probing the API server until the next pass; zero without probes. A different
	// result triggers a pass.
	ProbeInterval time.Duration
	// RetryAfter is the back-off for machines and groups whose change was refused.
	RetryAfter time.Duration
}

// Action is one action on the cloud or the cluster. The set is closed.
//
//sumtype:decl
type Action interface{ isAction() }

// NoAction is the empty action.
type NoAction struct{}

// StopMachines requests that the cloud stops machines. No machine is stopped unless the account may also stop
// StoppedLater and terminate TerminatedLater.
type StopMachines struct{ IDs, StoppedLater, TerminatedLater []string }

// TerminateMachines requests that the cloud terminates machines permanently.
type TerminateMachines struct{ IDs []string }

// StartMachines requests that the cloud starts machines.
type StartMachines struct{ IDs []string }

// ApproveRequests approves certificate requests by name.
type ApproveRequests struct{ Requests []string }

// ReplaceMachines deletes the cluster's OpenShift Machines, which the cluster then replaces.
type ReplaceMachines struct{ Machines []ReplaceableMachine }

// HoldGroups keeps machine groups from replacing machines, or scales the groups to zero.
type HoldGroups struct{ Changes []actuator.GroupChange }

// ReleaseGroups restores machine groups.
type ReleaseGroups struct{ Changes []actuator.GroupChange }

func (NoAction) isAction()          {}
func (HoldGroups) isAction()        {}
func (ReleaseGroups) isAction()     {}
func (StopMachines) isAction()      {}
func (TerminateMachines) isAction() {}
func (StartMachines) isAction()     {}
func (ApproveRequests) isAction()   {}
func (ReplaceMachines) isAction()   {}

// DisplayedPowerState returns status.powerState, which is derived from the Hibernating condition. No decision reads
// this field. While it differs from the requested state, a pass uses only a recent observation of the machines.
func DisplayedPowerState(hibernating decision.Condition) string {
	if hibernating.Status == metav1.ConditionUnknown {
		return "Unknown"
	}
	return hibernating.Reason
}
