// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"fmt"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// ObservedOperator is a ClusterOperator of a cluster of OpenShift.
type ObservedOperator struct {
	Name string
	// Problem is what its conditions say that is not as it should be, in a word or two; empty if nothing is.
	Problem string
	// LastSeen is the newest sign of life, by the hub's time: a change of its conditions, or the renewal of a lease of its operator. Conditions
	// stay as they were while a cluster sleeps, so that they alone say nothing.
	LastSeen time.Time
}

// notReported is said of an operator that has shown no sign of life since the resume began.
const notReported = "has not reported"

const (
	// operatorsNamedAfter is how long after the resume began operators are named that are awaited: before, most are.
	operatorsNamedAfter = 5 * time.Minute
	// operatorInterval is how often they are looked at.
	operatorInterval = 5 * time.Second
)

// NeedsOperators reports whether a cluster of OpenShift is back but for its ClusterOperators: they are awaited then, and some time after the
// wait those are looked at that were not ready at its end.
func NeedsOperators(o Observed) bool {
	if !NeedsCertificateRequests(o) || o.API != Reachable {
		return false
	}
	return o.isResuming() && !o.awaitsMachines() && !o.awaitsNodes() || o.WereOperatorsMissing && o.isInAftercare()
}

// missingOperators returns the ClusterOperators that are not ready, and while they are awaited those that may only look ready.
func (o Observed) missingOperators() []string {
	if o.OperatorsError != "" {
		return []string{"all, which cannot be read: " + o.OperatorsError}
	}
	var names []string
	for _, op := range o.Operators {
		problem := op.Problem
		if o.isOperatorWaitOpen() && !op.LastSeen.After(o.Record.ResumeStartedAt.Time) {
			problem = cmp.Or(problem, notReported)
		}
		if problem != "" {
			names = append(names, fmt.Sprintf("%s (%s)", op.Name, problem))
		}
	}
	return names
}

// isOperatorWaitOpen reports whether the time is not over for which a resume waits for operators.
func (o Observed) isOperatorWaitOpen() bool {
	return o.isResuming() && o.Now.Sub(o.Record.ResumeStartedAt.Time) <= partialResumeAfter
}

// awaitsOperators reports whether a resuming cluster does not run before its ClusterOperators are ready.
func (o Observed) awaitsOperators() bool {
	return o.isOperatorWaitOpen() && len(o.missingOperators()) > 0
}

func awaitOperators(o Observed) Plan {
	message := "The nodes are back; waiting for ClusterOperators to be ready"
	if o.Now.Sub(o.Record.ResumeStartedAt.Time) > operatorsNamedAfter {
		message += ": " + joinNames(o.missingOperators())
	}
	p := resumingPlan(o, decision.False(hivev1.WaitingForClusterOperatorsReason, message))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, operatorInterval
	return o.withAction(p)
}

// operatorsCondition says which operators a cluster runs without; empty if none.
func (o Observed) operatorsCondition() decision.Condition {
	missing := o.missingOperators()
	if len(missing) == 0 {
		return decision.Condition{}
	}
	return decision.True(hivev1.ClusterOperatorsNotReadyReason,
		"The cluster runs; ClusterOperators were not ready ten minutes after its resume began, and are not waited for any longer: "+joinNames(missing))
}
