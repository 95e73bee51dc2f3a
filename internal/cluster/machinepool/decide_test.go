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

// observed returns a pool whose cluster answers, and which a job applied a minute ago.
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

// failing adds a failed attempt for the current pool, with a later retry.
func failing(refused *Refusal, noAnswer string) func(*Observed) {
	return func(o *Observed) {
		o.Attempt = Attempt{Fingerprint: (&situation{Observed: *o}).readFingerprint(), RetryAt: o.Now.Add(time.Minute), Refusal: refused, NoAnswer: noAnswer}
	}
}

func TestDecide(t *testing.T) {
	const (
		rest, deleting, missing, senseless = "the cluster matches the pool", "the pool is being deleted", "there is no cluster", "the pool is invalid"
		pause, wait, retry, apply          = "paused", "the cluster may not be dialled", "the next attempt must wait", "read and apply"
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
		"a cluster that matches the pool is left alone":          {observed(), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"a pool that has changed is applied":                     {observed(changed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"a new pool is applied":                                  {observed(func(o *Observed) { o.Status = hivev1.MachinePoolStatus{} }), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"the cluster is read again after half an hour":           {observed(longAfter), decided{apply, "False Applying", fine, enough, true}},
		"the cluster is read sooner while machines start":        {observed(tenMinutes, starting), decided{apply, "False Applying", fine, enough, true}},
		"ten minutes without starting machines cause no read":    {observed(tenMinutes), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"a long hibernation causes no read":                      {observed(longAfter, asleep), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"a pool that changes during hibernation waits":           {observed(changed, asleep), decided{wait, "False WaitingForCluster", "Unknown WaitingForCluster", "Unknown WaitingForCluster", false}},
		"a resumed cluster is read":                              {observed(resumed), decided{apply, "False Applying", fine, enough, true}},
		"a cluster read after its resume is not read again":      {observed(resumed, func(o *Observed) { o.Status.SyncedResume = &resume }), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"a cluster that resumes and does not answer yet waits":   {observed(resumed, asleep), decided{wait, "False WaitingForCluster", fine, enough, false}},
		"a changed pool of a paused cluster waits":               {observed(changed, paused), decided{pause, "False Paused", "Unknown Paused", "Unknown Paused", false}},
		"an unchanged pool of a paused cluster rests":            {observed(longAfter, paused), decided{rest, "True MachineSetsAsWished", fine, enough, false}},
		"a pool that is being deleted changes nothing":           {observed(changed, func(o *Observed) { o.IsDeleting = true }), decided{deleting, "False Deleting", "Unknown Deleting", "Unknown Deleting", false}},
		"a pool without a ClusterDeployment waits for it":        {observed(func(o *Observed) { o.HasCluster, o.MayDial = false, false }), decided{missing, "False ClusterDeploymentMissing", fine, enough, false}},
		"the younger of two pools of one name is not applied":    {observed(changed, func(o *Observed) { o.Namesake = "older" }), decided{senseless, "False AmbiguousPool", "True AmbiguousPool", enough, false}},
		"a number and autoscaling contradict each other":         {observed(changed, func(o *Observed) { o.Spec.Replicas = new(int64(1)); withAutoscaling(1, 2, "")(&o.Spec) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"a minimum above the maximum is invalid":                 {observed(func(o *Observed) { withAutoscaling(3, 2, "")(&o.Spec) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"a negative number is invalid":                           {observed(func(o *Observed) { o.Spec.Replicas = new(int64(-1)) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"a number above the maximum is invalid":                  {observed(func(o *Observed) { o.Spec.Replicas = new(int64(5001)) }), decided{senseless, "False InvalidReplicas", "True InvalidReplicas", enough, false}},
		"a refused pool waits":                                   {observed(changed, failing(refused, "")), decided{retry, "False Refused", fine, enough, false}},
		"a pool whose cluster does not answer waits":             {observed(changed, failing(nil, "no answer in time")), decided{retry, "False NoAnswer", "Unknown NoAnswer", "Unknown NoAnswer", false}},
		"a pool without MachineSets is reported":                 {observed(changed, failing(&Refusal{hivev1.NoMachineSetsReason, ""}, "")), decided{retry, "False NoMachineSets", "True NoMachineSets", enough, false}},
		"too few replicas are reported as in Hive":               {observed(changed, failing(&Refusal{hivev1.MinReplicasTooSmallReason, ""}, "")), decided{retry, "False MinReplicasTooSmall", fine, "True MinReplicasTooSmall", false}},
		"a refusal of an unchanged pool is reported, too":        {observed(longAfter, failing(&Refusal{hivev1.NoMachineAPIReason, ""}, "")), decided{retry, "False NoMachineAPI", "True NoMachineAPI", enough, false}},
		"a pool that changes after a failure is applied at once": {observed(failing(refused, ""), changed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"a failed pool is applied at once after a resume":        {observed(changed, failing(refused, ""), resumed), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"a failed pool is applied at once if the server changes": {observed(changed, failing(nil, "no answer in time"), func(o *Observed) { o.Server = "another" }), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"a failed pool is applied at once if a pool is added":    {observed(changed, failing(refused, ""), besides("gpu")), decided{apply, "False Applying", "Unknown Applying", "Unknown Applying", true}},
		"the same other pools in another order change nothing":   {observed(changed, besides("gpu", "large"), failing(refused, ""), besides("large", "gpu")), decided{retry, "False Refused", fine, enough, false}},
		"a refused pool waits for a hibernating cluster":         {observed(changed, failing(refused, ""), asleep), decided{wait, "False WaitingForCluster", fine, enough, false}},
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
		"a success: event MachineSetsChanged":                   {answered(Answer{MachineSets: sets, Changes: []string{"MachineSet a: labels"}, IsComplete: true}, nil), 3, 2, []string{"MachineSetsChanged MachineSet a: labels", "MachinePoolCaughtUp"}},
		"a success after a failure: event MachinePoolRecovered": {answered(Answer{MachineSets: sets, IsComplete: true}, failure), 3, 2, []string{"MachinePoolRecovered", "MachinePoolCaughtUp"}},
		"a failure: event MachinePoolFailed":                    {answered(Answer{MachineSets: sets, Refusal: failure}, nil), 3, 1, []string{"MachinePoolFailed no"}},
		"the same failure again: no event":                      {answered(Answer{MachineSets: sets, Refusal: &Refusal{failure.Reason, "no"}}, failure), 3, 1, nil},
		"another failure: event MachinePoolFailed":              {answered(Answer{Refusal: failure}, &Refusal{failure.Reason, "never"}), 0, 1, []string{"MachinePoolFailed no"}},
		"no answer after a failure: no event":                   {answered(Answer{NoAnswer: "late"}, failure), 0, 1, nil},
		"an interrupted job: event MachineSetsChanged":          {answered(Answer{Changes: []string{"MachineSet a: labels"}}, nil), 0, 1, []string{"MachineSetsChanged"}},
		"many changes are shortened":                            {answered(Answer{Changes: strings.Split("1 2 3 4 5 6 7", " ")}, nil), 0, 1, []string{"MachineSetsChanged 1; 2; 3; 4; 5; and 2 more"}},
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
