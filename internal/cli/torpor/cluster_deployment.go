// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func clusterDeploymentKind() stoppableKind {
	return stoppableKind{
		gvk:         hivev1.ClusterDeploymentKind(),
		names:       []string{"clusterdeployment", "clusterdeployments", "cd"},
		addToScheme: hivev1.AddToScheme,
		newObject:   func() client.Object { return &hivev1.ClusterDeployment{} },
		newList:     func() client.ObjectList { return &hivev1.ClusterDeploymentList{} },
		describe:    restoreStatus(describeClusterDeployment),
		parts:       []string{machinesPart},
		stop: of(func(cd *hivev1.ClusterDeployment, _ string, _ time.Time) {
			cd.Spec.PowerState = hivev1.PowerStateHibernating
			removeSharedAnnotations(cd)
		}),
		start:         of(resumeClusterDeployment),
		annotationsOf: sharedAnnotations,
		plan:          planClusterDeployment,
	}
}

// resumeClusterDeployment resumes a cluster that hibernates by spec.powerState or by spec.hibernateAfter.
func resumeClusterDeployment(cd *hivev1.ClusterDeployment, _ string, now time.Time) {
	if record := cd.Status.Hibernation; sleepsByItself(cd) {
		if asleep := record.SleepStartedAt.Time; !now.After(asleep) { // This machine's clock is behind the manager's.
			now = asleep
		}
		setAnnotation(cd, hivev1.ResumeRequestedAtAnnotation, now.Add(time.Second).UTC().Format(time.RFC3339))
		return
	}
	cd.Spec.PowerState = hivev1.PowerStateRunning
	removeSharedAnnotations(cd)
}

func describeClusterDeployment(cd *hivev1.ClusterDeployment) []stopRow {
	stops := stoprecord.Records(cd.Status.Stops)
	isStopped := cd.Spec.PowerState == hivev1.PowerStateHibernating && !stops.HasExpired()
	r := newStopRow(hivev1.ClusterDeploymentKind(), cd, machinesPart, isStopped, stops)
	r = r.withScheduled(stoprecord.ListScheduled(cd.Status.ScheduledStops, cd.Annotations))
	r.conditions = cd.Status.Conditions
	r.State = cmp.Or(cd.Status.PowerState, "unknown")
	if ready := meta.FindStatusCondition(r.conditions, hivev1.ClusterReadyCondition); ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.startCommand())
	if record := cd.Status.Hibernation; !r.Stopped && sleepsByItself(cd) {
		r.Stopped, r.Since, r.By = true, &record.SleepStartedAt, record.RequestedBy
		r.Next = "resumes when the annotation " + hivev1.ResumeRequestedAtAnnotation + " has a later time, in RFC 3339"
	}
	if stalled := meta.FindStatusCondition(r.conditions, hivev1.ClusterStalledCondition); stalled != nil && stalled.Status == metav1.ConditionTrue {
		r.Next = stuckPrefix + stalled.Message
	}
	return []stopRow{r}
}

// sleepsByItself reports whether the cluster hibernates because of spec.hibernateAfter, which spec.powerState does not
// show.
func sleepsByItself(cd *hivev1.ClusterDeployment) bool {
	record := cd.Status.Hibernation
	return record != nil && record.PowerStateBefore != nil && *record.PowerStateBefore == cd.Spec.PowerState && record.ResumeStartedAt == nil && record.ResumedAt == nil
}
