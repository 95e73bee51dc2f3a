// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Schedules are the Slumbers and ClusterSlumbers that may stop objects in the given namespaces.
type Schedules struct{ all []reachingSchedule }

// reachingSchedule is a Slumber, or the view of a ClusterSlumber with its reach.
type reachingSchedule struct {
	slumber *torporv1alpha1.Slumber
	reach   *Reach
}

// NewSchedules returns the schedules that may stop objects in the namespaces. It omits those that are suspended or
// being deleted, and ClusterSlumbers with an invalid namespaceSelector.
func NewSchedules(slumbers []torporv1alpha1.Slumber, ofCluster []torporv1alpha1.ClusterSlumber, namespaces []metav1.PartialObjectMetadata) Schedules {
	var s Schedules
	for i := range slumbers {
		if one := &slumbers[i]; !one.Spec.Suspend && one.DeletionTimestamp.IsZero() {
			s.all = append(s.all, reachingSchedule{slumber: one})
		}
	}
	for i := range ofCluster {
		one := &ofCluster[i]
		if one.Spec.Suspend || !one.DeletionTimestamp.IsZero() {
			continue
		}
		if reach, err := NewReach(one, namespaces, slumbers); err == nil {
			s.all = append(s.all, reachingSchedule{ViewOf(one), reach})
		}
	}
	return s
}

// FindFor returns the Slumbers and the views of ClusterSlumbers that may stop an object: the Slumbers of its namespace
// that select it, or otherwise the ClusterSlumbers.
func (s Schedules) FindFor(kind schema.GroupKind, o metav1.Object) (found []*torporv1alpha1.Slumber) {
	for _, one := range s.all {
		if one.reach == nil && one.slumber.Namespace != o.GetNamespace() {
			continue
		}
		if wave, err := one.reach.FindWave(one.slumber, kind, o); err == nil && wave >= 0 {
			found = append(found, one.slumber)
		}
	}
	return found
}

// EndOfSleep returns the latest end of the current or next sleep among the schedules that may stop an object, or zero
// if there is none.
func (s Schedules) EndOfSleep(kind schema.GroupKind, o metav1.Object, now time.Time) (end time.Time) {
	for _, one := range s.FindFor(kind, o) {
		if found := endOfSleep(one, now); found.After(end) {
			end = found
		}
	}
	return end
}

// endOfSleep returns the end of the current or the next sleep, or zero if none exists.
func endOfSleep(s *torporv1alpha1.Slumber, now time.Time) time.Time {
	schedule, err := ParseSchedule(s.Spec)
	if err != nil {
		return time.Time{} // The Slumber's own status reports the error.
	}
	return schedule.FindEndOfSleep(now)
}
