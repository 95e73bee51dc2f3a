// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// Plan is what Decide wants: at most one effect, and what to tell.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the effect.
	Do Action
	// Hibernating, Ready and Unreachable are the owned conditions, all of them in every plan.
	Hibernating, Ready, Unreachable Condition
	// Record replaces the record of the sleep.
	Record *hivev1.HibernationRecord
	// After is when to look again; zero waits for an event.
	After time.Duration
}

// Condition is a condition without the bookkeeping of its object.
type Condition struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// Action is one effect on the world. The set is closed.
//
//sumtype:decl
type Action interface{ isAction() }

// NoAction leaves the world as it is.
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

// DisplayedPowerState is the display field that follows from the Hibernating condition.
func DisplayedPowerState(hibernating Condition) string {
	if hibernating.Status == metav1.ConditionUnknown {
		return "Unknown"
	}
	return hibernating.Reason
}

func unknown(reason, message string) Condition {
	return Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

func isTrue(reason, message string) Condition {
	return Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(reason, message string) Condition {
	return Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
