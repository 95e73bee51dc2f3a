// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

var (
	now     = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	justNow = metav1.NewTime(now.Add(-time.Minute))
	resume  = metav1.NewTime(now.Add(-time.Second))
)

// observed returns a pool that a job applied a minute ago to a reachable cluster.
func observed(changes ...func(*Observed)) Observed {
	o := Observed{
		Now: now, UID: "uid", Name: "pool", Generation: 1, HasCluster: true, MayDial: true, InfraID: "infra",
		Status: hivev1.MachinePoolStatus{ObservedGeneration: 1, LastSyncTime: &justNow},
	}
	o.Spec.Name, o.Spec.ClusterDeploymentRef.Name = "worker", "cluster"
	for _, change := range changes {
		change(&o)
	}
	return o
}

func changed(o *Observed)   { o.Generation = 2 }
func asleep(o *Observed)    { o.MayDial = false }
func resumed(o *Observed)   { o.Resume = &resume }
func longAfter(o *Observed) { o.Now = now.Add(time.Hour) }
func paused(o *Observed)    { o.IsPaused = true }
func starting(o *Observed) {
	o.Status.MachineSets = []hivev1.MachineSetStatus{{Replicas: 2, ReadyReplicas: 1}}
}
func tenMinutes(o *Observed) { o.Now = now.Add(10 * time.Minute) }

func besides(pools ...string) func(*Observed) {
	return func(o *Observed) { o.OtherPools = pools }
}

// failing adds a failed attempt for the current pool. The retry is not due yet.
func failing(refused *Refusal, noAnswer string) func(*Observed) {
	return func(o *Observed) {
		o.Attempt = Attempt{Fingerprint: (&situation{Observed: *o}).readFingerprint(), RetryAt: o.Now.Add(time.Minute), Refusal: refused, NoAnswer: noAnswer}
	}
}

