// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestStopOfAnAppEndsByItself stops an app with an invalid end, with an end that passes while no manager runs, and
// once more.
func TestStopOfAnAppEndsByItself(t *testing.T) {
	t.Parallel()
	h := newManagedHub(t)
	manager := h.startManager(t)
	h.waitUntilNoted(t)
	app, _ := cfApps().build(t, h.hub, "shop").(*korifiv1alpha1.CFApp)
	h.ExpectCreated(t, app)
	h.patch(t, "alice", app, annotated(cfApps().stop, map[string]string{torporv1alpha1.UntilAnnotation: "tomorrow", torporv1alpha1.ReasonAnnotation: "a bill"}))
	h.WaitForEvent(t, metav1.NamespaceDefault, stoprecord.EventAnnotationIgnored, `found "tomorrow"`)
	h.waitForStops(t, app, "the stop is recorded", [2]string{"alice"})
	testenv.ExpectEqual(t, "why", "a bill", app.Status.Stops[0].Reason)

	manager.KillAtOnce(t)
	h.removeWebhooks(t)
	h.patch(t, "alice", app, annotated(nil, map[string]string{torporv1alpha1.UntilAnnotation: "1ms"}))
	h.InstallWebhooks(t, "https://"+h.webhooks, nil)
	h.startManager(t)
	h.waitForStops(t, app, "the stop has ended", [2]string{"alice", torporv1alpha1.UntilAnnotation})
	h.WaitFor(t, "the app is started", app, func() error {
		return testenv.ErrorIf(app.Spec.DesiredState != korifiv1alpha1.StartedState || app.Status.Stops[0].Requested, "found %s, %+v", app.Spec.DesiredState, app.Status.Stops)
	})
	h.WaitForEvent(t, metav1.NamespaceDefault, stoprecord.EventStopEnded, "The stop has ended by itself")
	for _, leftover := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation} {
		if value, isThere := app.Annotations[leftover]; isThere {
			t.Errorf("expected %s to go with the stop, found %q", leftover, value)
		}
	}

	h.patch(t, "bob", app, annotated(cfApps().stop, map[string]string{torporv1alpha1.UntilAnnotation: "8h"}))
	h.waitForStops(t, app, "another stop is recorded", [2]string{"bob"}, [2]string{"alice", torporv1alpha1.UntilAnnotation})
	h.patch(t, "carol", app, cfApps().start)
	h.waitForStops(t, app, "a user starts the app", [2]string{"bob", "carol"}, [2]string{"alice", torporv1alpha1.UntilAnnotation})
	if _, isLeft := app.Annotations[torporv1alpha1.UntilAnnotation]; isLeft {
		t.Error("expected the end to go with the start")
	}
}

func (h *hub) patch(t *testing.T, who string, obj client.Object, change map[string]any) {
	t.Helper()
	testenv.ExpectNoError(t, h.clientOf(t, who).Patch(t.Context(), obj, mergePatch(t, change), client.FieldOwner(anotherProgram)))
}

// waitForStops waits until the record of an app has these stops, each given by its requester and the user who ended
// it.
func (h *hub) waitForStops(t *testing.T, app *korifiv1alpha1.CFApp, what string, want ...[2]string) {
	t.Helper()
	h.WaitFor(t, what, app, func() error {
		var found [][2]string
		for _, stop := range app.Status.Stops {
			found = append(found, [2]string{stop.By, stop.StartedBy})
		}
		return testenv.ErrorIf(fmt.Sprint(found) != fmt.Sprint(want), "expected %v, found %+v", want, app.Status.Stops)
	})
}
