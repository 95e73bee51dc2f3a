// SPDX-License-Identifier: Apache-2.0

package switches_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
)

func fixedTime() time.Time { return time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC) }

// story simulates a MySQLCluster whose status is written after each pass.
type story struct {
	cluster *mocov1beta2.MySQLCluster
	now     time.Time
}

func newStory(annotations map[string]string) *story {
	s := &story{cluster: &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}, now: fixedTime()}
	s.annotate(annotations)
	return s
}

// annotate sets annotations at the story's current time, and removes those with an empty value.
func (s *story) annotate(annotations map[string]string) {
	for name, value := range annotations {
		s.cluster.ManagedFields = slices.DeleteFunc(s.cluster.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return strings.Contains(e.FieldsV1.GetRawString(), `"f:`+name+`"`)
		})
		if delete(s.cluster.Annotations, name); value == "" {
			continue
		}
		s.cluster.Annotations[name] = value
		fields := &metav1.FieldsV1{}
		fields.SetRawString(`{"f:metadata":{"f:annotations":{"f:` + name + `":{}}}}`)
		s.cluster.ManagedFields = append(s.cluster.ManagedFields, metav1.ManagedFieldsEntry{Manager: "some-program", Time: new(metav1.NewTime(s.now)), FieldsV1: fields})
	}
}

func (s *story) look() mysqlswitches.Switches {
	seen := mysqlswitches.Read(s.cluster, s.now)
	s.cluster.Status.ClusteringStops, s.cluster.Status.ReconciliationStops, s.cluster.Status.InstanceStops = seen.Clustering.Records, seen.Reconciliation.Records, seen.Instances.Records
	return seen
}

// announceEnd saves the announced end in the status, and runs another pass.
func (s *story) announceEnd() mysqlswitches.Switches {
	seen := mysqlswitches.Read(s.cluster, s.now)
	s.cluster.Status.ClusteringStops, s.cluster.Status.ReconciliationStops, s.cluster.Status.InstanceStops = seen.Clustering.AnnounceEnd(), seen.Reconciliation.AnnounceEnd(), seen.Instances.AnnounceEnd()
	return mysqlswitches.Read(s.cluster, s.now)
}

// TestStopEndsWithoutARecordInTheStatus covers a stop whose record is dropped from the status.
func TestStopEndsWithoutARecordInTheStatus(t *testing.T) {
	s := newStory(map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: "1h"})
	s.now = s.now.Add(2 * time.Hour)
	found := mysqlswitches.Read(s.cluster, s.now)
	if ending, areAll := found.ListEnding(); len(ending) != 4 || !areAll {
		t.Errorf("expected the stop to end although the status does not say so, found %v", ending)
	}
}

func TestSwitchesHaveRecordsOfTheirOwn(t *testing.T) {
	s := newStory(map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", mocov1beta2.ClusteringRequestedByAnnotation: "alice", mocov1beta2.ClusteringRequestVersionAnnotation: "1",
		torporv1alpha1.UntilAnnotation: "8h",
	})
	s.look()
	s.now = s.now.Add(time.Hour)
	s.annotate(map[string]string{
		mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.StoppedInstancesAnnotation: "[1]", torporv1alpha1.UntilAnnotation: "8h",
		mocov1beta2.InstancesRequestedByAnnotation: "carol", mocov1beta2.InstancesRequestVersionAnnotation: "2",
	})
	found := s.look()
	if by := found.Clustering.Records[0].By; by != "alice" {
		t.Errorf("expected alice to have stopped clustering, found %q", by)
	}
	if by := found.Reconciliation.Records[0].By; by != "unknown (field manager some-program)" {
		t.Errorf("expected a stop of reconciliation that nobody noted, found %q", by)
	}
	if by := found.Instances.Records[0].By; by != "carol" {
		t.Errorf("expected carol to have stopped an instance, found %q", by)
	}
	if end := found.NextEnd(); !end.Equal(fixedTime().Add(8 * time.Hour)) {
		t.Errorf("expected the end of the first stop next, found %s", end)
	}

	s.now = fixedTime().Add(8*time.Hour + time.Minute)
	found = s.look()
	if ending, _ := found.ListEnding(); len(ending) > 0 || !found.Clustering.IsOverdue || found.Instances.IsOverdue {
		t.Errorf("expected that clustering alone is over, and ends once that is saved, found %v", ending)
	}
	if late := found.OverdueDuration(s.now); late != time.Minute {
		t.Errorf("expected a minute, found %s", late)
	}
	if stop := found.Clustering.Records[0]; stop.EndedAt != nil || !stop.Requested {
		t.Errorf("expected a stop that has not ended while its annotation is there, found %+v", stop)
	}
	if end := found.NextEnd(); !end.Equal(fixedTime().Add(9 * time.Hour)) {
		t.Errorf("expected the end of the others next, found %s", end)
	}
	found = s.announceEnd()
	ending, areAll := found.ListEnding()
	if diff := cmp.Diff(mysqlswitches.ClusteringSwitch().Annotations(), ending); diff != "" || areAll {
		t.Errorf("expected that clustering alone ends, and others go on: %t, %s", areAll, diff)
	}
	if ended := found.Clustering.End(s.now)[0]; ended.StartedBy != torporv1alpha1.UntilAnnotation || !ended.EndedAt.Time.Equal(s.now) || ended.Requested {
		t.Errorf("found %+v", ended)
	}

	s.now = fixedTime().Add(10 * time.Hour)
	if ending, areAll = s.announceEnd().ListEnding(); len(ending) != 8 || areAll {
		t.Errorf("expected the two of clustering to end before reconciliation has, found %v", ending)
	}
	s.annotate(map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: ""})
	if ending, areAll = s.announceEnd().ListEnding(); len(ending) != 8 || !areAll {
		t.Errorf("expected that nothing is stopped then, found %v", ending)
	}
}

