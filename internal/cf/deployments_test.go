// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// createDeployment creates a deployment of the app.
func (a *app) createDeployment(t *testing.T, name string, spec torporv1alpha1.CFDeploymentSpec) *torporv1alpha1.CFDeployment {
	t.Helper()
	spec.AppRef.Name = a.name
	d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name + "-" + name}, Spec: spec}
	if err := a.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (a *app) waitForDeployment(t *testing.T, d *torporv1alpha1.CFDeployment, want torporv1alpha1.DeploymentState) {
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

// expectOnlyRevision expects that every Pod, including terminating ones, and every LRP with instances has the revision.
// An LRP without instances, kept for a cancellation, is deleted shortly afterwards.
func (a *app) expectOnlyRevision(t *testing.T, version string) {
	t.Helper()
	defer a.waitForRevisions(t, version)
	for _, l := range a.listLRPs(t) {
		if l.Spec.Version != version && l.Spec.Instances > 0 {
			t.Errorf("expected revision %s only, found the LRP %s of revision %s", version, l.Name, l.Spec.Version)
		}
	}
	for _, p := range a.listPods(t) {
		if found := p.Labels[korifiv1alpha1.VersionLabel]; found != version {
			t.Errorf("expected revision %s only, found the Pod %s of revision %s", version, p.Name, found)
		}
	}
}

func (a *app) patchDeployment(t *testing.T, d *torporv1alpha1.CFDeployment, patch string) {
	t.Helper()
	if err := a.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (a *app) setCommand(t *testing.T, command string) {
	t.Helper()
	a.patchProcess(t, fmt.Sprintf(`{"spec":{"command":%q}}`, command))
}

func rolling() torporv1alpha1.CFDeploymentSpec { return torporv1alpha1.CFDeploymentSpec{} }

// Race l of docs/adr/0010-revisions-of-apps.md: a deployment starts a second revision next to the first, and the
// desired number of instances stays ready.
func TestRollingDeploymentKeepsInstancesReady(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 4, command: "HOLLOW_START=300ms HOLLOW_STOP=1s ./app"})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	d := a.createDeployment(t, "one", torporv1alpha1.CFDeploymentSpec{MaxInFlight: 2})
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	a.expectOnlyRevision(t, "1")
	if d.Status.Revision != 1 || d.Status.Value != torporv1alpha1.FinalizedDeployment {
		t.Errorf("expected revision 1 and a finished deployment, found %+v", d.Status)
	}
	if least, inFlight := h.countPods(); least < 4 || inFlight > 2 {
		t.Errorf("expected 4 ready Pods throughout and at most 2 that are coming, found %d and %d", least, inFlight)
	}
	if found := a.getApp(t).Status.LastRestart; found == nil || found.Cause != korifiv1alpha1.CausedByDeployment {
		t.Errorf("expected a deployment to be the cause, found %+v", found)
	}
}

// Race l of docs/adr/0010-revisions-of-apps.md: a deployment that crashes removes no ready instance, and cancelling it
// restores the previous revision.
func TestCancelledDeploymentBringsTheOldRevisionBack(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 3})
	a.waitUntilRunning(t)
	a.setCommand(t, "HOLLOW_CRASH=boom ./app")
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	d := a.createDeployment(t, "bad", torporv1alpha1.CFDeploymentSpec{})
	a.waitForDeployment(t, d, torporv1alpha1.DeployingState)
	testenv.Eventually(t, "the new instance has crashed", func() error {
		if one := a.getProcess(t).Status.InstancesStatus["0"]; one.State != korifiv1alpha1.CrashedInstance {
			return fmt.Errorf("found %+v", one)
		}
		return nil
	})
	a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
	a.expectOnlyRevision(t, "0")
	if least, _ := h.countPods(); least < 3 {
		t.Errorf("expected 3 ready Pods throughout, found %d", least)
	}
	a.setCommand(t, "./app")
	a.requestRestart(t, "after")
	a.waitUntilRunning(t)
	a.waitForRevisions(t, "2")
}

