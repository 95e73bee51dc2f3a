// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// stopAction is the action field of events about the end of a stop.
const stopAction = "Stop"

// report changes the status according to the plan, and returns the actions that follow after the status is saved.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	if seen.IsBeingDeleted {
		return reconcile.FollowUp{Rule: plan.Rule}
	}
	if _, ends := plan.Do.(clustering.EndStop); ends {
		return reportEndOfStop(cluster, seen, plan, refused)
	}
	primary := seen.Primary
	if do, promotes := plan.Do.(clustering.PromoteInStatus); promotes && refused == nil {
		primary = do.Index
		cluster.Status.CurrentPrimaryIndex = do.Index
	}
	status := &cluster.Status
	status.GuaranteedAcknowledgements = plan.GuaranteedAcks
	status.Cloned = status.Cloned || plan.SourceDone && refused == nil
	status.Pause = buildPause(cluster, plan, seen)
	status.ClusteringStops, status.InstanceStops = seen.switches.Clustering.Records, seen.switches.Instances.Records
	instances := buildInstanceStatuses(seen, plan, primary)
	conns := seen.clusterConns
	// While clustering is stopped, users work on the instances and need current values.
	isProgressOld := plan.Stop != nil || changesProtection(plan) || seen.Now.Sub(conns.progressSavedAt) >= progressInterval
	savesInstances := isProgressOld || !differOnlyInProgress(status.Instances, instances)
	if savesInstances {
		status.Instances = instances
	}
	status.SyncedReplicas = plan.Synced
	if primary != clustering.NoInstance && primary < len(seen.Instances) && seen.Instances[primary].Reachable {
		status.SyncedReplicas++ // status.syncedReplicas includes the primary.
	}
	status.ErrantReplicas, status.ErrantReplicaList = len(plan.Errant), plan.Errant
	active := meta.FindStatusCondition(status.Conditions, mocov1beta2.ClusteringActiveCondition)
	isToldAgain := plan.StartRefused && active != nil && active.Reason == plan.ClusteringActive.Reason && active.Message == plan.ClusteringActive.Message
	reconcile.SetConditions(&status.Conditions, ownedConditions(cluster, seen, plan), cluster.Generation, c.Clock)

	out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: nextLook(cluster, seen, plan)}
	out.Events = slices.Concat(seen.switches.Clustering.Events(stopAction), seen.switches.Instances.Events(stopAction))
	out.Changes = slices.Concat(seen.switches.Clustering.Changes("clustering"), seen.switches.Instances.Changes("instances"))
	if refused == nil && !isToldAgain {
		out.Events = append(out.Events, plan.Events...)
	}
	name := conns.name
	failed := refused != nil || seen.passwordProblem != ""
	took := c.Clock.Since(seen.startedAt)
	out.AfterSave = func() {
		c.Metrics.countPass(name, out.Events, failed, took)
		c.Metrics.showLook(name, seen, plan)
		if savesInstances {
			conns.progressSavedAt = seen.Now
		}
	}
	return out
}

// changesProtection reports whether the plan changes the protection of a Pod, usually because a replica has crossed the
// lag limit. The admission webhook reads the lag from the status when a Pod is evicted.
func changesProtection(plan clustering.Plan) bool {
	_, isChanged := plan.Do.(clustering.SetProtection)
	return isChanged
}

// nextLook returns the time until the next pass. The pass is not later than the end of a stop, because the regular pass
// of a stopped cluster may come long after that.
func nextLook(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan) time.Duration {
	after := plan.After
	if next := seen.switches.NextEnd(); !next.IsZero() {
		after = min(after, reconcile.DelayUntil(next, seen.Now))
	}
	if end := stoprecord.ScheduledEnd(cluster.Status.ScheduledStops, cluster.Annotations, seen.Now); !end.IsZero() {
		after = min(after, end.Sub(seen.Now))
	}
	return after
}

func ownedConditions(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan) map[string]decision.Condition {
	active := plan.ClusteringActive
	if wrong := describeIgnoredAnnotations(cluster, seen.switches); wrong != "" {
		active.Message += "; " + wrong
	}
	plan.Available.Message += mysqlswitches.DescribeScheduled(cluster, seen.Now)
	return map[string]decision.Condition{
		mocov1beta2.InitializedCondition:      plan.Initialized,
		mocov1beta2.AvailableCondition:        withPasswordProblem(plan.Available, seen.passwordProblem),
		mocov1beta2.HealthyCondition:          withPasswordProblem(plan.Healthy, seen.passwordProblem),
		mocov1beta2.ClusteringActiveCondition: active,
	}
}

