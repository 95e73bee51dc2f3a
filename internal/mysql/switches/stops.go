// SPDX-License-Identifier: Apache-2.0

// Package switches computes the stop records of a MySQLCluster from its annotations. Users can stop clustering,
// reconciliation, and the clustering of single instances. Each of these stops has its own annotations. torpor.dev/until
// and torpor.dev/reason apply to stops without an end or reason of their own.
package switches

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Switch describes one kind of stop of a cluster. A stop with an end time ends when its annotation is removed after
// that time, not at the time itself, because the start of clustering may be refused.
type Switch struct {
	Annotation stoprecord.AnnotationSwitch
	// until is the annotation that contains the end of the stop.
	until string
	// Before holds the stop records in the status. Records holds the stop records for the current annotations.
	Before, Records stoprecord.Records
	// IsOverdue means that the end time of the stop has passed and the stop's annotation still exists. IsEndSaved means
	// that the status already records why the stop ends. The annotation may be removed only then. Otherwise the reason
	// would be lost if the manager restarted after the removal.
	IsOverdue, IsEndSaved bool
}

// Switches holds the switches of a MySQLCluster.
type Switches struct {
	Clustering, Reconciliation, Instances Switch
}

// ClusteringSwitch returns the annotations that stop failovers, switchovers and the repair of replication.
func ClusteringSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.ClusteringStoppedAnnotation,
		RequestedBy: mocov1beta2.ClusteringRequestedByAnnotation, RequestVersion: mocov1beta2.ClusteringRequestVersionAnnotation,
		Reason: mocov1beta2.ClusteringReasonAnnotation, Until: mocov1beta2.ClusteringUntilAnnotation,
	}
}

// ReconciliationSwitch returns the annotations that stop the application of spec changes to other objects.
func ReconciliationSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.ReconciliationStoppedAnnotation,
		RequestedBy: mocov1beta2.ReconciliationRequestedByAnnotation, RequestVersion: mocov1beta2.ReconciliationRequestVersionAnnotation,
		Reason: mocov1beta2.ReconciliationReasonAnnotation, Until: mocov1beta2.ReconciliationUntilAnnotation,
	}
}

// InstancesSwitch returns the annotations that stop clustering for single instances.
func InstancesSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        mocov1beta2.StoppedInstancesAnnotation,
		RequestedBy: mocov1beta2.InstancesRequestedByAnnotation, RequestVersion: mocov1beta2.InstancesRequestVersionAnnotation,
		Reason: mocov1beta2.InstancesReasonAnnotation, Until: mocov1beta2.InstancesUntilAnnotation,
	}
}

// Read returns the switches for the current annotations and the records in the status.
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
	// If the status does not contain the stop, another writer removes the record, and would remove the reason for the
	// end too. The stop must end nevertheless.
	s.IsEndSaved = s.IsOverdue && (before.RequestedStop() == nil || s.Records.IsEndSavedIn(before))
	return s
}

// ParseStoppedInstances returns the indexes of the instances for which clustering is stopped, and whether the
// annotation could be parsed. An invalid list does not stop any instance.
func ParseStoppedInstances(cluster *mocov1beta2.MySQLCluster) ([]int, bool) {
	return parseInstances(cluster.Annotations)
}

// HasStoppedInstances reports whether clustering is stopped for any single instance.
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
		return nil, false // Elements that were parsed before the error may be wrong too.
	}
	return list, true
}

// Events returns the events of the stop since the last write of the status.
func (s Switch) Events(action string) []decision.Event {
	return stoprecord.Events(s.Before, s.Records, s.until, action)
}

// Changes returns the changes to the part's stop request since the last write of the status.
func (s Switch) Changes(part string) []decision.Change {
	return stoprecord.Changes(part, s.Before, s.Records)
}

// End returns the records after the annotations of overdue stops were removed. If IsEndSaved is true, the stop has
// ended. If the stop is only overdue, its record contains why it will end.
func (s Switch) End(now time.Time) stoprecord.Records {
	if s.IsEndSaved {
		newest := s.Records.RequestedStop()
		newest.EndedAt, newest.StartedBy, newest.Requested = new(metav1.NewTime(now)), torporv1alpha1.UntilAnnotation, false
	}
	return s.AnnounceEnd()
}

// AnnounceEnd returns the records. The record of an overdue stop contains why the stop will end.
func (s Switch) AnnounceEnd() stoprecord.Records {
	if newest := s.Records.RequestedStop(); newest != nil && s.IsOverdue {
		newest.StartedBy = torporv1alpha1.UntilAnnotation
	}
	return s.Records
}

// EndEvent returns the event for the end of an overdue stop, or a warning if why contains the reason why the stop could
// not be ended.
func (s Switch) EndEvent(action, why string) decision.Event {
	if why != "" {
		return decision.Event{
			Warning: true, Reason: stoprecord.EventStopOverdue, Action: action,
			Note: "The stop should have ended, but its annotations could not be removed: " + why + "; remove these annotations",
		}
	}
	return decision.Event{
		Reason: stoprecord.EventStopEnded, Action: action,
		Note: "The stop has ended by itself: its end was " + s.Records[0].Until.UTC().Format(time.RFC3339),
	}
}

func (s Switches) all() []Switch { return []Switch{s.Clustering, s.Reconciliation, s.Instances} }

// OverdueDuration returns how long a stop has been overdue. If several stops are overdue, it returns the longest time.
func (s Switches) OverdueDuration(now time.Time) time.Duration {
	var longest time.Duration
	for _, one := range s.all() {
		if one.IsOverdue {
			longest = max(longest, now.Sub(one.Records.RequestedStop().Until.Time))
		}
	}
	return longest
}

// NextEnd returns the earliest end time of the stops that are not overdue, or the zero time if none of them has an end
// time.
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

// ListEnding returns the annotations of overdue stops of clustering, or of clustering of single instances, that may be
// removed. The second result reports whether nothing remains stopped after the removal.
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

// ListLeftovers returns the annotations that describe a stop, such as its reason, although the annotation that requests
// the stop is missing.
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

// DescribeIgnored returns the first end time that is ignored, with the reason, or "" if no end time is ignored.
func (s Switches) DescribeIgnored() string {
	for _, one := range s.all() {
		if ignored := one.Records.DescribeIgnored(one.until); ignored != "" {
			return ignored
		}
	}
	return ""
}
