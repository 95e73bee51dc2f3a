// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/requester"
)

const (
	by, version   = torporv1alpha1.RequestedByAnnotation, torporv1alpha1.RequestVersionAnnotation
	until, noted  = torporv1alpha1.UntilAnnotation, torporv1alpha1.UntilNotedAnnotation
	skip          = torporv1alpha1.SkipUntilAnnotation
	skipNoted     = torporv1alpha1.SkipUntilNotedAnnotation
	reason        = torporv1alpha1.ReasonAnnotation
	stopped       = torporv1alpha1.StoppedAnnotation
	record, saved = torporv1alpha1.StopsAnnotation, torporv1alpha1.RestoreAnnotation
	ofSlumber     = "slumber.torpor.dev/nights"
	foreign       = "example.com/a"
)

// annotations returns a map of alternating names and values.
func annotations(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func expectNext(t *testing.T, want, found map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("annotations (-want +found):\n%s", diff)
	}
}

// specOf returns the spec of a cluster.
func specOf(isStopped bool) map[string]any {
	if isStopped {
		return map[string]any{"powerState": "Hibernating"}
	}
	return nil
}

func TestNextOfCluster(t *testing.T) {
	longest := strings.Repeat("ü", 64)
	for name, row := range map[string]struct {
		wasStopped, isStopped bool
		version               string
		before, sent, want    map[string]string
	}{
		"a stop records its requester":                                              {false, true, "7", nil, nil, annotations(by, "alice", version, "7")},
		"a start records its requester":                                             {true, false, "8", annotations(by, "bob", version, "7"), annotations(by, "bob", version, "7"), annotations(by, "alice", version, "8")},
		"a stop at creation records new instead of a version":                       {false, true, "", nil, nil, annotations(by, "alice", version, "new")},
		"no requester is recorded for an object created running":                    {false, false, "", nil, nil, annotations()},
		"a forged requester is overwritten by a stop":                               {false, true, "7", nil, annotations(by, "the-ceo", version, "1"), annotations(by, "alice", version, "7")},
		"a forged requester of a new object is removed":                             {false, false, "", nil, annotations(by, "the-ceo", version, "1"), annotations()},
		"an edited requester is restored":                                           {true, true, "9", annotations(by, "bob", version, "7"), annotations(by, "the-ceo", version, "9"), annotations(by, "bob", version, "7")},
		"a removed requester is restored":                                           {true, true, "9", annotations(by, "bob", version, "7"), nil, annotations(by, "bob", version, "7")},
		"an end is recorded with its author":                                        {false, true, "7", nil, annotations(until, "8h"), annotations(by, "alice", version, "7", until, "8h", noted, "8h by alice")},
		"an unchanged end keeps its note despite a forgery":                         {true, true, "9", annotations(until, "8h", noted, "8h by bob"), annotations(until, "8h", noted, "8h by the-ceo"), annotations(until, "8h", noted, "8h by bob")},
		"a forged note of an unchanged end is removed":                              {true, true, "9", annotations(until, "8h"), annotations(until, "8h", noted, "8h by the-ceo"), annotations(until, "8h")},
		"a new end records its author":                                              {true, true, "9", annotations(until, "8h", noted, "8h by bob"), annotations(until, "9h", noted, "8h by bob"), annotations(until, "9h", noted, "9h by alice")},
		"the author of an empty end is recorded":                                    {true, true, "9", nil, annotations(until, ""), annotations(until, "", noted, " by alice")},
		"the note of an end is removed with the end":                                {true, true, "9", annotations(until, "8h", noted, "8h by bob"), annotations(noted, "8h by bob"), annotations()},
		"an end of 64 characters is recorded with its author, even with more bytes": {true, true, "9", nil, annotations(until, longest), annotations(until, longest, noted, longest+" by alice")},
		"an end of more than 64 characters gets no note":                            {true, true, "9", nil, annotations(until, longest+"x", noted, "x"), annotations(until, longest+"x")},
		"a start removes the stop's end and reason":                                 {true, false, "8", annotations(until, "8h", noted, "8h by bob", reason, "disks"), annotations(until, "8h", noted, "8h by bob", reason, "disks"), annotations(by, "alice", version, "8")},
		"an end and a reason that a start sets are kept":                            {true, false, "8", annotations(until, "8h", reason, "disks"), annotations(until, "9h", reason, "more disks"), annotations(by, "alice", version, "8", until, "9h", noted, "9h by alice", reason, "more disks")},
		"an end and a reason set before the stop are kept":                          {false, true, "8", annotations(until, "8h", noted, "8h by bob", reason, "disks"), annotations(until, "8h", noted, "8h by bob", reason, "disks"), annotations(by, "alice", version, "8", until, "8h", noted, "8h by bob", reason, "disks")},
		"a user may change unrelated annotations":                                   {false, true, "7", annotations(foreign, "a"), annotations(foreign, "b"), annotations(foreign, "b", by, "alice", version, "7")},
		"a user may remove unrelated annotations":                                   {true, true, "7", annotations(foreign, "a"), nil, annotations()},
		"a changed reason alone records no requester":                               {true, true, "7", annotations(reason, "a"), annotations(reason, "b"), annotations(reason, "b")},
		"a start without an earlier reason keeps the reason that it sets":           {true, false, "7", nil, annotations(reason, "b"), annotations(by, "alice", version, "7", reason, "b")},
		"a skip is recorded with its author":                                        {false, false, "7", nil, annotations(skip, "8h"), annotations(skip, "8h", skipNoted, "8h by alice")},
		"an unchanged skip keeps its note despite a forgery":                        {false, false, "7", annotations(skip, "8h", skipNoted, "8h by bob"), annotations(skip, "8h", skipNoted, "8h by the-ceo"), annotations(skip, "8h", skipNoted, "8h by bob")},
		"a start keeps the skip and restores its note":                              {true, false, "8", annotations(skip, "8h", skipNoted, "8h by bob"), annotations(skip, "8h"), annotations(by, "alice", version, "8", skip, "8h", skipNoted, "8h by bob")},
		"the note of a skip is removed with the skip":                               {false, false, "7", annotations(skip, "8h", skipNoted, "8h by bob"), annotations(skipNoted, "8h by bob"), annotations()},
		"an end without a note is kept while the stop continues":                    {true, true, "7", annotations(until, "8h"), annotations(until, "8h"), annotations(until, "8h")},
	} {
		t.Run(name, func(t *testing.T) {
			r := requester.Request{User: "alice", Version: row.version, Before: row.before, Sent: row.sent}
			expectNext(t, row.want, clusterDeployments{}.Notes().NextAnnotations(r, specOf(row.wasStopped), specOf(row.isStopped)))
		})
	}
}

