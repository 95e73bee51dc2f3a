// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// deploy makes a deployment of the app.
func (a *app) deploy(t *testing.T, name string, spec torporv1alpha1.CFDeploymentSpec) *torporv1alpha1.CFDeployment {
	t.Helper()
	spec.AppRef.Name = a.name
	d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name + "-" + name}, Spec: spec}
	if err := a.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (a *app) awaitsDeployment(t *testing.T, d *torporv1alpha1.CFDeployment, want torporv1alpha1.DeploymentState) {
	t.Helper()
	testenv.Eventually(t, d.Name+" is "+string(want), func() error {
		if err := a.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		if d.Status.Reason != want {
			return fmt.Errorf("found %+v; the process: %+v", d.Status, a.getProcess(t).Status.Conditions)
		}
		return nil
	})
}

// hasOnly: at this very moment every LRP and every Pod is of the revision, also those that end.
func (a *app) hasOnly(t *testing.T, version string) {
	t.Helper()
	for _, l := range a.lrps(t) {
		if l.Spec.Version != version {
			t.Errorf("expected revision %s only, found the LRP %s of revision %s", version, l.Name, l.Spec.Version)
		}
	}
	for _, p := range a.listPods(t) {
		if found := p.Labels[korifiv1alpha1.VersionLabel]; found != version {
			t.Errorf("expected revision %s only, found the Pod %s of revision %s", version, p.Name, found)
		}
	}
}

