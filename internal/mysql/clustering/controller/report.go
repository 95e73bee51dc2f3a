// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// stopAction is what was tried, as events about the end of a stop name it.
const stopAction = "Stop"

// report writes the plan into the status and returns what follows once that is saved.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	if seen.IsBeingDeleted {
		return reconcile.FollowUp{Rule: plan.Rule}
	}
	if _, ends := plan.Do.(clustering.EndStop); ends {
		return reportEndOfStop(cluster, plan, refused)
	}
	primary := seen.Primary
	if do, promotes := plan.Do.(clustering.PromoteInStatus); promotes && refused == nil {
		primary = do.Index
		cluster.Status.CurrentPrimaryIndex = do.Index
	}
	status := &cluster.Status
	status.Cloned = status.Cloned || plan.SourceDone
	status.Pause = buildPause(cluster, plan, seen.Now)
	status.Instances = buildInstanceStatuses(seen, plan, primary)
	status.SyncedReplicas = plan.Synced
	if primary != clustering.NoInstance && primary < len(seen.Instances) && seen.Instances[primary].Reachable {
		status.SyncedReplicas++ // The field counts the primary too.
	}
	status.ErrantReplicas, status.ErrantReplicaList = len(plan.Errant), plan.Errant
	reconcile.SetConditions(&status.Conditions, ownedConditions(cluster, seen, plan), cluster.Generation, c.Clock)

	out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: plan.After}
	// The regular look at a stopped cluster may come long after the end of the stop.
	if until, _ := reconcile.ReadStopUntil(cluster); until != nil && cluster.ClusteringStopped() {
		out.RequeueAfter = min(out.RequeueAfter, max(until.Sub(seen.Now), time.Millisecond))
	}
	if refused == nil {
		out.Events = plan.Events
	}
	name := seen.clusterConns.name
	failed := refused != nil || seen.passwordProblem != ""
	took := c.Clock.Since(seen.startedAt)
	out.AfterSave = func() { c.Metrics.countPass(name, out.Events, failed, took) }
	return out
}

func ownedConditions(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan) map[string]decision.Condition {
	active := plan.ClusteringActive
	if wrong := describeIgnoredAnnotations(cluster); wrong != "" {
		active.Message += "; " + wrong
	}
	return map[string]decision.Condition{
		mocov1beta2.InitializedCondition:      plan.Initialized,
		mocov1beta2.AvailableCondition:        withPasswordProblem(plan.Available, seen.passwordProblem),
		mocov1beta2.HealthyCondition:          withPasswordProblem(plan.Healthy, seen.passwordProblem),
		mocov1beta2.ClusteringActiveCondition: active,
	}
}

// withPasswordProblem adds why instances could not be asked.
func withPasswordProblem(is decision.Condition, problem string) decision.Condition {
	if is.Status != metav1.ConditionTrue && problem != "" {
		is.Message += "; " + problem
	}
	return is
}

func buildInstanceStatuses(seen *observation, plan clustering.Plan, primary int) []mocov1beta2.InstanceStatus {
	var list []mocov1beta2.InstanceStatus
	for i, s := range seen.Instances {
		found := clustering.InstanceReport{}
		if i < len(plan.Instances) {
			found = plan.Instances[i]
		}
		one := mocov1beta2.InstanceStatus{Ordinal: i, Stopped: s.Stopped, Message: found.Problem}
		switch {
		case i == primary:
			one.Role = mocov1beta2.RolePrimary
		case s.Pod.Role == clustering.RoleReplica:
			one.Role = mocov1beta2.RoleReplica
		}
		if s.Reachable {
			one.Writable = new(!s.ReadOnly)
			one.ExecutedGTIDs, one.ErrantGTIDs, one.AheadGTIDs = s.Executed.String(), found.Errant.String(), found.Ahead.String()
			one.MissingGTIDs = found.Gap.String()
			setThreadStates(&one, s.Channel)
		}
		list = append(list, one)
	}
	return list
}

func setThreadStates(one *mocov1beta2.InstanceStatus, c clustering.ReplicationChannel) {
	if !c.Present {
		return
	}
	words := map[clustering.ThreadState]string{clustering.Stopped: "No", clustering.Connecting: "Connecting", clustering.Running: "Yes"}
	one.IOThread, one.SQLThread = words[c.IO], words[c.SQL]
	if c.Lag >= 0 {
		one.LagSeconds = new(int64(c.Lag / time.Second))
	}
}

// What is wanted to be stopped stands in annotations; what came of it, in status.pause.

// parseStoppedInstances returns the indexes of the instances to leave alone, and whether the annotation could be read. A
// list that cannot be read stops nothing.
func parseStoppedInstances(cluster *mocov1beta2.MySQLCluster) ([]int, bool) {
	text, asked := cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	if !asked {
		return nil, true
	}
	var list []int
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false // What was read before the mistake may be any instance.
	}
	return list, true
}