func TestNextOfMySQLCluster(t *testing.T) {
	const (
		clustering, reconciliation, instances = mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.StoppedInstancesAnnotation
		clusteringBy, clusteringVersion       = mocov1beta2.ClusteringRequestedByAnnotation, mocov1beta2.ClusteringRequestVersionAnnotation
		reconciliationBy                      = mocov1beta2.ReconciliationRequestedByAnnotation
		instancesBy, instancesVersion         = mocov1beta2.InstancesRequestedByAnnotation, mocov1beta2.InstancesRequestVersionAnnotation
		ownUntil, ownReason                   = mocov1beta2.ClusteringUntilAnnotation, mocov1beta2.ClusteringReasonAnnotation
		ownNoted                              = ownUntil + torporv1alpha1.NotedSuffix
	)
	for name, row := range map[string]struct{ before, sent, want map[string]string }{
		"a stop of clustering records its requester": {nil, annotations(clustering, "true"), annotations(clustering, "true", clusteringBy, "alice", clusteringVersion, "7")},
		"a value other than true stops nothing": {
			nil, annotations(clustering, "yes", reconciliation, "True"), annotations(clustering, "yes", reconciliation, "True"),
		},
		"a stop of instances keeps the requester of the stop of clustering": {
			annotations(clustering, "true", clusteringBy, "bob", clusteringVersion, "5"), annotations(clustering, "true", instances, " [ 0 , 12] "),
			annotations(clustering, "true", clusteringBy, "bob", clusteringVersion, "5", instances, " [ 0 , 12] ", instancesBy, "alice", instancesVersion, "7"),
		},
		"a list of instances that grows keeps its first requester": {
			annotations(instances, "[0]", instancesBy, "bob", instancesVersion, "5"), annotations(instances, "[0,1]", instancesBy, "the-ceo"),
			annotations(instances, "[0,1]", instancesBy, "bob", instancesVersion, "5"),
		},
		"a list of instances without an ordinal stops nothing": {nil, annotations(instances, "[]"), annotations(instances, "[]")},
		"a malformed list of instances stops nothing":          {nil, annotations(instances, "[0"), annotations(instances, "[0")},
		"a forged requester of another part is removed": {
			nil, annotations(clustering, "true", reconciliationBy, "the-ceo"), annotations(clustering, "true", clusteringBy, "alice", clusteringVersion, "7"),
		},
		"a start removes the end of its own part, and keeps the shared end while another part is stopped": {
			annotations(clustering, "true", reconciliation, "true", ownUntil, "8h", ownNoted, "8h by bob", ownReason, "a", until, "9h", noted, "9h by bob", reason, "b"),
			annotations(reconciliation, "true", ownUntil, "8h", ownNoted, "8h by bob", ownReason, "a", until, "9h", noted, "9h by bob", reason, "b"),
			annotations(reconciliation, "true", clusteringBy, "alice", clusteringVersion, "7", until, "9h", noted, "9h by bob", reason, "b"),
		},
		"a start of the last stopped part removes the shared end": {
			annotations(clustering, "true", until, "9h", noted, "9h by bob", reason, "b"), annotations(clustering, "false", until, "9h", noted, "9h by bob", reason, "b"),
			annotations(clustering, "false", clusteringBy, "alice", clusteringVersion, "7"),
		},
		"a request that stops one part and starts the other keeps the shared end": {
			annotations(clustering, "true", until, "9h"), annotations(instances, "[1]", until, "9h"),
			annotations(instances, "[1]", until, "9h", clusteringBy, "alice", clusteringVersion, "7", instancesBy, "alice", instancesVersion, "7"),
		},
		"the end of one part and the shared end are both noted": {
			nil, annotations(ownUntil, "8h", until, "9h"), annotations(ownUntil, "8h", ownNoted, "8h by alice", until, "9h", noted, "9h by alice"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectNext(t, row.want, mysqlClusters{}.Notes().NextAnnotations(requester.Request{User: "alice", Version: "7", Before: row.before, Sent: row.sent}, nil, nil))
		})
	}
}

