// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// What was tried, as events say it.
const (
	clusterAction = "Cluster"
	stopAction    = "Stop"
)

// report writes the plan into the status and says what to emit once that is saved.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan, trouble string) reconcile.Outcome {
	primary := seen.Primary
	if do, ok := plan.Do.(clustering.PromoteInStatus); ok {
		primary = do.Index
		cluster.Status.CurrentPrimaryIndex = do.Index
	}
	status := &cluster.Status
	status.Cloned = status.Cloned || plan.SourceDone
	status.Pause = pause(cluster, plan, seen.Now)
	status.Instances = instances(seen, plan, primary)
	status.SyncedReplicas = plan.Synced
	if primary != clustering.NoInstance && primary < len(seen.Instances) && seen.Instances[primary].Reachable {
		status.SyncedReplicas++
	}
	status.ErrantReplicas, status.ErrantReplicaList = len(plan.Errant), plan.Errant
	c.setConditions(cluster, seen, plan)

	out := reconcile.Outcome{After: plan.After, Why: plan.Rule}
	if at, _ := reconcile.Until(cluster); at != nil && cluster.ClusteringStopped() {
		out.After = min(out.After, max(at.Sub(seen.Now), time.Millisecond))
	}
	if trouble == "" {
		for _, e := range plan.Events {
			out.Events = append(out.Events, reconcile.Event{Warning: e.Warning, Reason: e.Reason, Action: clusterAction, Note: e.Note})
		}
	}
	name := seen.crew.name
	failed := cmp.Or(trouble, seen.trouble) != ""
	took := c.Clock.Since(seen.began)
	out.Saved = func() { c.Metrics.count(name, out.Events, failed, took) }
	return out
}

func (c Controller) setConditions(cluster *mocov1beta2.MySQLCluster, seen *observation, plan clustering.Plan) {
	active := plan.ClusteringActive
	if wrong := misread(cluster); wrong != "" {
		active.Message += "; " + wrong
	}
	for _, owned := range []struct {
		kind string
		is   clustering.Condition
	}{
		{mocov1beta2.InitializedCondition, plan.Initialized},
		{mocov1beta2.AvailableCondition, explained(plan.Available, seen.trouble)},
		{mocov1beta2.HealthyCondition, explained(plan.Healthy, seen.trouble)},
		{mocov1beta2.ClusteringActiveCondition, active},
	} {
		reconcile.SetCondition(&cluster.Status.Conditions, metav1.Condition{
			Type: owned.kind, Status: owned.is.Status, Reason: owned.is.Reason, Message: owned.is.Message,
		}, cluster.Generation, c.Clock)
	}
}

// explained adds why instances could not be asked.
func explained(is clustering.Condition, trouble string) clustering.Condition {
	if is.Status != metav1.ConditionTrue && trouble != "" {
		is.Message += "; " + trouble
	}
	return is
}

// instances are the servers as they were seen.
func instances(seen *observation, plan clustering.Plan, primary int) []mocov1beta2.InstanceStatus {
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
			threads(&one, s.Channel)
		}
		list = append(list, one)
	}
	return list
}

func threads(one *mocov1beta2.InstanceStatus, c clustering.ReplicationChannel) {
	if !c.Present {
		return
	}
	words := map[clustering.ThreadState]string{clustering.Stopped: "No", clustering.Connecting: "Connecting", clustering.Running: "Yes"}
	one.IOThread, one.SQLThread = words[c.IO], words[c.SQL]
	if c.Lag >= 0 {
		one.LagSeconds = new(int64(c.Lag / time.Second))
	}
}
