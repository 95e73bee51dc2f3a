// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// powerAction is the action of every event.
const powerAction = "SetPowerState"

// Plan is what Decide wants: at most one effect, and what to report.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the effect.
	Do Action
	// Hibernating, Ready and Unreachable are the owned conditions, all of them in every plan.
	Hibernating, Ready, Unreachable decision.Condition
	// Degraded and Stalled are empty unless they are True.
	Degraded, Stalled decision.Condition
	// Record replaces the record of the hibernation.
	Record *hivev1.HibernationRecord
	// RequeueAfter is when to look again; zero waits for an event.
	RequeueAfter time.Duration
	// CloudInterval is how often the machines are looked at while one is to change; zero while none is. The pass runs once one has.
	CloudInterval time.Duration
	// ProbeInterval is how often the API server is looked at meanwhile; zero while it is not. The pass runs once it answers otherwise.
	ProbeInterval time.Duration
	// RetryAfter is how long machines rest that the cloud has refused to stop or to start.
	RetryAfter time.Duration
}

// Action is one effect on the cloud or the cluster. The set is closed.
//
//sumtype:decl
type Action interface{ isAction() }

// NoAction changes nothing.
type NoAction struct{}

// StopMachines asks the cloud to stop machines. None is stopped without the rights to stop those that are to be stopped later, and to
// terminate those that are to be terminated later.
type StopMachines struct{ IDs, StoppedLater, TerminatedLater []string }

// TerminateMachines asks the cloud to end machines for good.
type TerminateMachines struct{ IDs []string }

// StartMachines asks the cloud to start machines.
type StartMachines struct{ IDs []string }

// ApproveRequests approves certificate requests by name.
type ApproveRequests struct{ Requests []string }

// ReplaceMachines deletes OpenShift Machines of the cluster, so that it makes new ones.
type ReplaceMachines struct{ Machines []ReplaceableMachine }

func (NoAction) isAction()          {}
func (StopMachines) isAction()      {}
func (TerminateMachines) isAction() {}
func (StartMachines) isAction()     {}
func (ApproveRequests) isAction()   {}
func (ReplaceMachines) isAction()   {}

// DisplayedPowerState is status.powerState, which follows from the Hibernating condition and is never read.
func DisplayedPowerState(hibernating decision.Condition) string {
	if hibernating.Status == metav1.ConditionUnknown {
		return "Unknown"
	}
	return hibernating.Reason
}
