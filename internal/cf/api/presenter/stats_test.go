// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func TestInstances(t *testing.T) {
	const down, starting, crashed, running = korifiv1alpha1.DownInstance, korifiv1alpha1.StartingInstance, korifiv1alpha1.CrashedInstance, korifiv1alpha1.RunningInstance
	all := func(states ...korifiv1alpha1.InstanceState) map[string]korifiv1alpha1.InstanceStatus {
		found := map[string]korifiv1alpha1.InstanceStatus{}
		for i, s := range states {
			found[string(rune('0'+i))] = korifiv1alpha1.InstanceStatus{State: s}
		}
		return found
	}
	for name, test := range map[string]struct {
		stopped     bool
		app, status int64
		unreported  bool
		reason      string
		instances   map[string]korifiv1alpha1.InstanceStatus
		want        []korifiv1alpha1.InstanceState
		details     string
		settled     bool
		lastStop    string
		cancelled   bool
		revisions   []korifiv1alpha1.RevisionStatus
	}{
		"older instances that serve during a deployment are shown": {
			app: 2, status: 2, lastStop: "1", reason: korifiv1alpha1.DeploymentPausedReason, instances: all(running),
			revisions: []korifiv1alpha1.RevisionStatus{{Revision: 0, Desired: 1, Ready: 1}, {Revision: 1, Desired: 1, Ready: 1}, {Revision: 2, Desired: 1, Ready: 1}},
			want:      []korifiv1alpha1.InstanceState{running, running}, settled: true,
		},
		"older instances that a deployment is removing are not shown": {
			app: 2, status: 2, lastStop: "1", reason: korifiv1alpha1.DeployingReason, instances: all(running),
			revisions: []korifiv1alpha1.RevisionStatus{{Revision: 1, Ready: 1}, {Revision: 2, Desired: 2, Ready: 1}},
			want:      []korifiv1alpha1.InstanceState{running, down}, settled: true,
		},
		"instances of a cancelled deployment are shown while they still serve": {
			app: 2, status: 2, lastStop: "1", cancelled: true, reason: korifiv1alpha1.DeployingReason, instances: all(running),
			revisions: []korifiv1alpha1.RevisionStatus{{Revision: 1, Desired: 2, Ready: 1, Restorable: true}, {Revision: 2, Desired: 2, Ready: 2, Restorable: true}},
			want:      []korifiv1alpha1.InstanceState{running, running}, settled: true,
		},
		"instances of a cancelled deployment are shown until the earlier revision has an instance": {
			app: 2, status: 2, lastStop: "1", cancelled: true, reason: korifiv1alpha1.DeployingReason,
			revisions: []korifiv1alpha1.RevisionStatus{{Revision: 1, Restorable: true}, {Revision: 2, Desired: 2, Ready: 2, Restorable: true}},
			want:      []korifiv1alpha1.InstanceState{running, running}, settled: true,
		},
		"each instance of a stopped app is down":                                            {stopped: true, want: []korifiv1alpha1.InstanceState{down, down}, settled: true},
		"instances from before the last stop are not shown":                                 {stopped: true, app: 1, instances: all(running, running), want: []korifiv1alpha1.InstanceState{down, down}, settled: true},
		"instances of an earlier revision are not shown":                                    {app: 2, status: 1, instances: all(running, running), want: []korifiv1alpha1.InstanceState{down, down}},
		"a process status of a newer revision than the app's is ignored":                    {app: 1, status: 2, instances: all(running, running), want: []korifiv1alpha1.InstanceState{down, down}},
		"each instance of a process without the condition Ready is down":                    {unreported: true, instances: all(running, running), want: []korifiv1alpha1.InstanceState{down, down}},
		"the client's wait ends when one instance runs":                                     {app: 1, status: 1, instances: all(running, starting), want: []korifiv1alpha1.InstanceState{running, starting}, settled: true},
		"an instance that waits for older Pods to terminate has no details":                 {app: 1, status: 1, reason: korifiv1alpha1.WaitingForDrainReason, instances: all(starting), want: []korifiv1alpha1.InstanceState{starting, down}},
		"an instance without a Pod has the message of its process as details":               {app: 1, status: 1, reason: korifiv1alpha1.DropletMissingReason, instances: all(starting), want: []korifiv1alpha1.InstanceState{starting, down}, details: "why"},
		"the client's wait ends when all instances have crashed":                            {app: 1, status: 1, instances: all(crashed, crashed), want: []korifiv1alpha1.InstanceState{crashed, crashed}, settled: true},
		"the client's wait continues while an instance starts, even if another has crashed": {app: 1, status: 1, instances: all(crashed, starting), want: []korifiv1alpha1.InstanceState{crashed, starting}},
		"surplus Pods are not shown":                                                        {app: 1, status: 1, instances: all(running, running, running), want: []korifiv1alpha1.InstanceState{running, running}, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{korifiv1alpha1.RevisionAnnotation: string(rune('0' + test.app))}}}
			if app.Spec.DesiredState = korifiv1alpha1.StartedState; test.stopped {
				app.Spec.DesiredState = korifiv1alpha1.StoppedState
			}
			if test.lastStop != "" {
				app.Annotations[korifiv1alpha1.LastStopRevisionAnnotation] = test.lastStop
			}
			if test.cancelled {
				app.Annotations[torporv1alpha1.DeploymentAnnotation], app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] = "d", "d"
			}
			p := &korifiv1alpha1.CFProcess{}
			p.Status.Revisions = test.revisions
			p.Spec.DesiredInstances = new(int32(2))
			p.Status.ObservedRevision, p.Status.InstancesStatus = test.status, test.instances
			if !test.unreported {
				reason := test.reason
				if reason == "" {
					reason = korifiv1alpha1.RunningReason
				}
				p.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Reason: reason, Message: "why"}}
			}
			rows := ReportInstances(app, p, time.Unix(0, 0))
			var got []korifiv1alpha1.InstanceState
			for _, r := range rows {
				got = append(got, r.State)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if rows[1].Details != test.details {
				t.Errorf("found details %q, want %q", rows[1].Details, test.details)
			}
			if IsSettled(app, rows) != test.settled {
				t.Errorf("found settled %t, want %t", !test.settled, test.settled)
			}
		})
	}
}