func TestNextOfWorkload(t *testing.T) {
	duringStop := annotations(stopped, "true", by, "bob", version, "5", record, "[1]", saved, "{}", foreign, "a")
	for name, row := range map[string]struct {
		fieldManager       string
		before, sent, want map[string]string
	}{
		"a stop records its requester":  {"kubectl", nil, annotations(stopped, "true"), annotations(stopped, "true", by, "alice", version, "7")},
		"a start records its requester": {"kubectl", annotations(stopped, "true", until, "8h"), annotations(stopped, "false", until, "8h"), annotations(stopped, "false", by, "alice", version, "7")},
		"a value other than true stops nothing": {
			"kubectl", nil, annotations(stopped, "yes"), annotations(stopped, "yes"),
		},
		"a stop by a user survives a replacement of all annotations": {
			"kubectl-rollout", duringStop, annotations(foreign, "b", by, "the-ceo", until, "8h"),
			annotations(stopped, "true", by, "bob", version, "5", record, "[1]", saved, "{}", foreign, "b"),
		},
		"a stop by a Slumber survives a replacement of all annotations": {
			"", annotations(saved, "{}", ofSlumber, "x"), annotations(foreign, "b"), annotations(saved, "{}", ofSlumber, "x", foreign, "b"),
		},
		"the note of an end that is too long is removed when the record is restored": {
			"", annotations(record, "[1]", until, strings.Repeat("x", 65), noted, "x"), nil, annotations(record, "[1]", until, strings.Repeat("x", 65)),
		},
		"a user may remove saved fields if there is no record of stops": {"", annotations(saved, "{}"), nil, annotations()},
		"the manager may change the record of stops":                    {"torpor-workloads", annotations(record, "[1]", saved, "{}"), annotations(record, "[2]"), annotations(record, "[2]")},
		"a start by the manager records the manager as requester": {
			"torpor-workloads", annotations(stopped, "true", record, "[1]"), annotations(stopped, "false", record, "[2]"), annotations(stopped, "false", record, "[2]", by, "alice", version, "7"),
		},
		"a record of stops in the annotations of a new object is kept": {"", nil, annotations(record, "[1]"), annotations(record, "[1]")},
	} {
		t.Run(name, func(t *testing.T) {
			expectNext(t, row.want, switched[deployments]{}.Notes().NextAnnotations(requester.Request{User: "alice", FieldManager: row.fieldManager, Version: "7", Before: row.before, Sent: row.sent}, nil, nil))
		})
	}
}

// TestNotesAreTrueAndIdempotent tries every request over a small set of annotations. A second admission of the
// result must change nothing, and no user can record another user's name.
func TestNotesAreTrueAndIdempotent(t *testing.T) {
	values := map[string][]string{
		stopped: {"true", "false"}, by: {"bob", "the-ceo"}, version: {"5"}, until: {"8h", "9h"}, noted: {"8h by bob", "9h by the-ceo"}, reason: {"a"}, record: {"[1]"},
	}
	worlds := []map[string]string{{}}
	for name, all := range values {
		for _, world := range slices.Clip(worlds) {
			for _, value := range all {
				with := maps.Clone(world)
				with[name] = value
				worlds = append(worlds, with)
			}
		}
	}
	tried, of := 0, switched[deployments]{}.Notes()
	for _, before := range worlds {
		for _, sent := range worlds {
			r := requester.Request{User: "alice", Version: "7", Before: before, Sent: sent}
			next := of.NextAnnotations(r, nil, nil)
			wanted := before[by]
			if (next[stopped] == "true") != (before[stopped] == "true") {
				wanted = "alice"
			}
			if next[by] != wanted {
				t.Fatalf("%v: expected %q to be named, found %v", r, wanted, next)
			}
			again := r
			again.Sent = next
			if settled := of.NextAnnotations(again, nil, nil); !maps.Equal(settled, next) {
				t.Fatalf("%v: expected what was decided to stay, found %v and then %v", r, next, settled)
			}
			tried++
		}
	}
	if tried != 648*648 {
		t.Errorf("expected to try %d requests, found %d", 648*648, tried)
	}
}