func (a *app) change(t *testing.T, d *torporv1alpha1.CFDeployment, patch string) {
	t.Helper()
	if err := a.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (a *app) command(t *testing.T, command string) {
	t.Helper()
	process := a.getProcess(t)
	process.Spec.Command = command
	if err := a.Client.Update(t.Context(), process); err != nil {
		t.Fatal(err)
	}
}

func rolling() torporv1alpha1.CFDeploymentSpec { return torporv1alpha1.CFDeploymentSpec{} }

// Race l: a deployment brings a second revision up beside the first, and as many instances as wanted stay ready.
func (s *stage) testRolling(t *testing.T) {
	a := s.newApp(t, options{instances: 4, command: "HOLLOW_START=300ms HOLLOW_STOP=1s ./app"})
	a.awaitsRunning(t)
	h := a.follow(t)
	d := a.deploy(t, "one", torporv1alpha1.CFDeploymentSpec{MaxInFlight: 2})
	a.awaitsDeployment(t, d, torporv1alpha1.DeployedState)
	a.hasOnly(t, "1")
	if d.Status.Revision != 1 || d.Status.Value != torporv1alpha1.FinalizedDeployment {
		t.Errorf("expected revision 1 and a deployment that is over, found %+v", d.Status)
	}
	if least, inFlight := h.counts(); least < 4 || inFlight > 2 {
		t.Errorf("expected 4 ready Pods throughout and at most 2 that are coming, found %d and %d", least, inFlight)
	}
	if found := a.get(t).Status.LastRestart; found == nil || found.Cause != korifiv1alpha1.CausedByDeployment {
		t.Errorf("expected a deployment to be the cause, found %+v", found)
	}
}

// Race l: a deployment that crashes takes no ready instance away, and cancelling it brings everything back.
func (s *stage) testCancel(t *testing.T) {
	a := s.newApp(t, options{instances: 3})
	a.awaitsRunning(t)
	a.command(t, "HOLLOW_CRASH=boom ./app")
	a.awaitsRunning(t)
	h := a.follow(t)
	d := a.deploy(t, "bad", torporv1alpha1.CFDeploymentSpec{})
	a.awaitsDeployment(t, d, torporv1alpha1.DeployingState)
	testenv.Eventually(t, "the new instance has crashed", func() error {
		if one := a.getProcess(t).Status.InstancesStatus["0"]; one.State != korifiv1alpha1.CrashedInstance {
			return fmt.Errorf("found %+v", one)
		}
		return nil
	})
	a.change(t, d, `{"spec":{"cancelled":true}}`)
	a.awaitsDeployment(t, d, torporv1alpha1.CanceledState)
	a.hasOnly(t, "0")
	if least, _ := h.counts(); least < 3 {
		t.Errorf("expected 3 ready Pods throughout, found %d", least)
	}
	a.command(t, "./app")
	a.restart(t, "after")
	a.awaitsRunning(t)
	a.awaitsRevisions(t, "2")
}

// A canary waits at each step until it is continued.
func (s *stage) testCanary(t *testing.T) {
	a := s.newApp(t, options{instances: 4})
	a.awaitsRunning(t)
	d := a.deploy(t, "canary", torporv1alpha1.CFDeploymentSpec{
		Strategy: torporv1alpha1.CanaryDeployment, Steps: []torporv1alpha1.CanaryStep{{InstanceWeight: 25}, {InstanceWeight: 50}}, MaxInFlight: 4,
	})
	for step, wanted := range []int32{1, 2} {
		testenv.Eventually(t, fmt.Sprintf("step %d is reached", step+1), func() error {
			a.awaitsDeployment(t, d, torporv1alpha1.PausedState)
			if found := a.getProcess(t).Status.ActualInstances; found != wanted || d.Status.CurrentStep != int32(step+1) || d.Status.TotalSteps != 2 {
				return fmt.Errorf("expected %d instances, found %d at step %d", wanted, found, d.Status.CurrentStep)
			}
			return nil
		})
		a.change(t, d, fmt.Sprintf(`{"spec":{"continuedSteps":%d}}`, step+1))
	}
	a.awaitsDeployment(t, d, torporv1alpha1.DeployedState)
	a.hasOnly(t, "1")
}

// A restart in the middle of a deployment ends it, and its revision is the newest.
func (s *stage) testSuperseded(t *testing.T) {
	a := s.newApp(t, options{instances: 2, command: "HOLLOW_START=500ms ./app"})
	a.awaitsRunning(t)
	first := a.deploy(t, "first", torporv1alpha1.CFDeploymentSpec{})
	testenv.Eventually(t, "it has begun", func() error {
		if a.get(t).Annotations[revisionAnnotation] != "1" {
			return fmt.Errorf("found %s", a.get(t).Annotations[revisionAnnotation])
		}
		return nil
	})
	a.awaitsDeployment(t, first, torporv1alpha1.DeployingState)
	a.restart(t, "once")
	a.awaitsDeployment(t, first, torporv1alpha1.SupersededState)
	a.awaitsRunning(t)
	a.awaitsRevisions(t, "2")
}

// Of two deployments that are made at once the later one counts, and cancelling the other changes nothing.
func (s *stage) testLater(t *testing.T) {
	a := s.newApp(t, options{instances: 2, command: "HOLLOW_START=500ms ./app"})
	a.awaitsRunning(t)
	first := a.deploy(t, "first", torporv1alpha1.CFDeploymentSpec{})
	testenv.Eventually(t, "it has begun", func() error {
		if found := a.get(t).Annotations[revisionAnnotation]; found != "1" {
			return fmt.Errorf("found revision %s", found)
		}
		return nil
	})
	a.awaitsNextSecond(t, first)
	second := a.deploy(t, "second", torporv1alpha1.CFDeploymentSpec{})
	a.awaitsDeployment(t, first, torporv1alpha1.SupersededState)
	a.change(t, first, `{"spec":{"cancelled":true}}`)
	a.awaitsDeployment(t, second, torporv1alpha1.DeployedState)
	a.hasOnly(t, "2")
	a.awaitsDeployment(t, first, torporv1alpha1.SupersededState)
}

// awaitsNextSecond waits until what is made next is later than a deployment, as creation times tell.
func (a *app) awaitsNextSecond(t *testing.T, d *torporv1alpha1.CFDeployment) {
	t.Helper()
	testenv.Eventually(t, "a second has passed", func() error {
		if now := time.Now(); now.Sub(d.CreationTimestamp.Time) < time.Second {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
}

// A canary that waits is taken back: what ran before runs again, and nothing else is left.
func (s *stage) testCanaryCancelled(t *testing.T) {
	a := s.newApp(t, options{instances: 4})
	a.awaitsRunning(t)
	d := a.deploy(t, "canary", torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment})
	a.awaitsDeployment(t, d, torporv1alpha1.PausedState)
	if found := a.getProcess(t).Status.ActualInstances; found != 1 {
		t.Errorf("expected one instance of the canary without steps, found %d", found)
	}
	h := a.follow(t)
	a.change(t, d, `{"spec":{"cancelled":true}}`)
	a.awaitsDeployment(t, d, torporv1alpha1.CanceledState)
	a.hasOnly(t, "0")
	if least, _ := h.counts(); least < 4 {
		t.Errorf("expected 4 ready Pods throughout, found %d", least)
	}
	if app := a.get(t); app.Annotations[revisionAnnotation] != "1" || app.Status.ObservedRevision != 1 {
		t.Errorf("expected revision 1 to stay used, found %s", app.Annotations[revisionAnnotation])
	}
}

// A stopped app is started by its deployment; one that is cancelled before it began changes nothing.
func (s *stage) testDeployStopped(t *testing.T) {
	a := s.newApp(t, options{instances: 1, state: stopped})
	a.awaitsStopped(t)
	never := a.deploy(t, "never", torporv1alpha1.CFDeploymentSpec{Cancelled: true})
	a.awaitsDeployment(t, never, torporv1alpha1.CanceledState)
	a.awaitsStopped(t)
	d := a.deploy(t, "one", torporv1alpha1.CFDeploymentSpec{})
	a.awaitsDeployment(t, d, torporv1alpha1.DeployedState)
	a.awaitsRunning(t)
	a.hasOnly(t, "0")
	a.set(t, stopped)
	a.awaitsStopped(t)
	if app := a.deploy(t, "two", torporv1alpha1.CFDeploymentSpec{}); app.Spec.MaxInFlight != 1 {
		t.Errorf("expected one in flight, found %d", app.Spec.MaxInFlight)
	}
	a.awaitsRunning(t)
	a.hasOnly(t, "1")
}

// Race l: what was replaced and ends slowly keeps a deployment from being through; where revisions may overlap it does not.
func (s *stage) testSlowDeployment(t *testing.T) {
	for name, row := range map[string]struct {
		drain korifiv1alpha1.Drain
		waits bool
	}{
		"strict": {korifiv1alpha1.Drain{}, true}, "overlap": {korifiv1alpha1.Drain{Policy: korifiv1alpha1.DrainOverlap}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.newApp(t, options{instances: 1, command: "HOLLOW_STOP=4s ./app", drain: row.drain})
			a.awaitsRunning(t)
			a.command(t, "./app")
			d := a.deploy(t, "one", torporv1alpha1.CFDeploymentSpec{})
			a.awaitsDeployment(t, d, torporv1alpha1.DeployedState)
			left := len(a.listPods(t)) - 1
			if row.waits && left != 0 || !row.waits && left != 1 {
				t.Errorf("expected the old Pod to be waited for: %t, found %d of them left", row.waits, left)
			}
			a.awaitsRevisions(t, "1")
		})
	}
}

// A rollback is a deployment with an older droplet, and the app remembers what each revision ran, why and by whom.
func (s *stage) testRollback(t *testing.T) {
	const other = "registry.example/app:2"
	a := s.newApp(t, options{instances: 2})
	a.awaitsRunning(t)
	s.droplet(t, a.name+"-2", other)
	a.patch(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":"%s-2"}}}`, a.name))
	a.restart(t, "once")
	a.awaitsRunning(t)
	a.runsImage(t, other)
	d := a.deploy(t, "back", torporv1alpha1.CFDeploymentSpec{DropletRef: &torporv1alpha1.AppReference{Name: a.name}})
	a.awaitsDeployment(t, d, torporv1alpha1.DeployedState)
	a.hasOnly(t, "2")
	a.runsImage(t, image)
	a.awaitsRunning(t)
	var found []korifiv1alpha1.Restart
	for _, r := range a.get(t).Status.Restarts {
		if r.At.IsZero() || r.By == "" && r.Cause != korifiv1alpha1.CausedByCreation {
			t.Errorf("expected who and when, found %+v", r)
		}
		found = append(found, korifiv1alpha1.Restart{Revision: r.Revision, Cause: r.Cause, Droplet: r.Droplet})
	}
	want := []korifiv1alpha1.Restart{
		{Revision: 2, Cause: korifiv1alpha1.CausedByDeployment, Droplet: a.name},
		{Revision: 1, Cause: korifiv1alpha1.CausedByRestart, Droplet: a.name + "-2"},
		{Revision: 0, Cause: korifiv1alpha1.CausedByCreation, Droplet: a.name},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	if d.Status.FormerDroplet != a.name+"-2" || a.get(t).Spec.CurrentDropletRef.Name != a.name {
		t.Errorf("expected the former droplet to be noted and the older one to be current, found %+v", d.Status)
	}
}

func (a *app) runsImage(t *testing.T, want string) {
	t.Helper()
	for _, p := range a.listPods(t) {
		if found := p.Spec.Containers[0].Image; found != want {
			t.Errorf("expected the image %s, found %s in %s", want, found, p.Name)
		}
	}
}

// An app keeps its last deployments, and those of other apps are their own.
func (s *stage) testPrune(t *testing.T) {
	const kept, more = 20, 3
	a, other := s.newApp(t, options{instances: 0}), s.newAppCalled(t, "prune-other", options{instances: 0})
	theirs := other.deploy(t, "theirs", torporv1alpha1.CFDeploymentSpec{Cancelled: true})
	other.awaitsDeployment(t, theirs, torporv1alpha1.CanceledState)
	for i := range kept + more {
		d := a.deploy(t, fmt.Sprintf("%02d", i), torporv1alpha1.CFDeploymentSpec{Cancelled: true})
		testenv.Eventually(t, "it is over", func() error {
			err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
			if err != nil || d.Status.Value == torporv1alpha1.FinalizedDeployment {
				return client.IgnoreNotFound(err)
			}
			return fmt.Errorf("found %+v", d.Status)
		})
	}
	testenv.Eventually(t, "the oldest are gone", func() error {
		var list torporv1alpha1.CFDeploymentList
		if err := s.Client.List(t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		var names []string
		for _, d := range list.Items {
			if d.Spec.AppRef.Name == a.name {
				names = append(names, strings.TrimPrefix(d.Name, a.name+"-"))
			}
		}
		slices.Sort(names)
		if len(names) != kept || names[0] != fmt.Sprintf("%02d", more) {
			return fmt.Errorf("expected the last %d, found %v", kept, names)
		}
		return nil
	})
	other.awaitsDeployment(t, theirs, torporv1alpha1.CanceledState)
}
