// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
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
	// Record replaces the record of the hibernation.
	Record *hivev1.HibernationRecord
	// RequeueAfter is when to look again; zero waits for an event.
	RequeueAfter time.Duration
	// AwaitsMachines says that nothing but a change of the machines makes another plan.
	AwaitsMachines bool
	// RefusalNote follows the message of a refusal that stays, and RefusedSince is since when it may have stood.
	RefusalNote  string
	RefusedSince time.Duration
}

// Action is one effect on the cloud or the cluster. The set is closed.
//
//sumtype:decl
type Action interface{ isAction() }

// NoAction changes nothing.
type NoAction struct{}

// StopMachines asks the cloud to stop machines.
type StopMachines struct{ IDs []string }

// StartMachines asks the cloud to start machines.
type StartMachines struct{ IDs []string }

// ApproveRequests approves certificate requests by name.
type ApproveRequests struct{ Requests []string }

func (NoAction) isAction()        {}
func (StopMachines) isAction()    {}
func (StartMachines) isAction()   {}
func (ApproveRequests) isAction() {}

// WithRefusal returns the plan after its effect was refused: it reports that, and looks again when that makes sense.
// What went well of the plan, such as the record, stays.
func (p Plan) WithRefusal(class actuator.ErrorClass, message string) Plan {
	isLasting := class == actuator.Other || class == actuator.NotFound
	if isLasting {
		message += p.RefusalNote
	}
	switch p.Do.(type) {
	case StopMachines:
		p.Ready = decision.False(hivev1.FailedToStopReason, message)
	case StartMachines:
		p.Ready = decision.False(hivev1.FailedToStartMachinesReason, message)
	case ApproveRequests:
		p.Ready = decision.False(hivev1.FailedToApproveReason, message)
	case NoAction:
	}
	p.RequeueAfter = retryIntervalFor(class)
	if isLasting {
		p.RequeueAfter = min(max(p.RequeueAfter, p.RefusedSince/refusalShare), driftInterval)
	}
	return p
}

// DisplayedPowerState is status.powerState, which follows from the Hibernating condition and is never read.
func DisplayedPowerState(hibernating decision.Condition) string {
	if hibernating.Status == metav1.ConditionUnknown {
		return "Unknown"
	}
	return hibernating.Reason
}