// TestSwitchesHaveEndsAndReasonsOfTheirOwn sets a shared end and reason, and different ones for one of the stops.
func TestSwitchesHaveEndsAndReasonsOfTheirOwn(t *testing.T) {
	s := newStory(map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.StoppedInstancesAnnotation: "[1]",
		torporv1alpha1.UntilAnnotation: "8h", torporv1alpha1.ReasonAnnotation: "a change of disks",
		mocov1beta2.ClusteringUntilAnnotation: "1h", mocov1beta2.ClusteringReasonAnnotation: "a backup", mocov1beta2.InstancesUntilAnnotation: "tomorrow",
	})
	found := s.look()
	for _, row := range []struct {
		found  mysqlswitches.Switch
		after  time.Duration
		reason string
	}{{found.Clustering, time.Hour, "a backup"}, {found.Reconciliation, 8 * time.Hour, "a change of disks"}, {found.Instances, 0, "a change of disks"}} {
		stop := row.found.Records[0]
		if hasEnd := stop.Until != nil; hasEnd != (row.after > 0) || hasEnd && !stop.Until.Time.Equal(fixedTime().Add(row.after)) || stop.Reason != row.reason {
			t.Errorf("expected %s for %s because of %s, found %+v", row.found.Annotation.Name, row.after, row.reason, stop)
		}
	}
	if told := found.DescribeIgnored(); !strings.HasPrefix(told, mocov1beta2.InstancesUntilAnnotation+" is ignored") {
		t.Errorf("expected the annotation that is wrong to be named, found %q", told)
	}

	s.now = fixedTime().Add(2 * time.Hour)
	ending, areAll := s.announceEnd().ListEnding()
	if diff := cmp.Diff(mysqlswitches.ClusteringSwitch().Annotations(), ending); diff != "" || areAll {
		t.Errorf("expected clustering alone to end with what is said of it, found that all do: %t, %s", areAll, diff)
	}

	s.annotate(map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "", mocov1beta2.InstancesUntilAnnotation: "3h"})
	want := []string{mocov1beta2.ClusteringReasonAnnotation, mocov1beta2.ClusteringUntilAnnotation}
	if diff := cmp.Diff(want, s.look().ListLeftovers(s.cluster.Annotations)); diff != "" {
		t.Errorf("expected the leftovers of the ended stop: %s", diff)
	}
	s.annotate(map[string]string{mocov1beta2.StoppedInstancesAnnotation: "1"})
	if diff := cmp.Diff(want, s.look().ListLeftovers(s.cluster.Annotations)); diff != "" {
		t.Errorf("expected the end of a stop that is written wrongly to stay: %s", diff)
	}
}

