// SPDX-License-Identifier: Apache-2.0

// Package stops keeps the records of what somebody has stopped of a MySQLCluster: clustering, reconciliation, and clustering of single
// instances. Each has annotations of its own; torpor.dev/until and torpor.dev/reason are about those that have no end or reason.
package stops

import (
	"encoding/json"
	"slices"
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
	Annotation stoprecord.AnnotationSwitch
	// until is the annotation that says when the stop ends.
	until string
	// Before are the records that the status has, and Records those that follow from what the annotations say now.
	Before, Records stoprecord.Records
	// IsOverdue says that the time of the stop is over and its annotation is still there, and IsEndSaved that the status names what is
	// about to end it. Only then may the annotation be removed: a manager that dies after that still knows why it was.
	IsOverdue, IsEndSaved bool
}

// Switches are those of a MySQLCluster.
type Switches struct {
	Clustering, Reconciliation, Instances Switch
}

// ClusteringSwitch stops failover, switchover and the repair of replication.
func ClusteringSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.ClusteringStoppedAnnotation,
		RequestedBy: mocov1beta2.ClusteringRequestedByAnnotation, RequestVersion: mocov1beta2.ClusteringRequestVersionAnnotation,
		Reason: mocov1beta2.ClusteringReasonAnnotation, Until: mocov1beta2.ClusteringUntilAnnotation,
	}
}

// ReconciliationSwitch keeps changes of the spec from other objects.
func ReconciliationSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.ReconciliationStoppedAnnotation,
		RequestedBy: mocov1beta2.ReconciliationRequestedByAnnotation, RequestVersion: mocov1beta2.ReconciliationRequestVersionAnnotation,
		Reason: mocov1beta2.ReconciliationReasonAnnotation, Until: mocov1beta2.ReconciliationUntilAnnotation,
	}
}

// InstancesSwitch keeps clustering from single instances.
func InstancesSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.StoppedInstancesAnnotation,
		RequestedBy: mocov1beta2.InstancesRequestedByAnnotation, RequestVersion: mocov1beta2.InstancesRequestVersionAnnotation,
		Reason: mocov1beta2.InstancesReasonAnnotation, Until: mocov1beta2.InstancesUntilAnnotation,
	}
}

// Read returns what the annotations say now, and the records of before.
func Read(cluster *mocov1beta2.MySQLCluster, now time.Time) Switches {
	instances, _ := ParseStoppedInstances(cluster)
	reader := reader{cluster, now}
	return Switches{
		Clustering:     reader.read(ClusteringSwitch(), cluster.ClusteringStopped(), cluster.Status.ClusteringStops),
		Reconciliation: reader.read(ReconciliationSwitch(), cluster.ReconciliationStopped(), cluster.Status.ReconciliationStops),
		Instances:      reader.read(InstancesSwitch(), len(instances) > 0, cluster.Status.InstanceStops),
	}
}

type reader struct {
	cluster *mocov1beta2.MySQLCluster
	now     time.Time
}

func (r reader) read(annotation stoprecord.AnnotationSwitch, isStopped bool, before stoprecord.Records) Switch {
	s := Switch{Annotation: annotation, until: annotation.UntilAnnotation(r.cluster.Annotations), Before: before}
	s.Records = stoprecord.NextRecords(before, annotation.ReadRequest(r.cluster, isStopped), r.now)
	newest := s.Records.RequestedStop()
	if newest == nil {
		return s
	}
	s.IsOverdue = s.Records.HasExpired()
	newest.EndedAt, newest.StartedBy = nil, ""
	// A status without the stop will not have its end either: something drops it, and the stop must end all the same.
	s.IsEndSaved = s.IsOverdue && (before.RequestedStop() == nil || s.Records.IsEndSavedIn(before))
	return s
}

// ParseStoppedInstances returns the indexes of the instances to leave alone, and whether the annotation could be read. A list that
// cannot be read stops nothing.
func ParseStoppedInstances(cluster *mocov1beta2.MySQLCluster) ([]int, bool) {
	return parseInstances(cluster.Annotations)
}