// Cancelling a second broken deployment restores the revision that serves requests, not the first broken one.
func TestCancelledFixFallsBackToTheRevisionThatServes(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 3})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	a.setCommand(t, "HOLLOW_CRASH=boom ./app")
	a.waitUntilRunning(t)
	e.createBuild(t, a.name+"-2", "registry.example/app:2")
	first := a.createDeployment(t, "bad", torporv1alpha1.CFDeploymentSpec{DropletRef: &torporv1alpha1.AppReference{Name: a.name + "-2"}})
	a.waitForDeployment(t, first, torporv1alpha1.DeployingState)
	a.waitForRevisions(t, "0", "1")
	fix := a.createDeployment(t, "fix", rolling())
	a.waitForDeployment(t, first, torporv1alpha1.SupersededState)
	a.waitForRevisions(t, "0", "1", "2")
	a.patchDeployment(t, fix, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, fix, torporv1alpha1.CanceledState)
	a.expectOnlyRevision(t, "0")
	if app := a.getApp(t); app.Spec.CurrentDropletRef.Name != a.name || app.Annotations[torporv1alpha1.DropletAnnotation] != a.name {
		t.Errorf("expected the droplet of the revision that serves, found %+v, %v", app.Spec.CurrentDropletRef, app.Annotations)
	}
	if least, _ := h.countPods(); least < 3 {
		t.Errorf("expected 3 ready Pods throughout, found %d", least)
	}
}

// A deployment of the processes web and worker can be cancelled at any time before it completes, even when one process
// already runs only the new revision.
func TestDeploymentOfTwoProcessesIsCancelledAtEveryMoment(t *testing.T) {
	const never = "HOLLOW_START=1h ./app"
	for name, row := range map[string]struct {
		// web is the command of the new revision of the web process.
		web string
		// reached reports whether the deployment has reached the point at which it is cancelled.
		reached func(t *testing.T, web, worker *app) error
	}{
		"the deployment has begun": {never, func(*testing.T, *app, *app) error { return nil }},
		"web has an instance of the new revision": {never, func(t *testing.T, web, _ *app) error {
			return testenv.ErrorIf(web.countRevisionPods(t, "1") == 0, "found no instance of web in revision 1")
		}},
		"the worker runs only the new revision": {never, func(t *testing.T, _, worker *app) error {
			return worker.runsOnly(t, "1")
		}},
		"the worker runs only the new revision and web has a ready new instance": {"HOLLOW_START=2s ./app", func(t *testing.T, web, worker *app) error {
			return errors.Join(worker.runsOnly(t, "1"), testenv.ErrorIf(web.getProcess(t).Status.ActualInstances == 0, "found no instance of web ready"))
		}},
		"web has all new instances and a terminating old one": {"./app", func(t *testing.T, web, worker *app) error {
			found := web.getProcess(t).Status
			isEnding := found.ActualInstances == 2 && web.countRevisionPods(t, "0") > 0
			return errors.Join(worker.runsOnly(t, "1"), testenv.ErrorIf(!isEnding, "found %+v", found.Revisions))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := shared.Get(t)
			a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_STOP=3s ./app"})
			worker := *a
			worker.process = revision.ProcessName(a.name, "worker")
			e.ExpectCreated(t, &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: worker.process}, Spec: korifiv1alpha1.CFProcessSpec{
				AppRef: korifiv1alpha1.Reference{Name: a.name}, ProcessType: "worker", DesiredInstances: new(int32(1)), MemoryMB: 16, DiskQuotaMB: 16,
			}})
			testenv.Eventually(t, "the worker runs", func() error { return worker.runsOnly(t, "0") })
			a.waitUntilRunning(t)
			h := a.watchHistory(t)
			a.setCommand(t, row.web)
			d := a.createDeployment(t, "two", torporv1alpha1.CFDeploymentSpec{})
			a.waitForDeployment(t, d, torporv1alpha1.DeployingState)
			testenv.Eventually(t, name, func() error { return row.reached(t, a, &worker) })
			a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
			a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
			a.expectOnlyRevision(t, "0")
			for _, p := range []*app{a, &worker} {
				testenv.ExpectNoError(t, p.runsOnly(t, "0"))
			}
			if least, _ := h.countPods(); least < 2 {
				t.Errorf("expected 2 ready Pods throughout, found %d", least)
			}
		})
	}
}

// countRevisionPods returns the number of Pods of a revision of the process.
func (a *app) countRevisionPods(t *testing.T, version string) int {
	t.Helper()
	pods := a.listProcessPods(t)
	return len(slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Labels[korifiv1alpha1.VersionLabel] != version }))
}

