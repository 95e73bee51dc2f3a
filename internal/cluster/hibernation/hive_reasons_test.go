// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// poolVerdict returns how a Hive ClusterPool counts an unclaimed cluster after the status of its Hibernating
// condition has not changed for a time: pkg/controller/clusterpool/collections.go of openshift/hive.
func poolVerdict(o Observed, r PowerReport, unchanged, resumeTimeout time.Duration) string {
	isResuming := o.DesiredPowerState != wantHibernating && r.PowerState != "Hibernating" && r.PowerState != "Running" && r.Hibernating.Reason == "ResumingOrRunning"
	switch {
	case isResuming && unchanged >= resumeTimeout:
		return "broken"
	case r.PowerState == "Running":
		return "assignable"
	default:
		return "standby"
	}
}

// TestHivesReasons checks the reports of each phase as Hive's controllers read them.
func TestHivesReasons(t *testing.T) {
	asleep := resumingRecord(time.Minute)
	asleep.AsleepAt = new(secondsAgo(time.Hour))
	unreachable := func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }
	refused := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.Other, "Protected"}, []string{"i-0", "i-1"}}
	}
	obstructed := func(o *Observed) {
		o.Options.RequiresPossible, o.IsSurveyed, o.Obstacles = true, true, "ClusterUpgrading"
	}
	late := openRecord()
	late.SleepStartedAt = secondsAgo(lateAfter + time.Minute)
	for name, row := range map[string]struct {
		in Observed
		// want is the Hibernating condition, the Ready condition and the power state. first and late are the verdicts
		// of a ClusterPool: right after the Hibernating status has changed, and after the resumeTimeout.
		want, first, late string
	}{
		"stop of machines is reported as Stopping":                                                 {observedCluster(wantHibernating, openRecord(), actuator.Running), "False/Stopping False/StoppingOrHibernating Stopping", "standby", "standby"},
		"recording of nodes is reported as Stopping":                                               {observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(readyNode("n0"))), "False/Stopping False/StoppingOrHibernating Stopping", "standby", "standby"},
		"late stop of machines is reported as WaitingForMachinesToStop":                            {observedCluster(wantHibernating, late, actuator.Stopping), "False/WaitingForMachinesToStop False/StoppingOrHibernating WaitingForMachinesToStop", "standby", "standby"},
		"failed stop is reported as FailedToStop":                                                  {observedCluster(wantHibernating, openRecord(), actuator.Running, refused), "False/FailedToStop False/StoppingOrHibernating FailedToStop", "standby", "standby"},
		"stopped machines are reported as Hibernating":                                             {observedCluster(wantHibernating, openRecord(), actuator.Stopped), "True/Hibernating False/StoppingOrHibernating Hibernating", "standby", "standby"},
		"start of machines is reported as ResumingOrRunning and StartingMachines":                  {observedCluster("", asleep, actuator.Stopped), "False/ResumingOrRunning False/StartingMachines StartingMachines", "standby", "broken"},
		"wait for the API server is reported as ResumingOrRunning and WaitingForAPI":               {observedCluster("", asleep, actuator.Running, unreachable), "False/ResumingOrRunning False/WaitingForAPI WaitingForAPI", "standby", "broken"},
		"wait for nodes is reported as ResumingOrRunning and WaitingForNodes":                      {observedCluster("", asleep, actuator.Running, apiWithNodes(readyNode("n0"), staleNode("n1"))), "False/ResumingOrRunning False/WaitingForNodes WaitingForNodes", "standby", "broken"},
		"a cancelled stop keeps Torpor's reason Resuming":                                          {observedCluster("", resumingRecord(time.Minute), actuator.Stopped), "False/Resuming False/StartingMachines StartingMachines", "standby", "standby"},
		"a repair keeps Torpor's reason Resuming":                                                  {observedCluster("", nil, actuator.Stopped), "False/Resuming False/StartingMachines StartingMachines", "standby", "standby"},
		"running cluster is reported as ResumingOrRunning and Running":                             {observedCluster("", nil, actuator.Running, apiWithNodes(readyNode("n0"))), "False/ResumingOrRunning True/Running Running", "assignable", "assignable"},
		"running cluster that does not answer is reported as ResumingOrRunning and APIUnreachable": {observedCluster("", nil, actuator.Running, unreachable), "False/ResumingOrRunning False/APIUnreachable Running", "assignable", "assignable"},
		"wait for SyncSets is reported as SyncSetsNotApplied":                                      {observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(), syncAwaited(time.Minute)), "False/SyncSetsNotApplied True/Running SyncSetsNotApplied", "standby", "standby"},
		"paused cluster is reported as PowerStatePaused":                                           {observedCluster("", nil, actuator.Running, func(o *Observed) { o.Paused = true }), "Unknown/PowerStatePaused Unknown/PowerStatePaused Unknown", "standby", "standby"},
		"hibernation without an actuator is reported as Unsupported":                               {observedCluster(wantHibernating, nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), "False/Unsupported True/Running Running", "assignable", "assignable"},
		"refused hibernation is reported as HibernationRefused":                                    {observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(readyNode("n0")), obstructed), "False/HibernationRefused True/Running Running", "assignable", "assignable"},
		"running cluster without an actuator is reported as ResumingOrRunning and Running":         {observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), "False/ResumingOrRunning True/Running Running", "assignable", "assignable"},
		"throttled poll of the cloud is reported as CloudThrottled":                                {observedCluster("", nil, "", func(o *Observed) { o.ObservationError = throttledError() }), "Unknown/CloudThrottled Unknown/CloudThrottled Unknown", "standby", "standby"},
		"resumed cluster is reported as ResumingOrRunning and Running":                             {observedCluster("", resumedRecord(time.Hour), actuator.Running, apiWithNodes(readyNode("n0"))), "False/ResumingOrRunning True/Running Running", "assignable", "assignable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			r := ReportPowerAsHive(p)
			found := strings.Join([]string{string(r.Hibernating.Status) + "/" + r.Hibernating.Reason, string(r.Ready.Status) + "/" + r.Ready.Reason, r.PowerState}, " ")
			if found != row.want {
				t.Errorf("expected %s, found %s", row.want, found)
			}
			verdicts := [2]string{poolVerdict(row.in, r, 0, time.Hour), poolVerdict(row.in, r, time.Hour, time.Hour)}
			if want := [2]string{row.first, row.late}; verdicts != want {
				t.Errorf("expected a ClusterPool to count the cluster as %v, found %v", want, verdicts)
			}
			if r.Ready.Message != p.Ready.Message || r.Hibernating.Message != p.Hibernating.Message {
				t.Errorf("expected the messages of the plan, found %+v", r)
			}
		})
	}
}