// withPasswordProblem adds the last error about a Secret or a connection to the message of a condition that is not
// True.
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
		one := mocov1beta2.InstanceStatus{Ordinal: i, Stopped: s.Stopped, Message: found.Problem, DiscardedGTIDs: found.Discarded.String()}
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

// progressInterval is how often the transactions in the status are updated if nothing else changes. Without this
// interval, every pass of a busy cluster would write the status, and every watcher would receive the update.
const progressInterval = time.Minute

// differOnlyInProgress reports whether at most the executed transactions and the lag of the instances differ.
func differOnlyInProgress(before, after []mocov1beta2.InstanceStatus) bool {
	return slices.EqualFunc(before, after, func(a, b mocov1beta2.InstanceStatus) bool {
		a.ExecutedGTIDs, a.LagSeconds = b.ExecutedGTIDs, b.LagSeconds
		return equality.Semantic.DeepEqual(a, b)
	})
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

// Annotations request a stop; status.pause reports the result.

func describeIgnoredAnnotations(cluster *mocov1beta2.MySQLCluster, switches mysqlswitches.Switches) string {
	var wrong []string
	if _, ok := mysqlswitches.ParseStoppedInstances(cluster); !ok {
		wrong = append(wrong, mocov1beta2.StoppedInstancesAnnotation+" is ignored: expected a JSON list of ordinals such as [1], found another value; correct the annotation")
	}
	if _, isAsked := cluster.Annotations[mocov1beta2.RotationAnnotation]; isAsked && cluster.Spec.SourceSecretName() != "" {
		wrong = append(wrong, mocov1beta2.RotationAnnotation+" waits: the passwords of a copy of another server cannot be changed; remove spec.replicationSourceSecretName")
	}
	if ignored := switches.DescribeIgnored(); ignored != "" {
		wrong = append(wrong, ignored)
	}
	return strings.Join(wrong, "; ")
}

func isStopped(cluster *mocov1beta2.MySQLCluster) bool {
	_, stopsInstances := cluster.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	return cluster.ClusteringStopped() || cluster.ReconciliationStopped() || stopsInstances
}

// leftoverAnnotations returns the annotations that only add details to a stop or a start, such as the reason and the
// end of a stop.
func leftoverAnnotations() []string {
	return []string{
		torporv1alpha1.UntilAnnotation, torporv1alpha1.UntilNotedAnnotation, torporv1alpha1.ReasonAnnotation, mocov1beta2.ForceStartAnnotation, mocov1beta2.LookRequestedAnnotation,
	}
}

// listLeftovers returns the annotations of a finished stop that are still present.
func listLeftovers(cluster *mocov1beta2.MySQLCluster, switches mysqlswitches.Switches) []string {
	if stopRecord(cluster) != nil {
		return nil
	}
	left := switches.ListLeftovers(cluster.Annotations)
	if isStopped(cluster) {
		return left
	}
	for _, name := range leftoverAnnotations() {
		if _, isThere := cluster.Annotations[name]; isThere {
			left = append(left, name)
		}
	}
	return left
}

// listEnding returns the annotations of the stops whose end time has passed. It returns none until the status has
// recorded that.
func listEnding(switches mysqlswitches.Switches) []string {
	annotations, areAll := switches.ListEnding()
	if len(annotations) > 0 && areAll {
		annotations = append(annotations, leftoverAnnotations()...)
	}
	return annotations
}

// removeAnnotations removes annotations, unless the object has changed since it was observed.
func (c Controller) removeAnnotations(ctx context.Context, cluster *mocov1beta2.MySQLCluster, names []string) error {
	if len(names) == 0 {
		return nil
	}
	// The patch requires the observed resource version, so a stop that was extended in the meantime is not removed.
	after := cluster.DeepCopy()
	for _, name := range names {
		delete(after.Annotations, name)
	}
	if err := reconcile.PatchObserved(ctx, c.client, cluster, after, ""); err != nil {
		return fmt.Errorf("remove annotations: %w", err)
	}
	return nil
}

// reportEndOfStop writes only the stop records into the status, because the servers may not have been observed in this
// pass.
func reportEndOfStop(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: reconcile.StaleCacheRetry}
	clusteringStop, instancesStop := seen.switches.Clustering, seen.switches.Instances
	why := ""
	if refused != nil {
		why = describeError(refused.Err)
	}
	for _, one := range []mysqlswitches.Switch{clusteringStop, instancesStop} {
		if one.IsEndSaved {
			out.Events = append(out.Events, one.EndEvent(stopAction, why))
		}
	}
	if refused == nil {
		cluster.Status.ClusteringStops, cluster.Status.InstanceStops = clusteringStop.End(seen.startedAt), instancesStop.End(seen.startedAt)
	} else {
		cluster.Status.ClusteringStops, cluster.Status.InstanceStops = clusteringStop.AnnounceEnd(), instancesStop.AnnounceEnd()
	}
	return out
}