// TestTheEndIsSavedBeforeTheStopEnds moves the end to a time that passes before the next pass, and does not save the
// status after the annotations are removed.
func TestTheEndIsSavedBeforeTheStopEnds(t *testing.T) {
	s := newStory(map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", mocov1beta2.ReconciliationStoppedAnnotation: "true", mocov1beta2.StoppedInstancesAnnotation: "[1]",
		torporv1alpha1.UntilAnnotation: "48h",
	})
	s.look()
	s.now = s.now.Add(time.Hour)
	s.annotate(map[string]string{torporv1alpha1.UntilAnnotation: "1h"})
	s.now = s.now.Add(2 * time.Hour)
	found := mysqlswitches.Read(s.cluster, s.now)
	for _, one := range []mysqlswitches.Switch{found.Clustering, found.Reconciliation, found.Instances} {
		if !one.IsOverdue || one.IsEndSaved {
			t.Errorf("expected an end of %s that is not saved yet, found %+v", one.Annotation.Name, one)
		}
	}
	s.announceEnd()
	s.annotate(map[string]string{torporv1alpha1.UntilAnnotation: "24h"})
	if found = mysqlswitches.Read(s.cluster, s.now); found.Clustering.IsOverdue || found.Clustering.IsEndSaved || found.Clustering.Records[0].StartedBy != "" {
		t.Errorf("expected a stop that was extended in between to hold, found %+v", found.Clustering)
	}
	s.now = s.now.Add(25 * time.Hour)
	found = s.announceEnd()
	s.now = s.now.Add(time.Minute)
	s.annotate(map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "", mocov1beta2.ReconciliationStoppedAnnotation: "", mocov1beta2.StoppedInstancesAnnotation: "", torporv1alpha1.UntilAnnotation: ""})
	after := mysqlswitches.Read(s.cluster, s.now)
	for i, one := range []mysqlswitches.Switch{after.Clustering, after.Reconciliation, after.Instances} {
		isSaved := []mysqlswitches.Switch{found.Clustering, found.Reconciliation, found.Instances}[i].IsEndSaved
		if stop := one.Records[0]; !isSaved || stop.StartedBy != torporv1alpha1.UntilAnnotation || stop.RequestedUntil != "24h" || stop.EndedAt == nil || stop.Requested {
			t.Errorf("expected %s to have ended by its time, found %t and %+v", one.Annotation.Name, isSaved, stop)
		}
	}
}

func TestTheUserOfAStartIsRecorded(t *testing.T) {
	for name, row := range map[string]struct {
		until, by, want string
		after           time.Duration
	}{
		"start by a known user: bob is recorded":                               {"", "bob", "bob", time.Hour},
		"start by an unknown user: unknown is recorded":                        {"", "", "unknown", time.Hour},
		"start by a user before the end time: bob is recorded":                 {"8h", "bob", "bob", time.Hour},
		"start by a user after an end time that is not saved: bob is recorded": {"8h", "bob", "bob", 8 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: row.until})
			s.look()
			s.now = s.now.Add(row.after)
			s.annotate(map[string]string{
				mocov1beta2.ReconciliationStoppedAnnotation: "", torporv1alpha1.UntilAnnotation: "",
				mocov1beta2.ReconciliationRequestedByAnnotation: row.by, mocov1beta2.ReconciliationRequestVersionAnnotation: "7",
			})
			s.look()
			stop := s.look().Reconciliation.Records[0]
			if stop.StartedBy != row.want || !stop.EndedAt.Time.Equal(s.now) || stop.Requested {
				t.Errorf("expected an end by %s, found %+v", row.want, stop)
			}
		})
	}
}

func TestIgnoredUntilIsReported(t *testing.T) {
	for until, words := range map[string]string{"tomorrow": `found "tomorrow"`, "2026-11-23T08:00:00Z": "which an earlier stop left behind", "2026-11-23T18:00:00Z": "", "9h": ""} {
		s := newStory(map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[0]", torporv1alpha1.UntilAnnotation: until})
		found := s.look()
		if told := found.DescribeIgnored(); !strings.Contains(told, words) || (words == "") != (told == "") {
			t.Errorf("%s: expected %q, found %q", until, words, told)
		}
		if events := found.Instances.Events("Stop"); (len(events) == 2) != (words != "") { // The other event reports the unknown requester.
			t.Errorf("%s: found %+v", until, events)
		}
	}
}

func TestParseStoppedInstances(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []int
		understood  bool
	}{
		"no annotation: no instance is stopped":         {nil, nil, true},
		"a list of two ordinals stops both instances":   {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[0,2]"}, []int{0, 2}, true},
		"an empty list stops nothing":                   {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[]"}, []int{}, true},
		"a value that is not a list stops nothing":      {map[string]string{mocov1beta2.StoppedInstancesAnnotation: "1"}, nil, false},
		"a list with one invalid element stops nothing": {map[string]string{mocov1beta2.StoppedInstancesAnnotation: `["1",2]`}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			got, understood := mysqlswitches.ParseStoppedInstances(cluster)
			if diff := cmp.Diff(test.want, got); diff != "" || understood != test.understood {
				t.Errorf("(-want +got), understood: want %t, got %t:\n%s", test.understood, understood, diff)
			}
			if has := mysqlswitches.HasStoppedInstances(test.annotations); has != (len(test.want) > 0) {
				t.Errorf("expected it to be said that instances are stopped only where one is, found %t", has)
			}
		})
	}
}
