// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/slumber"
	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

const (
	sequences     = 300
	soakSequences = 10_000 // Two minutes.
	steps         = 25
)

// fleet is a Slumber with two waves of two clusters each, whose controllers take their time, and people who stop and resume some of them.
type fleet struct {
	random   *rand.Rand
	now      time.Time
	slumber  *torporv1alpha1.Slumber
	clusters []*hivev1.ClusterDeployment
	// stoppedBy says of each cluster which person wants it stopped; empty if none does.
	stoppedBy []string
	history   []string
}

func newFleet(random *rand.Rand) *fleet {
	f := &fleet{random: random, now: time.Date(2026, 11, 24, random.IntN(24), 0, 0, 0, time.UTC), slumber: nights(), stoppedBy: make([]string, 4)}
	for i := range 4 {
		cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"wave": f.slumber.Spec.Waves[i/2].Name}, Annotations: map[string]string{}}}
		cd.Spec.Installed = true
		f.clusters = append(f.clusters, cd)
		f.finish(cd)
	}
	return f
}

// isWanted reports whether a cluster is to be stopped, by its own controller's rule.
func (f *fleet) isWanted(cd *hivev1.ClusterDeployment) bool {
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, f.now)
	return hibernation.EffectivePowerState(cd.Spec.PowerState, cd.Status.Stops, scheduled) == hivev1.PowerStateHibernating
}

// finish is what the cluster's own controller reports once machines are as they should be.
func (f *fleet) finish(cd *hivev1.ClusterDeployment) {
	hibernating, ready := metav1.ConditionFalse, metav1.ConditionTrue
	cd.Status.Hibernation = nil
	if f.isWanted(cd) {
		hibernating, ready = metav1.ConditionTrue, metav1.ConditionFalse
		cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(f.now)}
	}
	cd.Status.Conditions = []metav1.Condition{
		{Type: hivev1.ClusterHibernatingCondition, Status: hibernating, Reason: hivev1.HibernatingHibernationReason}, {Type: hivev1.ClusterReadyCondition, Status: ready},
	}
}

// setBy has a person set spec.powerState, as the controller records it.
func (f *fleet) setBy(i int, person string, isStopped bool) {
	cd := f.clusters[i]
	cd.Spec.PowerState, f.stoppedBy[i] = hivev1.PowerStateRunning, ""
	if isStopped {
		cd.Spec.PowerState, f.stoppedBy[i] = hivev1.PowerStateHibernating, person
	}
	cd.Status.Stops = stoprecord.NextRecords(cd.Status.Stops, stoprecord.Request{IsStopped: isStopped, By: person, Version: fmt.Sprint(len(f.history)), At: f.now}, f.now)
}

// pass is one pass of the Slumber. The manager may die before anything is written, after some of the members, or before the status is.
func (f *fleet) pass(dies bool) slumber.Plan {
	kind := stoppable.ListKinds()[0]
	observed := slumber.Observed{Now: f.now, Slumber: f.slumber, Waves: make([][]slumber.Member, len(f.slumber.Spec.Waves))}
	var objects [2][]*hivev1.ClusterDeployment
	for _, cd := range f.clusters {
		wave, _ := slumber.FindWave(f.slumber, kind.GVK.GroupKind(), cd.Labels)
		observed.Waves[wave] = append(observed.Waves[wave], slumber.ReadMember(f.slumber.Name, kind, cd, f.now))
		objects[wave] = append(objects[wave], cd)
	}
	plan := slumber.Decide(observed)
	for i, wishes := range plan.Wishes {
		for j, wish := range wishes {
			if dies && f.random.IntN(3) == 0 {
				return plan
			}
			objects[i][j].Status.ScheduledStops = []torporv1alpha1.ScheduledStop{plan.NextStops(f.slumber, observed.Waves[i][j], i, wish, f.now)}
		}
	}
	if !dies {
		f.slumber.Status = plan.Status
	}
	return plan
}

