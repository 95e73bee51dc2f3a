// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func clusterDeployments() Kind {
	return Kind{
		GVK:     hivev1.ClusterDeploymentKind(),
		New:     func() Object { return &hivev1.ClusterDeployment{} },
		NewList: func() List { return &hivev1.ClusterDeploymentList{} },
		ReadState: func(obj Object, now time.Time) State {
			if cd, ok := obj.(*hivev1.ClusterDeployment); ok {
				return readClusterDeployment(cd, now)
			}
			return State{}
		},
	}
}

func readClusterDeployment(cd *hivev1.ClusterDeployment, now time.Time) State {
	if cd.Status.Hibernation == nil { // The annotation exists under every schema, and costs more to read than the rest.
		cd = restoreStatus(cd)
	}
	s := State{
		IsStoppable:              cd.Spec.Installed && cd.DeletionTimestamp.IsZero(),
		IsStoppedWithoutSlumbers: hibernation.IsStoppedWithoutSlumbers(cd, now),
		ScheduledStops:           stoprecord.ListScheduled(cd.Status.ScheduledStops, cd.Annotations),
	}
	hibernating := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition)
	isOn := cd.Status.Hibernation == nil || cd.Status.Hibernation.ResumedAt != nil
	s.IsAsleep = hibernating != nil && hibernating.Status == metav1.ConditionTrue && hibernating.Reason == hivev1.HibernatingHibernationReason
	s.IsAwake = ready != nil && ready.Status == metav1.ConditionTrue && isOn
	if hibernating != nil && !s.IsAsleep && !s.IsAwake {
		s.Message = hibernating.Reason
		if hibernating.Status == metav1.ConditionFalse && ready != nil {
			s.Message = ready.Reason
		}
	}
	if hibernating != nil && hibernating.Status == metav1.ConditionFalse && hibernating.Reason == hivev1.UnsupportedHibernationReason {
		s.Message = hibernating.Reason + ": " + hibernating.Message // A Slumber waits for such a cluster in vain, whether it runs or not.
	}
	// A stop that ended by torpor.dev/until does not count as a resume, since that end does not ask for the hours
	// after it.
	if stops := cd.Status.Stops; len(stops) > 0 && stops[0].EndedAt != nil && !stops[0].Requested && stops[0].StartedBy != torporv1alpha1.UntilAnnotation {
		s.ResumedAt, s.ResumedBy = *stops[0].EndedAt, stops[0].StartedBy
	}
	return s
}
