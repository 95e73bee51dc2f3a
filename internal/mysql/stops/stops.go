// SPDX-License-Identifier: Apache-2.0

// Package stops keeps the records of what somebody has stopped of a MySQLCluster: clustering, reconciliation, and clustering of single
// instances. Each has an annotation of its own; torpor.dev/until and torpor.dev/reason are about all of them.
package stops

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Switch is what is known of one switch. A stop does not end with its time but when its annotation is removed after that: a start of
// clustering may be refused.
type Switch struct {
	// Annotation stops something.
	Annotation string
	// Before are the records that the status has, and Records those that follow from what the annotations say now.
	Before, Records stoprecord.Records
	// IsOverdue says that the time of the stop is over and its annotation is still there.
	IsOverdue bool
}

// Switches are those of a MySQLCluster.
type Switches struct {
	Clustering, Reconciliation, Instances Switch
}

// Read returns what the annotations say now, and the records of before.
func Read(cluster *mocov1beta2.MySQLCluster, now time.Time) Switches {
	instances, _ := ParseStoppedInstances(cluster)
	reader := reader{cluster, now}
	all := Switches{
		Clustering: reader.read(stoprecord.AnnotationSwitch{
			Name:        mocov1beta2.ClusteringStoppedAnnotation,
			RequestedBy: mocov1beta2.ClusteringRequestedByAnnotation, RequestVersion: mocov1beta2.ClusteringRequestVersionAnnotation,
		}, cluster.ClusteringStopped(), cluster.Status.ClusteringStops),
		Reconciliation: reader.read(stoprecord.AnnotationSwitch{
			Name:        mocov1beta2.ReconciliationStoppedAnnotation,
			RequestedBy: mocov1beta2.ReconciliationRequestedByAnnotation, RequestVersion: mocov1beta2.ReconciliationRequestVersionAnnotation,
		}, cluster.ReconciliationStopped(), cluster.Status.ReconciliationStops),
		Instances: reader.read(stoprecord.AnnotationSwitch{
			Name:        mocov1beta2.StoppedInstancesAnnotation,
			RequestedBy: mocov1beta2.InstancesRequestedByAnnotation, RequestVersion: mocov1beta2.InstancesRequestVersionAnnotation,
		}, len(instances) > 0, cluster.Status.InstanceStops),
	}
	// It is the controller of clustering that removes the annotation, and that of reconciliation that keeps the record.
	if last := all.Reconciliation.Before.Newest(); last != nil && !cluster.ReconciliationStopped() && last.Until != nil && !now.Before(last.Until.Time) {
		all.Reconciliation.Records[0].StartedBy = torporv1alpha1.UntilAnnotation
	}
	return all
}

type reader struct {
	cluster *mocov1beta2.MySQLCluster
	now     time.Time
}

func (r reader) read(annotation stoprecord.AnnotationSwitch, isStopped bool, before stoprecord.Records) Switch {
	s := Switch{Annotation: annotation.Name, Before: before}
	s.Records = stoprecord.NextRecords(before, annotation.ReadRequest(r.cluster, isStopped), r.now)
	if s.Records.HasEnded() {
		newest := s.Records.Newest()
		s.IsOverdue, newest.EndedAt, newest.StartedBy = true, nil, ""
	}
	return s
}

// ParseStoppedInstances returns the indexes of the instances to leave alone, and whether the annotation could be read. A list that
// cannot be read stops nothing.
func ParseStoppedInstances(cluster *mocov1beta2.MySQLCluster) ([]int, bool) {
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

// Events are what has happened to the stop since the status was written.
func (s Switch) Events(action string) []decision.Event {
	return stoprecord.Events(s.Before, s.Records, action)
}

// End returns the records after the annotation of an overdue stop was removed.
func (s Switch) End(now time.Time) stoprecord.Records {
	if newest := s.Records.Newest(); s.IsOverdue {
		newest.EndedAt, newest.StartedBy, newest.Requested = new(metav1.NewTime(now)), torporv1alpha1.UntilAnnotation, false
	}
	return s.Records
}

func (s Switches) all() []Switch { return []Switch{s.Clustering, s.Reconciliation, s.Instances} }

// IsAnyOverdue reports whether the time of a stop is over.
func (s Switches) IsAnyOverdue() bool {
	return s.Clustering.IsOverdue || s.Reconciliation.IsOverdue || s.Instances.IsOverdue
}

// OverdueDuration is for how long a stop has outlived its time; of several, the one that did longest.
func (s Switches) OverdueDuration(now time.Time) time.Duration {
	var longest time.Duration
	for _, one := range s.all() {
		if one.IsOverdue {
			longest = max(longest, now.Sub(one.Records.Newest().Until.Time))
		}
	}
	return longest
}

// NextEnd is when the next stop ends by itself; zero if none does.
func (s Switches) NextEnd() time.Time {
	var next time.Time
	for _, one := range s.all() {
		newest := one.Records.Newest()
		if newest == nil || newest.Until == nil || one.IsOverdue {
			continue
		}
		if next.IsZero() || newest.Until.Time.Before(next) {
			next = newest.Until.Time
		}
	}
	return next
}

// ListOverdue returns the annotations that stop something after its time, and whether nothing else is stopped.
func (s Switches) ListOverdue() (annotations []string, areAll bool) {
	areAll = true
	for _, one := range s.all() {
		if one.IsOverdue {
			annotations = append(annotations, one.Annotation)
			continue
		}
		areAll = areAll && one.Records.Newest() == nil
	}
	return annotations, areAll
}

// DescribeIgnored says why torpor.dev/until is ignored; empty if it is not.
func (s Switches) DescribeIgnored() string {
	for _, one := range s.all() {
		if ignored := one.Records.DescribeIgnored(); ignored != "" {
			return ignored
		}
	}
	return ""
}