// stopRecord returns the record of a reached stop, or nil while clustering is active or is being stopped.
func stopRecord(cluster *mocov1beta2.MySQLCluster) *clustering.StopRecord {
	p := cluster.Status.Pause
	if p == nil || p.Clustering == nil || p.Quiescing != "" {
		return nil
	}
	return &clustering.StopRecord{Since: p.Clustering.Since.Time, Unfinished: p.Unfinished}
}

// buildPause returns status.pause. The provisioning controller owns its field reconciliation, which is not changed.
func buildPause(cluster *mocov1beta2.MySQLCluster, plan clustering.Plan, seen *observation) *mocov1beta2.Pause {
	p := &mocov1beta2.Pause{}
	before := mocov1beta2.Pause{}
	if cluster.Status.Pause != nil {
		before = *cluster.Status.Pause
		p.Reconciliation = before.Reconciliation
	}
	asked := seen.switches.Clustering.Records.RequestedStop()
	switch {
	case asked != nil:
		p.Clustering = &mocov1beta2.Stop{
			Since: metav1.NewTime(seen.Now), By: asked.By, Reason: asked.Reason, Until: asked.Until,
		}
		if before.Clustering != nil { // The start time of a stop is the time of its first observation, even if the stop is changed later.
			p.Clustering.Since = before.Clustering.Since
		}
	case plan.Stop != nil && before.Clustering != nil: // The stop was withdrawn, but the start is refused.
		p.Clustering = before.Clustering.DeepCopy()
		p.Clustering.Until = nil
	}
	switch {
	case plan.Stop != nil:
		p.Unfinished = plan.Stop.Unfinished
		p.ObservedAt, p.LookRequest = new(metav1.NewTime(seen.startedAt)), cluster.Annotations[mocov1beta2.LookRequestedAnnotation]
		p.State = string(plan.State)
		for _, f := range plan.StartFindings {
			p.StartFindings = append(p.StartFindings, mocov1beta2.StartFinding{Severity: string(f.Severity), Message: f.Message, Remedy: f.Remedy})
		}
	case p.Clustering != nil:
		p.Quiescing = plan.Why
	}
	if p.Clustering == nil && p.Reconciliation == nil {
		return nil
	}
	return p
}

// rememberStatus returns the fields that later passes need and that MOCO's schema drops: the index of the primary, the
// number of replicas that have every commit, the discarded transactions, and the stops.
func rememberStatus(cluster *mocov1beta2.MySQLCluster) map[string]any {
	remembered := map[string]any{}
	if p := cluster.Status.Pause; p != nil && p.Clustering != nil {
		without := *p
		without.Reconciliation = nil // The provisioning controller writes and stores this field.
		remembered["pause"] = without
	}
	if len(cluster.Status.ClusteringStops) > 0 {
		remembered["clusteringStops"] = cluster.Status.ClusteringStops
	}
	if len(cluster.Status.InstanceStops) > 0 {
		remembered["instanceStops"] = cluster.Status.InstanceStops
	}
	if acks := cluster.Status.GuaranteedAcknowledgements; acks != nil {
		remembered["guaranteedAcknowledgements"] = *acks
	}
	var instances []mocov1beta2.InstanceStatus
	for _, i := range cluster.Status.Instances {
		if i.Role == mocov1beta2.RolePrimary || i.DiscardedGTIDs != "" {
			instances = append(instances, mocov1beta2.InstanceStatus{Ordinal: i.Ordinal, Role: i.Role, DiscardedGTIDs: i.DiscardedGTIDs})
		}
	}
	if instances != nil {
		remembered["instances"] = instances
	}
	return remembered
}
