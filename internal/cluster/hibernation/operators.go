// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// ObservedOperator is a ClusterOperator of an OpenShift cluster.
type ObservedOperator struct {
	Name string
	// Problem summarizes in a word or two the problem that the operator's conditions report; empty without a problem.
	Problem string
	// IsBroken is true if the operator is degraded or not available. A progressing operator is not broken.
	IsBroken bool
	// LastSeen is the newest change to the operator's conditions or renewal of its lease, by the hub's time. Conditions
	// do not change while a cluster hibernates, so unchanged conditions do not show that the operator runs.
	LastSeen time.Time
}

// notReported is the problem of an operator whose LastSeen is before the start of the resume.
const notReported = "has not reported"

const (
	// operatorsNamedAfter is the time from the start of the resume until a message lists the awaited operators.
	// Earlier, most operators of a cluster are still awaited.
	operatorsNamedAfter = 5 * time.Minute
	// maxBrokenOperators is the limit in the hibernation record, twice the number of OpenShift's operators. The
	// record must fit into one object together with its nodes.
	maxBrokenOperators = 64
	// operatorInterval is the interval of polling operators.
	operatorInterval = 5 * time.Second
)

// NeedsOperatorRecord reports whether the ClusterOperators must be read before a hibernation, to record which of them
// are broken. A cancelled resume keeps the operators of its hibernation, because operators are not ready during a
// resume.
func NeedsOperatorRecord(o Observed) bool {
	return NeedsNodes(o) && o.needsNodeRecord() && !o.hasNotResumed() && !o.Now.Before(o.SyncAwaitedUntil)
}

// NeedsOperators reports whether the ClusterOperators of an OpenShift cluster must be read. They are read for the
// record of a hibernation, and during a resume that no longer waits for machines and nodes. In the aftercare, they are
// read if some of them were not ready.
func NeedsOperators(o Observed) bool {
	if NeedsOperatorRecord(o) {
		return o.API == Reachable
	}
	if !NeedsCertificateRequests(o) || o.API != Reachable {
		return false
	}
	return o.isResuming() && !o.awaitsMachines() && !o.awaitsNodes() || o.WereOperatorsMissing && o.isInAftercare()
}

// missingOperators returns the ClusterOperators that are not ready, except those that were broken before the
// hibernation. During the wait for operators, it includes operators that have not reported since the resume began.
func (o Observed) missingOperators() []string {
	if o.OperatorsError != "" {
		return []string{"all ClusterOperators, which cannot be read: " + o.OperatorsError}
	}
	var names []string
	for _, op := range o.Operators {
		problem := op.Problem
		if o.isOperatorWaitOpen() && !op.LastSeen.After(o.Record.ResumeStartedAt.Time) {
			problem = cmp.Or(problem, notReported)
		}
		if problem != "" && !o.wasBroken(op.Name) {
			names = append(names, fmt.Sprintf("%s (%s)", op.Name, problem))
		}
	}
	return names
}

// wasBroken reports whether an operator was broken before the hibernation.
func (o Observed) wasBroken(name string) bool {
	return o.Record != nil && slices.Contains(o.Record.BrokenOperators, name)
}

// brokenOperators returns the operators that were broken before the hibernation and still are not ready.
func (o Observed) brokenOperators() (names []string) {
	for _, op := range o.Operators {
		if op.Problem != "" && o.wasBroken(op.Name) {
			names = append(names, fmt.Sprintf("%s (%s)", op.Name, op.Problem))
		}
	}
	return names
}

// operatorsToRecord returns the operators that are broken before a hibernation. If they were not read, it returns the
// operators of the last hibernation.
func (o Observed) operatorsToRecord() (names []string) {
	if !NeedsOperators(o) || o.OperatorsError != "" {
		if o.Record != nil {
			names = o.Record.BrokenOperators
		}
		return names
	}
	for _, op := range o.Operators {
		// Only a hostile server lists a name twice, and the hub's API server would reject such a record.
		if op.IsBroken && len(names) < maxBrokenOperators && !slices.Contains(names, op.Name) {
			names = append(names, op.Name)
		}
	}
	return names
}

// isOperatorWaitOpen reports whether a resume may still wait for operators.
func (o Observed) isOperatorWaitOpen() bool {
	return o.isInResumeWait() && !o.SkipsOperators
}

// isInResumeWait reports whether a resume may still wait for parts that the cluster can run without, such as
// ClusterOperators. The wait ends ten minutes after the start of the resume, or once the cluster runs in part.
func (o Observed) isInResumeWait() bool {
	return o.isResuming() && o.Record.ReadyInPartAt == nil && o.Now.Sub(o.Record.ResumeStartedAt.Time) <= partialResumeAfter
}

// awaitsOperators reports whether a resuming cluster waits for its ClusterOperators.
func (o Observed) awaitsOperators() bool {
	return o.isOperatorWaitOpen() && len(o.missingOperators()) > 0
}

func awaitOperators(o Observed) Plan {
	message := "The nodes have reported; waiting for ClusterOperators to be ready"
	if o.Now.Sub(o.Record.ResumeStartedAt.Time) > operatorsNamedAfter {
		message += ": " + joinNames(o.missingOperators())
	}
	p := resumingPlan(o, decision.False(hivev1.WaitingForClusterOperatorsReason, message))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, operatorInterval
	return o.withAction(p)
}

// operatorsCondition returns the Degraded condition of a running cluster whose operators are not ready; empty if all
// are ready.
func (o Observed) operatorsCondition() decision.Condition {
	message := "The cluster runs"
	missing, broken := o.missingOperators(), o.brokenOperators()
	switch {
	case len(missing)+len(broken) == 0:
		return decision.Condition{}
	case len(missing) > 0 && o.SkipsOperators:
		message += fmt.Sprintf("; ClusterOperators are not ready, and %s disables the wait for them: %s", hivev1.ResumeSkipsClusterOperatorsLabel, joinNames(missing))
	case len(missing) > 0:
		message += "; the resume no longer waits for ClusterOperators that were not ready after ten minutes: " + joinNames(missing)
	}
	if len(broken) > 0 {
		message += "; the resume does not wait for ClusterOperators that were not ready even before the hibernation: " + joinNames(broken)
	}
	return decision.True(hivev1.ClusterOperatorsNotReadyReason, message)
}