// runsOnly returns an error unless all desired instances of the process have the revision and are ready, and no other
// instances exist.
func (a *app) runsOnly(t *testing.T, version string) error {
	t.Helper()
	process, all := a.getProcess(t), len(a.listProcessPods(t))
	n := a.countRevisionPods(t, version)
	if ready := process.Status.ActualInstances; n == 0 || n != all || int(ready) != n || int(*process.Spec.DesiredInstances) != n {
		return fmt.Errorf("expected all instances of %s in revision %s, found %d of %d, and %d ready", process.Spec.ProcessType, version, n, all, ready)
	}
	return nil
}

// Cancelling a deployment has no effect, and is not reported as a cancellation, if no earlier revision is left.
func TestLateCancelHasNoEffect(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1, command: "HOLLOW_STOP=5s ./app"})
	a.waitUntilRunning(t)
	e.createBuild(t, a.name+"-2", "registry.example/app:2")
	d := a.createDeployment(t, "late", torporv1alpha1.CFDeploymentSpec{DropletRef: &torporv1alpha1.AppReference{Name: a.name + "-2"}})
	testenv.Eventually(t, "the old LRP has no instances and is deleted by another", func() error {
		for _, l := range a.listLRPs(t) {
			if l.Spec.Version == "0" && l.DeletionTimestamp.IsZero() {
				if l.Spec.Instances == 0 {
					testenv.ExpectNoError(t, e.Client.Delete(t.Context(), &l))
				}
				return errors.New("found it to stay")
			}
		}
		return nil
	})
	a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	if !strings.Contains(d.Status.Message, "too late") {
		t.Errorf("expected a message about the cancel, found %+v", d.Status)
	}
	a.expectOnlyRevision(t, "1")
	if app := a.getApp(t); app.Spec.CurrentDropletRef.Name != a.name+"-2" || app.Annotations[torporv1alpha1.DropletAnnotation] != a.name+"-2" {
		t.Errorf("expected the droplet that runs to be the current one, found %+v, %v", app.Spec.CurrentDropletRef, app.Annotations)
	}
}

// After a cancellation, processes start with the earlier droplet. This includes a process that had no instances and a
// process with a deleted LRP.
func TestCancelledDropletIsNotStarted(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	worker := *a
	worker.process = revision.ProcessName(a.name, "worker")
	e.ExpectCreated(t, &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: worker.process}, Spec: korifiv1alpha1.CFProcessSpec{
		AppRef: korifiv1alpha1.Reference{Name: a.name}, ProcessType: "worker", DesiredInstances: new(int32(0)), MemoryMB: 16, DiskQuotaMB: 16,
	}})
	a.waitUntilRunning(t)
	e.createBuild(t, a.name+"-2", "registry.example/app:2")
	d := a.createDeployment(t, "bad", torporv1alpha1.CFDeploymentSpec{
		Strategy: torporv1alpha1.CanaryDeployment, DropletRef: &torporv1alpha1.AppReference{Name: a.name + "-2"},
	})
	a.waitForDeployment(t, d, torporv1alpha1.PausedState)
	a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
	a.expectOnlyRevision(t, "0")
	worker.setInstances(t, 1)
	testenv.Eventually(t, "the worker has its instance", func() error {
		n := len(worker.listProcessPods(t))
		return testenv.ErrorIf(n != 1, "found %d", n)
	})
	a.expectImage(t, image)
	for _, l := range a.listLRPs(t) {
		if err := e.Client.Delete(t.Context(), &l); err != nil {
			t.Fatal(err)
		}
	}
	a.waitForRevisions(t, "1")
	a.waitUntilRunning(t)
	a.expectImage(t, image)
}