func describeIgnoredAnnotations(cluster *mocov1beta2.MySQLCluster) string {
	var wrong []string
	if _, ok := parseStoppedInstances(cluster); !ok {
		wrong = append(wrong, mocov1beta2.StoppedInstancesAnnotation+" is ignored: expected a JSON list of ordinals such as [1], found something else; correct it")
	}
	if _, ok := reconcile.ReadStopUntil(cluster); !ok {
		wrong = append(wrong, torporv1alpha1.UntilAnnotation+" is ignored: expected a time such as 2026-11-20T22:00:00Z, found something else; correct it")
	}
	return strings.Join(wrong, "; ")
}

// stopOverdueDuration is for how long something is stopped after the time until which it should have been, zero if nothing is.
func stopOverdueDuration(cluster *mocov1beta2.MySQLCluster, now time.Time) (overdue time.Duration, isOverdue bool) {
	_, stopsInstances := cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	until, _ := reconcile.ReadStopUntil(cluster)
	isStopped := cluster.ClusteringStopped() || cluster.ReconciliationStopped() || stopsInstances
	if until == nil || now.Before(until.Time) || !isStopped {
		return 0, false
	}
	return now.Sub(until.Time), true
}

// endStop removes the annotations of a stop, unless the object was changed meanwhile.
func (c Controller) endStop(ctx context.Context, cluster *mocov1beta2.MySQLCluster) error {
	// The patch requires the observed version, so that a stop is not ended that was prolonged meanwhile.
	after := cluster.DeepCopy()
	for _, name := range []string{
		mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.StoppedInstancesAnnotation,
		torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation,
	} {
		delete(after.Annotations, name)
	}
	if err := reconcile.PatchObserved(ctx, c.client, cluster, after, ""); err != nil {
		return fmt.Errorf("end the stop: %w", err)
	}
	return nil
}

// reportEndOfStop writes nothing into the status: what it says of the servers was not looked at in this pass.
func reportEndOfStop(cluster *mocov1beta2.MySQLCluster, plan clustering.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	event := decision.Event{Reason: clustering.EventStopEnded, Action: stopAction}
	event.Note = "The stop has ended by itself: it was until " + cluster.Annotations[torporv1alpha1.UntilAnnotation]
	if refused != nil {
		event.Warning, event.Reason = true, clustering.EventStopOverdue
		event.Note = "The stop should have ended, and could not be taken back: " + describeError(refused.Err) + "; take its annotations back"
	}
	return reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: reconcile.StaleCacheRetry, Events: []decision.Event{event}}
}

// stopRecord is the stop that was reached, nil while clustering goes on or quiesces.
func stopRecord(cluster *mocov1beta2.MySQLCluster) *clustering.StopRecord {
	p := cluster.Status.Pause
	if p == nil || p.Clustering == nil || p.Quiescing != "" {
		return nil
	}
	return &clustering.StopRecord{Since: p.Clustering.Since.Time, Unfinished: p.Unfinished}
}

// buildPause returns status.pause; of that, a stop of reconciliation is not this controller's.
func buildPause(cluster *mocov1beta2.MySQLCluster, plan clustering.Plan, now time.Time) *mocov1beta2.Pause {
	p := &mocov1beta2.Pause{}
	before := cluster.Status.Pause
	if before != nil {
		p.Reconciliation = before.Reconciliation
	}
	if cluster.ClusteringStopped() {
		p.Clustering = &mocov1beta2.Stop{
			Since: metav1.NewTime(now), By: reconcile.FieldManagerOf(cluster, mocov1beta2.ClusteringStoppedAnnotation),
			Reason: cluster.Annotations[torporv1alpha1.ReasonAnnotation],
		}
		p.Clustering.Until, _ = reconcile.ReadStopUntil(cluster)
		if before != nil && before.Clustering != nil { // A stop began when it was first seen, whatever is changed in it later.
			p.Clustering.Since = before.Clustering.Since
		}
		if plan.Stop == nil {
			p.Quiescing = plan.Why
		} else {
			p.Unfinished = plan.Stop.Unfinished
		}
	}
	if *p == (mocov1beta2.Pause{}) {
		return nil
	}
	return p
}

// rememberStatus keeps what upstream's schema drops and later passes decide by: which instance is the primary, and the stop.
func rememberStatus(cluster *mocov1beta2.MySQLCluster) map[string]any {
	remembered := map[string]any{}
	if p := cluster.Status.Pause; p != nil && p.Clustering != nil {
		remembered["pause"] = mocov1beta2.Pause{Clustering: p.Clustering, Quiescing: p.Quiescing, Unfinished: p.Unfinished}
	}
	if primary, chosen := cluster.Status.Primary(); chosen {
		remembered["instances"] = []mocov1beta2.InstanceStatus{{Ordinal: primary, Role: mocov1beta2.RolePrimary}}
	}
	return remembered
}