func TestDecide(t *testing.T) {
	const (
		rest, deleting, missing, senseless = "the cluster matches the pool", "the pool is being deleted", "the ClusterDeployment is missing", "the pool is invalid"
		pause, wait, retry, apply          = "changes to the pool are paused", "the cluster may not be dialled", "the next attempt must wait", "read and change the MachineSets"
	)
	refused := &Refusal{hivev1.MachinePoolRefusedReason, "no"}
	type decided struct {
		rule, synced, unsupported, notEnough string
		job                                  bool
	}
	const fine, enough = "False ConfigurationSupported", "False EnoughReplicas"
	for name, row := range map[string]struct {
		seen Observed
		want decided
	}{
		"cluster that matches its pool is not changed":                                  {observed(), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"changed pool is applied":                                                       {observed(changed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"new pool is applied":                                                           {observed(func(o *Observed) { o.Status = hivev1.MachinePoolStatus{} }), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"cluster is read again after an hour":                                           {observed(longAfter), decided{apply, "False Applying", fine, enough, true}},
		"cluster is read sooner while machines start":                                   {observed(tenMinutes, starting), decided{apply, "False Applying", fine, enough, true}},
		"cluster without starting machines is not read after ten minutes":               {observed(tenMinutes), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"hibernating cluster is not read":                                               {observed(longAfter, asleep), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"pool changed during hibernation waits":                                         {observed(changed, asleep), decided{wait, "False WaitingForCluster", "Unknown WaitingForCluster", "Unknown WaitingForCluster", false}},
		"resumed cluster is read":                                                       {observed(resumed), decided{apply, "False Applying", fine, enough, true}},
		"cluster read after its resume is not read again":                               {observed(resumed, func(o *Observed) { o.Status.SyncedResume = &resume }), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"resuming cluster that does not respond yet waits":                              {observed(resumed, asleep), decided{wait, "False WaitingForCluster", fine, enough, false}},
		"changed pool of a paused cluster waits":                                        {observed(changed, paused), decided{pause, "False Paused", "Unknown Paused", "Unknown Paused", false}},
		"unchanged pool of a paused cluster is not applied":                             {observed(longAfter, paused), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"pool that is being deleted changes nothing":                                    {observed(changed, func(o *Observed) { o.IsDeleting = true }), decided{deleting, "False Deleting", "Unknown Deleting", "Unknown Deleting", false}},
		"pool without a ClusterDeployment waits for it":                                 {observed(func(o *Observed) { o.HasCluster, o.MayDial = false, false }), decided{missing, "False ClusterDeploymentMissing", fine, enough, false}},
		"younger of two pools with the same name is not applied":                        {observed(changed, func(o *Observed) { o.Namesake = "older" }), decided{senseless, "False AmbiguousPool", "True AmbiguousPool", enough, false}},
		"pool with both replicas and autoscaling is invalid":                            {observed(changed, func(o *Observed) { o.Spec.Replicas = new(int64(1)); withAutoscaling(1, 2, "")(&o.Spec) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"minimum above the maximum is invalid":                                          {observed(func(o *Observed) { withAutoscaling(3, 2, "")(&o.Spec) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"negative replicas are invalid":                                                 {observed(func(o *Observed) { o.Spec.Replicas = new(int64(-1)) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"replicas above the maximum are invalid":                                        {observed(func(o *Observed) { o.Spec.Replicas = new(int64(5001)) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"refused pool waits for its retry":                                              {observed(changed, failing(refused, "")), decided{retry, "False Refused", fine, enough, false}},
		"pool of an unresponsive cluster waits for its retry":                           {observed(changed, failing(nil, "no answer in time")), decided{retry, "False NoAnswer", "Unknown NoAnswer", "Unknown NoAnswer", false}},
		"pool without MachineSets is reported":                                          {observed(changed, failing(&Refusal{hivev1.NoMachineSetsReason, ""}, "")), decided{retry, "False NoMachineSets", "True NoMachineSets", enough, false}},
		"too few replicas are reported as in Hive":                                      {observed(changed, failing(&Refusal{hivev1.MinReplicasTooSmallReason, ""}, "")), decided{retry, "False MinReplicasTooSmall", fine, "True MinReplicasTooSmall", false}},
		"refusal of an unchanged pool is reported":                                      {observed(longAfter, failing(&Refusal{hivev1.NoMachineAPIReason, ""}, "")), decided{retry, "False NoMachineAPI", "True NoMachineAPI", enough, false}},
		"pool changed after a failure is applied at once":                               {observed(failing(refused, ""), changed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"failed pool is applied at once after a resume":                                 {observed(changed, failing(refused, ""), resumed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"failed pool is applied at once if the server changes":                          {observed(changed, failing(nil, "no answer in time"), func(o *Observed) { o.Server = "another" }), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"failed pool is applied at once if another pool is added":                       {observed(changed, failing(refused, ""), besides("gpu")), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"failed pool is not retried early if only the order of the other pools changes": {observed(changed, besides("gpu", "large"), failing(refused, ""), besides("large", "gpu")), decided{retry, "False Refused", fine, enough, false}},
		"refused pool of a hibernating cluster waits":                                   {observed(changed, failing(refused, ""), asleep), decided{wait, "False WaitingForCluster", fine, enough, false}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(row.seen)
			got := decided{
				plan.Rule, string(plan.Synced.Status) + " " + plan.Synced.Reason, string(plan.Unsupported.Status) + " " + plan.Unsupported.Reason,
				string(plan.NotEnough.Status) + " " + plan.NotEnough.Reason, plan.Job != nil,
			}
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(decided{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			mustReturn := (plan.Rule == rest || plan.Rule == retry) && row.seen.MayDial && !row.seen.IsPaused
			if mustReturn != (plan.RequeueAfter > 0) {
				t.Errorf("expected another read: %t, found one after %s", mustReturn, plan.RequeueAfter)
			}
		})
	}
}

func TestAnswersAreRecordedAndReported(t *testing.T) {
	sets := []hivev1.MachineSetStatus{{Name: "a", Replicas: 2}, {Name: "b", Replicas: 1}}
	failure := &Refusal{hivev1.MachinePoolRefusedReason, "no"}
	answered := func(answer Answer, before *Refusal) Observed {
		return observed(changed, resumed, func(o *Observed) {
			answer.Job, answer.At = Job{Generation: 2, Resume: &resume, Fingerprint: (&situation{Observed: *o}).readFingerprint()}, now
			o.Answer, o.Attempt = &answer, NextAttempt(Attempt{Refusal: before}, &answer, time.Time{})
			if answer.Refusal != nil || answer.NoAnswer != "" {
				o.Attempt.RetryAt = now.Add(time.Minute)
			}
		})
	}
	for name, row := range map[string]struct {
		seen       Observed
		replicas   int32
		generation int64
		events     []string
	}{
		"success emits MachineSetsChanged":                   {answered(Answer{MachineSets: sets, Changes: []string{"MachineSet a: labels"}, IsComplete: true}, nil), 3, 2, []string{"MachineSetsChanged MachineSet a: labels", "MachinePoolCaughtUp"}},
		"success after a failure emits MachinePoolRecovered": {answered(Answer{MachineSets: sets, IsComplete: true}, failure), 3, 2, []string{"MachinePoolRecovered", "MachinePoolCaughtUp"}},
		"failure emits MachinePoolFailed":                    {answered(Answer{MachineSets: sets, Refusal: failure}, nil), 3, 1, []string{"MachinePoolFailed no"}},
		"repeated failure emits no event":                    {answered(Answer{MachineSets: sets, Refusal: &Refusal{failure.Reason, "no"}}, failure), 3, 1, nil},
		"failure with a new message emits MachinePoolFailed": {answered(Answer{Refusal: failure}, &Refusal{failure.Reason, "never"}), 0, 1, []string{"MachinePoolFailed no"}},
		"missing answer after a failure emits no event":      {answered(Answer{NoAnswer: "late"}, failure), 0, 1, nil},
		"interrupted job emits MachineSetsChanged":           {answered(Answer{Changes: []string{"MachineSet a: labels"}}, nil), 0, 1, []string{"MachineSetsChanged"}},
		"long list of changes is shortened":                  {answered(Answer{Changes: strings.Split("1 2 3 4 5 6 7", " ")}, nil), 0, 1, []string{"MachineSetsChanged 1; 2; 3; 4; 5; and 2 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(row.seen)
			if plan.Status.Replicas != row.replicas || plan.Status.ObservedGeneration != row.generation || (row.generation == 2) != plan.Status.SyncedResume.Equal(&resume) {
				t.Errorf("expected %d replicas of the generation %d, found %+v", row.replicas, row.generation, plan.Status)
			}
			if len(plan.Events) != len(row.events) {
				t.Fatalf("expected %q, found %+v", row.events, plan.Events)
			}
			for i, want := range row.events {
				if found := plan.Events[i].Reason + " " + plan.Events[i].Note; !strings.HasPrefix(found, want) {
					t.Errorf("expected %q, found %q", want, found)
				}
			}
		})
	}
}