// A canary of an app with one instance waits next to the old instance, also at a step of 100 percent.
func TestCanaryOfOneInstanceWaitsNextToTheOldOne(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	d := a.createDeployment(t, "canary", torporv1alpha1.CFDeploymentSpec{
		Strategy: torporv1alpha1.CanaryDeployment, Steps: []torporv1alpha1.CanaryStep{{InstanceWeight: 50}, {InstanceWeight: 100}},
	})
	for step := range int32(2) {
		testenv.Eventually(t, fmt.Sprintf("step %d is reached", step+1), func() error {
			a.waitForDeployment(t, d, torporv1alpha1.PausedState)
			if d.Status.CurrentStep != step+1 {
				return fmt.Errorf("found %+v", d.Status)
			}
			return nil
		})
		a.waitForRevisions(t, "0", "1")
		testenv.Eventually(t, "the older instance counts as serving", func() error {
			n := a.getApp(t).Status.Instances
			return testenv.ErrorIf(n == nil || n.Ready != 1 || n.ReadyOlder != 1, "found %+v", n)
		})
		a.patchDeployment(t, d, fmt.Sprintf(`{"spec":{"continuedSteps":%d}}`, step+1))
	}
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	a.expectOnlyRevision(t, "1")
	if least, _ := h.countPods(); least < 1 {
		t.Errorf("expected a ready Pod throughout, found %d", least)
	}
}

// A canary waits at each step until the user continues it.
func TestCanaryWaitsAtEachStep(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 4})
	a.waitUntilRunning(t)
	d := a.createDeployment(t, "canary", torporv1alpha1.CFDeploymentSpec{
		Strategy: torporv1alpha1.CanaryDeployment, Steps: []torporv1alpha1.CanaryStep{{InstanceWeight: 25}, {InstanceWeight: 50}}, MaxInFlight: 4,
	})
	for step, wanted := range []int32{1, 2} {
		testenv.Eventually(t, fmt.Sprintf("step %d is reached", step+1), func() error {
			a.waitForDeployment(t, d, torporv1alpha1.PausedState)
			if found := a.getProcess(t).Status.ActualInstances; found != wanted || d.Status.CurrentStep != int32(step+1) || d.Status.TotalSteps != 2 {
				return fmt.Errorf("expected %d instances, found %d at step %d", wanted, found, d.Status.CurrentStep)
			}
			return nil
		})
		a.patchDeployment(t, d, fmt.Sprintf(`{"spec":{"continuedSteps":%d}}`, step+1))
	}
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	a.expectOnlyRevision(t, "1")
}

// createUnendingDeployment creates a deployment with an instance that needs an hour to start. Later deployments start
// quickly.
func (a *app) createUnendingDeployment(t *testing.T) *torporv1alpha1.CFDeployment {
	t.Helper()
	a.setCommand(t, "HOLLOW_START=1h ./app")
	a.waitUntilRunning(t)
	d := a.createDeployment(t, "first", torporv1alpha1.CFDeploymentSpec{})
	a.waitForRevisions(t, "0", "1")
	a.waitForDeployment(t, d, torporv1alpha1.DeployingState)
	a.setCommand(t, "./app")
	return d
}

// A restart during a deployment ends the deployment, and the restart's revision is the newest.
func TestRestartSupersedesADeployment(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	first := a.createUnendingDeployment(t)
	a.requestRestart(t, "once")
	a.waitForDeployment(t, first, torporv1alpha1.SupersededState)
	a.waitUntilRunning(t)
	a.waitForRevisions(t, "2")
}

// A deployment that is created during another deployment supersedes it. A later cancellation of the superseded
// deployment has no effect.
func TestLaterDeploymentSupersedesAnEarlierOne(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	first := a.createUnendingDeployment(t)
	second := a.createDeployment(t, "second", torporv1alpha1.CFDeploymentSpec{})
	a.waitForDeployment(t, first, torporv1alpha1.SupersededState)
	a.patchDeployment(t, first, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, second, torporv1alpha1.DeployedState)
	a.expectOnlyRevision(t, "2")
	a.waitForDeployment(t, first, torporv1alpha1.SupersededState)
}

