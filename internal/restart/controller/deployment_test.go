// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testkit"
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
	testkit.Eventually(t, d.Name+" is "+string(want), func() error {
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
	testkit.Eventually(t, "the new instance has crashed", func() error {
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
		testkit.Eventually(t, fmt.Sprintf("step %d is reached", step+1), func() error {
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
	testkit.Eventually(t, "it has begun", func() error {
		if a.get(t).Annotations[revision] != "1" {
			return fmt.Errorf("found %s", a.get(t).Annotations[revision])
		}
		return nil
	})
	a.awaitsDeployment(t, first, torporv1alpha1.DeployingState)
	a.restart(t, "once")
	a.awaitsDeployment(t, first, torporv1alpha1.SupersededState)
	a.awaitsRunning(t)
	a.awaitsRevisions(t, "2")
}