// TestReportsAreReadWithOldAndHiveReasons reads the reports of a sample of observations with both sets of reasons. An
// unchanged report must emit no event, and a hibernating or running cluster must be recognised.
func TestReportsAreReadWithOldAndHiveReasons(t *testing.T) {
	total := 0
	for o := range observations() {
		if total++; total%17 != 0 {
			continue // A sample of the observations is enough.
		}
		p := Decide(o)
		for name, report := range map[string]PowerReport{"Torpor": ReportPower(p), "Hive": ReportPowerAsHive(p)} {
			read := ReadReportedConditions(conditionsOf(report), report.PowerState, p)
			want := conditionsOf(PowerReport{Hibernating: p.Hibernating, Ready: p.Ready})
			if diff := cmp.Diff(want, read); diff != "" {
				t.Fatalf("%s: conditions of the rule %q (-want +got):\n%s", name, p.Rule, diff)
			}
			if events := TransitionEvents(read, Plan{Do: p.Do, Hibernating: p.Hibernating, Ready: p.Ready, Unreachable: p.Unreachable}); len(events) > 0 {
				t.Fatalf("%s: expected no event of an unchanged report by the rule %q, found %+v", name, p.Rule, events)
			}
		}
	}
}

// TestHivePoolsKeepHibernatedClusters follows a cluster through its phases, and applies the rule by which Hive's
// pools find broken clusters.
func TestHivePoolsKeepHibernatedClusters(t *testing.T) {
	const timeout = 20 * time.Minute
	asleep := openRecord()
	asleep.AsleepAt = new(secondsAgo(time.Hour))
	resuming := resumingRecord(time.Minute)
	resuming.AsleepAt = asleep.AsleepAt
	var changedAt time.Duration
	status := metav1.ConditionFalse
	for _, step := range []struct {
		name     string
		at       time.Duration
		in       Observed
		isBroken bool
	}{
		{"the cluster runs for a day", 0, observedCluster("", nil, actuator.Running, apiWithNodes(readyNode("n0"))), false},
		{"the API server does not respond", 24 * time.Hour, observedCluster("", nil, actuator.Running, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), false},
		{"one machine is off", 25 * time.Hour, observedCluster("", nil, actuator.Running, secondMachine(actuator.Stopped), apiWithNodes(readyNode("n0"))), false},
		{"all machines are off", 26 * time.Hour, observedCluster("", nil, actuator.Stopped), false},
		{"the cluster is stopped", 27 * time.Hour, observedCluster(wantHibernating, openRecord(), actuator.Running), false},
		{"the stop is cancelled", 27*time.Hour + time.Minute, observedCluster("", resumingRecord(time.Minute), actuator.Stopping), false},
		{"the cluster hibernates", 28 * time.Hour, observedCluster(wantHibernating, asleep, actuator.Stopped), false},
		{"the cluster resumes", 48 * time.Hour, observedCluster("", resuming, actuator.Starting), false},
		{"the API server is awaited", 48*time.Hour + 19*time.Minute, observedCluster("", resuming, actuator.Running, func(o *Observed) { o.API = Unreachable }), false},
		{"the API server is awaited for too long", 48*time.Hour + 21*time.Minute, observedCluster("", resuming, actuator.Running, func(o *Observed) { o.API = Unreachable }), true},
		{"the cluster runs at last", 49 * time.Hour, observedCluster("", resumedRecord(time.Minute), actuator.Running, apiWithNodes(readyNode("n0"))), false},
	} {
		r := ReportPowerAsHive(Decide(step.in))
		if r.Hibernating.Status != status {
			status, changedAt = r.Hibernating.Status, step.at
		}
		if isBroken := poolVerdict(step.in, r, step.at-changedAt, timeout) == "broken"; isBroken != step.isBroken {
			t.Errorf("%s: expected broken to be %t, found %t with %+v", step.name, step.isBroken, isBroken, r)
		}
	}
}

func conditionsOf(r PowerReport) []metav1.Condition {
	condition := func(kind string, c decision.Condition) metav1.Condition {
		return metav1.Condition{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message}
	}
	return []metav1.Condition{condition(hivev1.ClusterHibernatingCondition, r.Hibernating), condition(hivev1.ClusterReadyCondition, r.Ready)}
}