// Several deployments are created at the same time, most of them within one second. Each deployment begins at most one
// revision, and the last deployment takes effect.
func TestSixDeploymentsAtOnceLeaveOneRevision(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	deployments := make([]*torporv1alpha1.CFDeployment, 6)
	errs := make([]error, len(deployments))
	var creations sync.WaitGroup
	for i := range deployments {
		d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: fmt.Sprint(a.name, "-", i)}}
		d.Spec.AppRef.Name, deployments[i] = a.name, d
		d.Spec.Strategy = torporv1alpha1.CanaryDeployment // A canary keeps each deployment in progress until all of them are created.
		creations.Go(func() { errs[i] = a.Client.Create(t.Context(), d) })
	}
	creations.Wait()
	testenv.ExpectNoError(t, errors.Join(errs...))
	last := slices.MaxFunc(deployments, revision.CompareByAge)
	a.waitForDeployment(t, last, torporv1alpha1.PausedState)
	a.patchDeployment(t, last, `{"spec":{"continuedSteps":1}}`)
	a.waitForDeployment(t, last, torporv1alpha1.DeployedState)
	for _, d := range deployments {
		if d != last {
			a.waitForDeployment(t, d, torporv1alpha1.SupersededState)
		}
	}
	a.waitUntilRunning(t)
	current, _, _ := revision.ReadRevision(a.getApp(t))
	if current < 1 || current > int64(len(deployments)) {
		t.Errorf("expected at most a revision for each deployment, found %d", current)
	}
	a.waitForRevisions(t, revision.FormatRevision(current))
}

// Cancelling a paused canary restores the earlier revision and leaves no other objects.
func TestCancelledCanaryLeavesTheOldRevision(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 4})
	a.waitUntilRunning(t)
	d := a.createDeployment(t, "canary", torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment})
	a.waitForDeployment(t, d, torporv1alpha1.PausedState)
	if found := a.getProcess(t).Status.ActualInstances; found != 1 {
		t.Errorf("expected one instance of the canary without steps, found %d", found)
	}
	h := a.watchHistory(t)
	a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
	a.expectOnlyRevision(t, "0")
	if least, _ := h.countPods(); least < 4 {
		t.Errorf("expected 4 ready Pods throughout, found %d", least)
	}
	if app := a.getApp(t); app.Annotations[revisionAnnotation] != "1" || app.Status.ObservedRevision != 1 {
		t.Errorf("expected revision 1 to stay used, found %s", app.Annotations[revisionAnnotation])
	}
}

// A deployment of a stopped app starts the app. A deployment that is already cancelled when it is created has no
// effect.
func TestDeploymentStartsAStoppedApp(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1, state: stopped})
	a.waitUntilStopped(t)
	never := a.createDeployment(t, "never", torporv1alpha1.CFDeploymentSpec{Cancelled: true})
	a.waitForDeployment(t, never, torporv1alpha1.CanceledState)
	a.waitUntilStopped(t)
	d := a.createDeployment(t, "one", torporv1alpha1.CFDeploymentSpec{})
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, "0")
	a.setState(t, stopped)
	a.waitUntilStopped(t)
	if app := a.createDeployment(t, "two", torporv1alpha1.CFDeploymentSpec{}); app.Spec.MaxInFlight != 1 {
		t.Errorf("expected one in flight, found %d", app.Spec.MaxInFlight)
	}
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, "1")
}

// Race l of docs/adr/0010-revisions-of-apps.md: a replaced instance that terminates slowly keeps a deployment open,
// unless revisions may overlap.
func TestSlowDrainKeepsADeploymentOpen(t *testing.T) {
	e := shared.Get(t)
	for name, row := range map[string]struct {
		drain korifiv1alpha1.Drain
		// stop is the time that the old instance takes to terminate. With overlap, the instance must terminate after
		// the deployment has completed.
		stop  string
		waits bool
	}{
		"strict drain policy: the deployment waits for the old Pod":          {korifiv1alpha1.Drain{}, "4s", true},
		"drain policy overlap: the deployment does not wait for the old Pod": {korifiv1alpha1.Drain{Policy: korifiv1alpha1.DrainOverlap}, "15s", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := e.createApp(t, appOptions{instances: 1, command: "HOLLOW_STOP=" + row.stop + " ./app", drain: row.drain})
			a.waitUntilRunning(t)
			a.setCommand(t, "./app")
			d := a.createDeployment(t, "one", torporv1alpha1.CFDeploymentSpec{})
			a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
			left := len(a.listPods(t)) - 1
			if row.waits && left != 0 || !row.waits && left != 1 {
				t.Errorf("expected the old Pod to be waited for: %t, found %d of them left", row.waits, left)
			}
			a.waitForRevisions(t, "1")
		})
	}
}