// HasStoppedInstances reports whether any instance is to be left alone.
func HasStoppedInstances(annotations map[string]string) bool {
	list, _ := parseInstances(annotations)
	return len(list) > 0
}

func parseInstances(annotations map[string]string) ([]int, bool) {
	text, asked := annotations[mocov1beta2.StoppedInstancesAnnotation]
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
	return stoprecord.Events(s.Before, s.Records, s.until, action)
}

// End returns the records after the annotations were removed of overdue stops whose end is saved. Those of other overdue stops say
// what is about to end them.
func (s Switch) End(now time.Time) stoprecord.Records {
	if s.IsEndSaved {
		newest := s.Records.RequestedStop()
		newest.EndedAt, newest.StartedBy, newest.Requested = new(metav1.NewTime(now)), torporv1alpha1.UntilAnnotation, false
	}
	return s.AnnounceEnd()
}

// AnnounceEnd returns the records of an overdue stop with what is about to end it.
func (s Switch) AnnounceEnd() stoprecord.Records {
	if newest := s.Records.RequestedStop(); newest != nil && s.IsOverdue {
		newest.StartedBy = torporv1alpha1.UntilAnnotation
	}
	return s.Records
}

// EndEvent reports the end of an overdue stop, or why it could not be ended.
func (s Switch) EndEvent(action, why string) decision.Event {
	if why != "" {
		return decision.Event{
			Warning: true, Reason: stoprecord.EventStopOverdue, Action: action,
			Note: "The stop should have ended, and could not be taken back: " + why + "; take its annotations back",
		}
	}
	return decision.Event{
		Reason: stoprecord.EventStopEnded, Action: action,
		Note: "The stop has ended by itself: it was until " + s.Records[0].Until.UTC().Format(time.RFC3339),
	}
}

func (s Switches) all() []Switch { return []Switch{s.Clustering, s.Reconciliation, s.Instances} }

// OverdueDuration is for how long a stop has outlived its time; of several, the one that did longest.
func (s Switches) OverdueDuration(now time.Time) time.Duration {
	var longest time.Duration
	for _, one := range s.all() {
		if one.IsOverdue {
			longest = max(longest, now.Sub(one.Records.RequestedStop().Until.Time))
		}
	}
	return longest
}

// NextEnd is when the next stop ends by itself; zero if none does.
func (s Switches) NextEnd() time.Time {
	var next time.Time
	for _, one := range s.all() {
		newest := one.Records.RequestedStop()
		if newest == nil || newest.Until == nil || one.IsOverdue {
			continue
		}
		if next.IsZero() || newest.Until.Time.Before(next) {
			next = newest.Until.Time
		}
	}
	return next
}

// ListEnding returns the annotations of the stops of clustering that have outlived their time, and may be removed; also whether nothing
// is stopped then.
func (s Switches) ListEnding() (annotations []string, areAll bool) {
	for _, one := range []Switch{s.Clustering, s.Instances} {
		if one.IsEndSaved {
			annotations = append(annotations, one.Annotation.Annotations()...)
		}
	}
	areAll = !slices.ContainsFunc(s.all(), func(one Switch) bool {
		return one.Records.RequestedStop() != nil && !slices.Contains(annotations, one.Annotation.Name)
	})
	return annotations, areAll
}

// ListLeftovers returns which of a MySQLCluster's annotations are about a single stop that nobody asks for any more.
func (s Switches) ListLeftovers(annotations map[string]string) []string {
	var left []string
	for _, one := range s.all() {
		if _, isAsked := annotations[one.Annotation.Name]; isAsked {
			continue
		}
		for _, name := range one.Annotation.Annotations() {
			if _, isThere := annotations[name]; isThere {
				left = append(left, name)
			}
		}
	}
	return left
}

// DescribeIgnored says which end of a stop is ignored, and why; empty if none is.
func (s Switches) DescribeIgnored() string {
	for _, one := range s.all() {
		if ignored := one.Records.DescribeIgnored(one.until); ignored != "" {
			return ignored
		}
	}
	return ""
}