// step has something happen at random.
func (f *fleet) step() {
	i := f.random.IntN(len(f.clusters))
	what := f.random.IntN(12)
	switch what {
	case 0:
		f.setBy(i, "alice", true)
	case 1:
		f.setBy(i, "bob", false)
	case 2:
		f.clusters[i].Annotations[torporv1alpha1.SkipUntilAnnotation] = f.now.Add(time.Duration(f.random.IntN(10)) * time.Hour).Format(time.RFC3339)
	case 3:
		delete(f.clusters[i].Annotations, torporv1alpha1.SkipUntilAnnotation)
	case 4:
		f.slumber.Spec.Suspend = !f.slumber.Spec.Suspend
		f.slumber.Generation++
	case 5:
		f.slumber.Spec.Windows[0].Wake = fmt.Sprintf("%d %d * * *", f.random.IntN(60), f.random.IntN(12))
		f.slumber.Generation++
	case 6:
		f.pass(true)
	case 7:
		f.now = f.now.Add(time.Duration(f.random.IntN(30)) * time.Hour) // An outage.
	case 8, 9:
		f.now = f.now.Add(time.Duration(f.random.IntN(50)) * time.Minute)
	default:
		f.finish(f.clusters[i])
	}
	f.history = append(f.history, fmt.Sprintf("%s: %d of c%d", f.now.Format(time.DateTime), what, i))
	f.pass(false)
}

// settle has everything finish that is wanted, without more time than a few seconds.
func (f *fleet) settle() slumber.Plan {
	var plan slumber.Plan
	for range 12 {
		f.now = f.now.Add(time.Second)
		plan = f.pass(false)
		for _, cd := range f.clusters {
			f.finish(cd)
		}
	}
	return plan
}

// TestRandomSequencesKeepToTheModel has people stop, resume and skip, the Slumber be edited and suspended, managers die and be away. After
// each, what people have stopped is stopped; in the end all else is as the schedule says, unless somebody skips or has resumed it.
func TestRandomSequencesKeepToTheModel(t *testing.T) {
	count := sequences
	if os.Getenv("TORPOR_SOAK") != "" {
		count = soakSequences
	}
	for seed := range uint64(count) {
		f := newFleet(rand.New(rand.NewPCG(seed, 1)))
		for range steps {
			f.step()
			for i, person := range f.stoppedBy {
				if person != "" && !f.isWanted(f.clusters[i]) {
					t.Fatalf("seed %d: expected what %s stopped to stay so, found c%d started: %v", seed, person, i, f.history)
				}
			}
		}
		plan := f.settle()
		schedule, err := slumber.ParseSchedule(f.slumber.Spec)
		if err != nil {
			t.Fatal(err)
		}
		shouldSleep := schedule.PhaseAt(f.now).IsAsleep && !f.slumber.Spec.Suspend
		for i, cd := range f.clusters {
			f.expectOutcome(t, seed, i, shouldSleep)
			for _, stop := range cd.Status.ScheduledStops {
				f.expectDistinctStops(t, seed, stop.Stops)
			}
		}
		if isDone := plan.Status.State == torporv1alpha1.SlumberAsleep || plan.Status.State == torporv1alpha1.SlumberAwake; !isDone {
			t.Fatalf("seed %d: expected the end of the transition, found %s: %v", seed, plan.Ready.Message, f.history)
		}
	}
}

func (f *fleet) expectOutcome(t *testing.T, seed uint64, i int, shouldSleep bool) {
	t.Helper()
	cd := f.clusters[i]
	isWanted, want := f.isWanted(cd), f.stoppedBy[i] != ""
	skippedUntil, _ := stoprecord.ReadSkip(cd.Annotations)
	var resumedAt time.Time
	if stops := cd.Status.Stops; len(stops) > 0 && stops[0].EndedAt != nil {
		resumedAt = stops[0].EndedAt.Time
	}
	wave := f.slumber.Status.Waves[i/2]
	if shouldSleep && !f.now.Before(skippedUntil) && (wave.Since == nil || !resumedAt.After(wave.Since.Time)) {
		want = true
	}
	if isWanted != want {
		t.Fatalf("seed %d: expected c%d to be stopped: %t, found %t; %+v: %v", seed, i, want, isWanted, cd.Status.ScheduledStops, f.history)
	}
}

// expectDistinctStops has each stop begin after the one before has ended.
func (f *fleet) expectDistinctStops(t *testing.T, seed uint64, stops []torporv1alpha1.StopRecord) {
	t.Helper()
	for i := range stops {
		if i > 0 && (stops[i].EndedAt == nil || stops[i].EndedAt.After(stops[i-1].Since.Time) && stops[i].Since.Equal(&stops[i-1].Since)) {
			t.Fatalf("seed %d: expected one record of each stop, found %+v: %v", seed, stops, f.history)
		}
	}
}
