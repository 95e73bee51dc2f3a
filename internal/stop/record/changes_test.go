// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	at := func(hour int) *metav1.Time {
		return new(metav1.NewTime(time.Date(2026, 11, 24, hour, 0, 0, 0, time.UTC)))
	}
	held := torporv1alpha1.StopRecord{Since: *at(1), By: "alice", Reason: "no budget", Requested: true}
	later, started, expired, next := held, held, held, held
	later.Until = at(9)
	started.Requested, started.EndedAt, started.StartedBy = false, at(5), "bob"
	expired.Until, expired.EndedAt, expired.StartedBy = at(4), at(4), torporv1alpha1.UntilAnnotation
	next.Since, next.By, next.Reason = *at(6), "carol", ""
	stop := decision.Request{Requester: "alice", Reason: "no budget"}
	timed := stop
	change := func(what string, asked decision.Request) []decision.Change {
		return []decision.Change{{What: what, Part: "app", Request: asked}}
	}
	timed.Until = "2026-11-24T09:00:00Z"
	for name, row := range map[string]struct {
		before, after Records
		want          []decision.Change
	}{
		"part that was never stopped: no change":                                  {nil, nil, nil},
		"unchanged stop: no change":                                               {Records{held}, Records{held}, nil},
		"start that was recorded before: no change":                               {Records{started}, Records{started}, nil},
		"first stop: the change Stop requested":                                   {nil, Records{held}, change("Stop requested", stop)},
		"stop with an end: the change Stop requested with this end":               {nil, Records{later}, change("Stop requested", timed)},
		"stop after a start: the change Stop requested":                           {Records{started}, Records{next, started}, change("Stop requested", decision.Request{Requester: "carol"})},
		"new end of a stop: the change Stop changed":                              {Records{held}, Records{later}, change("Stop changed", timed)},
		"start by a user: the change Start requested":                             {Records{held}, Records{started}, change("Start requested", decision.Request{Requester: "bob"})},
		"stop that ended at its requested end: no change":                         {Records{later}, Records{expired}, nil},
		"start and a new stop between two passes: only the change Stop requested": {Records{held}, Records{next, started}, change("Stop requested", decision.Request{Requester: "carol"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, Changes("app", row.before, row.after)); diff != "" {
				t.Errorf("changes (-want +found):\n%s", diff)
			}
		})
	}
}

func TestRequestOf(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 11, 24, 1, 0, 0, 0, time.UTC))
	own := Records{{Since: at, By: "alice", Requested: true}}
	ended := Records{{Since: at, By: "alice", EndedAt: &at, StartedBy: "bob"}}
	nights := &torporv1alpha1.ScheduledStop{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: at, By: "Slumber nights", Until: &at, Requested: true}}}
	bySlumber := decision.Request{Requester: "Slumber nights", Until: "2026-11-24T01:00:00Z"}
	for name, row := range map[string]struct {
		own       Records
		scheduled *torporv1alpha1.ScheduledStop
		want      decision.Request
	}{
		"no records: an empty request":                                   {nil, nil, decision.Request{}},
		"stop by a user: requested by the user":                          {own, nil, decision.Request{Requester: "alice"}},
		"stop by a user and by a Slumber: requested by the user":         {own, nights, decision.Request{Requester: "alice"}},
		"stop by a Slumber: requested by the Slumber":                    {ended, nights, bySlumber},
		"no current stop: requested by the user who ended the last stop": {ended, nil, decision.Request{Requester: "bob"}},
	} {
		if diff := cmp.Diff(row.want, RequestOf(row.own, row.scheduled)); diff != "" {
			t.Errorf("%s (-want +found):\n%s", name, diff)
		}
	}
}

func TestLastWriter(t *testing.T) {
	t.Parallel()
	entry := func(manager, subresource string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: new(metav1.NewTime(time.Unix(int64(minute)*60, 0)))}
	}
	for want, entries := range map[string][]metav1.ManagedFieldsEntry{
		"unknown":                              nil,
		"unknown (field manager kubectl-edit)": {entry("helm", "", 1), entry("kubectl-edit", "", 3), entry("torpor", "status", 9), {Manager: "old"}, entry("argo", "", 2)},
	} {
		if found := LastWriter(&metav1.ObjectMeta{ManagedFields: entries}); found != want {
			t.Errorf("expected %q, found %q", want, found)
		}
	}
}
