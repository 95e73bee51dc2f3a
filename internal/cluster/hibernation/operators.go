// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"fmt"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// ObservedOperator is a ClusterOperator of an OpenShift cluster.
type ObservedOperator struct {
	Name string
	// Problem describes in a word or two what the conditions of the operator report as wrong; empty if there is no
	// problem.
	Problem string
	// LastSeen is the newest sign of life by the hub's time: a change of the operator's conditions, or the
	// renewal of its lease. Conditions do not change while a cluster hibernates, so they alone are no sign of
	// life.
	LastSeen time.Time
}

// notReported is the problem of an operator without a sign of life since the resume began.
const notReported = "has not reported"

const (
	// operatorsNamedAfter is the time from the start of the resume until awaited operators are named. Most of
	// them are awaited earlier.
	operatorsNamedAfter = 5 * time.Minute
	// operatorInterval is the interval of polling operators.
	operatorInterval = 5 * time.Second
)

// NeedsOperators reports whether an OpenShift cluster is back except for its ClusterOperators. They are awaited
// then. Operators that were not ready at the end of that wait are read for some time after it.
func NeedsOperators(o Observed) bool {
	if !NeedsCertificateRequests(o) || o.API != Reachable {
		return false
	}
	return o.isResuming() && !o.awaitsMachines() && !o.awaitsNodes() || o.WereOperatorsMissing && o.isInAftercare()
}

// missingOperators returns the ClusterOperators that are not ready. While they are awaited, it includes those
// that may only look ready.
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

// isOperatorWaitOpen reports whether a resume still waits for operators.
func (o Observed) isOperatorWaitOpen() bool {
	return o.isResuming() && o.Now.Sub(o.Record.ResumeStartedAt.Time) <= partialResumeAfter
}

// awaitsOperators reports whether a resuming cluster waits for its ClusterOperators to be ready.
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

// operatorsCondition reports the operators that a running cluster lacks; empty if all are ready.
func (o Observed) operatorsCondition() decision.Condition {
	missing := o.missingOperators()
	if len(missing) == 0 {
		return decision.Condition{}
	}
	return decision.True(hivev1.ClusterOperatorsNotReadyReason,
		"The cluster runs; ClusterOperators were not ready ten minutes after its resume began, and are no longer awaited: "+joinNames(missing))
}