// A started app does not start while a Slumber stops it, so the stats immediately report the Slumber to waiting
// clients.
func TestStatsNameTheSlumberThatStopsAnApp(t *testing.T) {
	since := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		reason   string
		now      time.Time
		annotate string
		details  string
		settled  bool
	}{
		"an app with the reason Stopped: the Slumber is reported":         {korifiv1alpha1.StoppedReason, since, "", "the Slumber nights stops the app; asked for by ", true},
		"an app whose instances are terminating: the Slumber is reported": {korifiv1alpha1.StoppingReason, since, "", "the Slumber nights stops the app; asked for by ", true},
		"an app whose stop by the Slumber has expired: no details":        {korifiv1alpha1.StoppedReason, since.Add(time.Hour), "", "", false},
		"an app that skips the Slumber until later: no details":           {korifiv1alpha1.StoppedReason, since, "1970-01-01T01:00:00Z", "", false},
		"an app whose process is starting: no details":                    {korifiv1alpha1.StartingReason, since, "", "", false},
	} {
		app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{torporv1alpha1.SkipUntilAnnotation: test.annotate}}}
		app.Spec.DesiredState = korifiv1alpha1.StartedState
		app.Status.ScheduledStops = []torporv1alpha1.ScheduledStop{{
			Slumber: "nights", ExpiresAt: new(metav1.NewTime(since.Add(time.Hour))), Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(since), By: "Slumber nights", Requested: true}},
		}}
		p := &korifiv1alpha1.CFProcess{Spec: korifiv1alpha1.CFProcessSpec{ProcessType: korifiv1alpha1.WebProcess}}
		p.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Reason: test.reason}}
		rows := ReportInstances(app, p, test.now)
		if details := rows[0].Details; rows[0].State != korifiv1alpha1.DownInstance || !strings.HasPrefix(details, test.details) || test.details == "" && details != "" {
			t.Errorf("%s: expected details %q, found %+v", name, test.details, rows[0])
		}
		if IsSettled(app, rows) != test.settled {
			t.Errorf("%s: expected settled %t, found %t", name, test.settled, !test.settled)
		}
	}
}

func TestStatsAreHonest(t *testing.T) {
	p := &korifiv1alpha1.CFProcess{}
	p.Spec.MemoryMB, p.Spec.DiskQuotaMB = 1, 2
	now := time.Unix(100, 0)
	stats := ForStats(&korifiv1alpha1.CFApp{}, p, []InstanceReport{{State: korifiv1alpha1.RunningInstance, Since: time.Unix(40, 0)}, {Index: 1, State: korifiv1alpha1.CrashedInstance, Details: "exit code 1"}}, nil, now)
	runs, crashed := stats.Resources[0], stats.Resources[1]
	if runs.Uptime != 60 || runs.MemQuota != 1<<20 || runs.DiskQuota != 2<<20 || runs.Details != nil || runs.Routable == nil {
		t.Errorf("found %+v, want a minute, the quotas, and no details", runs)
	}
	if crashed.Uptime != 0 || crashed.Details == nil || *crashed.Details != "exit code 1" || crashed.Routable != nil {
		t.Errorf("found %+v, want no uptime and the reason", crashed)
	}
}

// After a cancelled deployment, the app keeps the number of the cancelled revision, and its instances belong to the
// preceding revision.
func TestStatsAfterACancelShowTheUsageOfTheEarlierRevision(t *testing.T) {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		korifiv1alpha1.RevisionAnnotation: "2", korifiv1alpha1.LastStopRevisionAnnotation: "1",
		torporv1alpha1.DeploymentAnnotation: "d", torporv1alpha1.CancelledDeploymentAnnotation: "d",
	}}}
	p := &korifiv1alpha1.CFProcess{}
	p.Status.ObservedRevision, p.Status.Revisions = 2, []korifiv1alpha1.RevisionStatus{{Revision: 1, Desired: 1, Ready: 1}}
	usage := map[repositories.InstanceKey]repositories.InstanceUsage{{Revision: 1}: {Memory: 7}}
	row := ForStats(app, p, []InstanceReport{{State: korifiv1alpha1.RunningInstance}}, usage, time.Unix(0, 0)).Resources[0]
	if row.Usage.Memory == nil || *row.Usage.Memory != 7 {
		t.Errorf("expected the 7 bytes that revision 1 uses, found %+v", row.Usage)
	}
}

// TestStatsOfAnAbsurdProcess uses a process that was created with Korifi's schema, which has no maximum.
func TestStatsOfAnAbsurdProcess(t *testing.T) {
	app, p := &korifiv1alpha1.CFApp{}, &korifiv1alpha1.CFProcess{}
	p.Spec.DesiredInstances, p.Spec.MemoryMB = new(int32(math.MaxInt32)), 1<<44
	stats := ForStats(app, p, ReportInstances(app, p, time.Unix(0, 0)), nil, time.Unix(0, 0))
	if len(stats.Resources) != korifiv1alpha1.MaxInstances || stats.Resources[0].MemQuota <= 0 {
		t.Errorf("found %d rows with a quota of %d bytes, want %d and one that has not overflowed", len(stats.Resources), stats.Resources[0].MemQuota, korifiv1alpha1.MaxInstances)
	}
}
