// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestManagerIsKilled kills the manager at each stage of a restart. The next manager completes the request, and two
// revisions never run at the same time. While no manager runs, no change is partly applied. Objects deleted during that
// time are cleaned up once the next manager has started.
func TestManagerIsKilled(t *testing.T) {
	binary := testenv.TorporPath(t)
	e := newEnvWithoutManager(t)
	start := func() *testenv.Process {
		p := testenv.StartProcess(t, binary, []string{
			"manager", "--kubeconfig", e.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0",
			"--webhook-address", e.address, "--namespace", e.namespace, "--image-registries", "none",
		}, nil)
		e.WaitForAppAdmission(t, e.namespace, korifiv1alpha1.FirstRevision)
		return p
	}
	p := start()
	// Each revision takes long enough to terminate that the test can observe this stage.
	a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_START=500ms HOLLOW_STOP=2s ./app"})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	is := func(revision int, deleting bool) func() bool {
		return func() bool {
			for _, l := range a.listLRPs(t) {
				if l.Spec.Version == fmt.Sprint(revision) && l.DeletionTimestamp.IsZero() != deleting {
					return true
				}
			}
			return false
		}
	}
	for i, stage := range []struct {
		name    string
		reached func(next int) func() bool
	}{
		{"after the request", func(int) func() bool { return func() bool { return true } }},
		{"while the old revision ends", func(next int) func() bool { return is(next-1, true) }},
		{"between the two revisions", func(next int) func() bool { return func() bool { return !is(next-1, true)() && !is(next-1, false)() } }},
		{"with the new revision", func(next int) func() bool { return is(next, false) }},
	} {
		next := i + 1
		t.Run("killed "+stage.name, func(t *testing.T) {
			if found := a.requestRestart(t, fmt.Sprint("request ", next)); found != revision.FormatRevision(int64(next)) {
				t.Fatalf("expected revision %d, found %s", next, found)
			}
			testenv.Eventually(t, "the stage is reached", func() error {
				if !stage.reached(next)() {
					return fmt.Errorf("found %d LRPs", len(a.listLRPs(t)))
				}
				return nil
			})
			p.KillAtOnce(t)
			a.expectChangeRefused(t)
		})
		p = start()
		a.waitUntilRunning(t)
		a.expectOnlyRevision(t, fmt.Sprint(next))
	}
	if most, overlap := h.measureOverlap(); most != 1 || overlap != 0 {
		t.Errorf("expected one revision with Pods at a time, found %d, two of them for %s", most, overlap)
	}
	p.KillAtOnce(t)
	doomed := a.getApp(t)
	if err := a.Client.Delete(t.Context(), doomed); err != nil {
		t.Fatal(err)
	}
	if n := len(a.listPods(t)); n != 2 {
		t.Errorf("expected 2 Pods as long as no manager runs, found %d", n)
	}
	start()
	a.waitUntilGone(t, doomed)
}

// expectChangeRefused expects that changes are rejected, not partly applied, while admission is unavailable.
func (a *app) expectChangeRefused(t *testing.T) {
	t.Helper()
	before := a.getApp(t)
	patch := fmt.Appendf(nil, `{"spec":{"desiredState":"STOPPED"},"metadata":{"annotations":{%q:"lost"}}}`, torporv1alpha1.RestartRequestAnnotation)
	if err := a.Client.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err == nil {
		t.Error("expected a change to be refused without admission, found it accepted")
	}
	if after := a.getApp(t); after.Generation != before.Generation || after.Annotations[revisionAnnotation] != before.Annotations[revisionAnnotation] {
		t.Errorf("expected the app as it was, found generation %d and revision %s", after.Generation, after.Annotations[revisionAnnotation])
	}
}