// A rollback is a deployment with an older droplet. The app records the droplet, the cause and the requester of each
// revision.
func TestRollbackDeploysAnOlderDroplet(t *testing.T) {
	e := shared.Get(t)
	const other = "registry.example/app:2"
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	e.createBuild(t, a.name+"-2", other)
	a.patchApp(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":"%s-2"}}}`, a.name))
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	a.expectImage(t, other)
	d := a.createDeployment(t, "back", torporv1alpha1.CFDeploymentSpec{DropletRef: &torporv1alpha1.AppReference{Name: a.name}})
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	a.expectOnlyRevision(t, "2")
	a.expectImage(t, image)
	a.waitUntilRunning(t)
	var found []korifiv1alpha1.Restart
	for _, r := range a.getApp(t).Status.Restarts {
		if r.At.IsZero() || r.By == "" && r.Cause != korifiv1alpha1.CausedByCreation {
			t.Errorf("expected a requester and a time, found %+v", r)
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
	if d.Status.FormerDroplet != a.name+"-2" || a.getApp(t).Spec.CurrentDropletRef.Name != a.name {
		t.Errorf("expected the former droplet to be noted and the older one to be current, found %+v", d.Status)
	}
}

func (a *app) expectImage(t *testing.T, want string) {
	t.Helper()
	for _, p := range a.listPods(t) {
		if found := p.Spec.Containers[0].Image; found != want {
			t.Errorf("expected the image %s, found %s in %s", want, found, p.Name)
		}
	}
}

// An app keeps its latest deployments. Deployments of other apps do not count towards the limit.
func TestAppKeepsItsLastDeployments(t *testing.T) {
	e := shared.Get(t)
	const kept, more = 20, 3
	a, other := e.createApp(t, appOptions{instances: 0}), e.createAppNamed(t, "prune-other", appOptions{instances: 0})
	theirs := other.createDeployment(t, "theirs", torporv1alpha1.CFDeploymentSpec{Cancelled: true})
	other.waitForDeployment(t, theirs, torporv1alpha1.CanceledState)
	for i := range kept + more {
		d := a.createDeployment(t, fmt.Sprintf("%02d", i), torporv1alpha1.CFDeploymentSpec{Cancelled: true})
		testenv.Eventually(t, "the deployment is over", func() error {
			err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
			if err != nil || d.Status.Value == torporv1alpha1.FinalizedDeployment {
				return client.IgnoreNotFound(err)
			}
			return fmt.Errorf("found %+v", d.Status)
		})
	}
	testenv.Eventually(t, "the oldest are gone", func() error {
		var list torporv1alpha1.CFDeploymentList
		if err := e.Client.List(t.Context(), &list, client.InNamespace(e.namespace)); err != nil {
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
	other.waitForDeployment(t, theirs, torporv1alpha1.CanceledState)
}

// A deployment that cannot proceed reports the reason, even if Kubernetes reports it only in an event.
func TestDeploymentThatCannotProceedReportsTheReason(t *testing.T) {
	for name, row := range map[string]struct {
		pods   string
		memory int64
		why    string
	}{
		"full quota is reported by the deployment":                              {"1", 16, "exceeded quota"},
		"instance too large for every node is reported by the deployment":       {"9", korifiv1alpha1.MaxMegabytes, "Insufficient memory"},
		"limit range below the instance's memory is reported by the deployment": {"9", 2048, "maximum memory usage"},
	} {
		t.Run(name, func(t *testing.T) {
			e := *shared.Get(t)
			e.namespace = e.CreateNamespace(t)
			a := e.createApp(t, appOptions{instances: 1})
			a.waitUntilRunning(t)
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "small"}}
			quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(row.pods)}
			e.ExpectCreated(t, quota)
			if row.memory == 2048 {
				e.ExpectCreated(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "tight"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
					{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
				}}})
			}
			testenv.Eventually(t, "the quota is enforced", func() error {
				err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
				return errors.Join(err, testenv.ErrorIf(quota.Status.Used.Pods().Value() != 1, "found %v", quota.Status))
			})
			a.patchProcess(t, fmt.Sprintf(`{"spec":{"memoryMB":%d}}`, row.memory))
			d := a.createDeployment(t, "d", rolling())
			testenv.Eventually(t, "the deployment reports the reason", func() error {
				err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
				return errors.Join(err, testenv.ErrorIf(d.Status.Reason != torporv1alpha1.DeployingState || !strings.Contains(d.Status.Message, row.why), "found %+v", d.Status))
			})
			t.Logf("%s", d.Status.Message)
			a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
			a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
		})
	}
}
