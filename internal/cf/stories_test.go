// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestAppStopsAndStarts(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	a.setState(t, stopped)
	a.waitUntilStopped(t)
	if pods := a.listPods(t); len(pods) != 0 {
		t.Errorf("expected no Pod of a stopped app, found %d", len(pods))
	}
	a.setState(t, started)
	a.waitUntilRunning(t)
}

// TestAppStoppedByASlumberHasNoInstances uses a Slumber that stops an app and starts it again. The app's spec does not
// change, and no revision begins.
func TestAppStoppedByASlumberHasNoInstances(t *testing.T) {
	t.Parallel()
	a := shared.Get(t).createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	before := a.getApp(t)
	stop := func(record string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"status": {"scheduledStops": [{"slumber": "nights", "stops": [%s]}]}}`, record)
		testenv.ExpectNoError(t, a.Client.Status().Patch(t.Context(), a.getApp(t), client.RawPatch(types.MergePatchType, patch)))
	}
	stop(`{"since": "2026-11-24T20:00:00Z", "by": "Slumber nights", "reason": "nobody works at night", "requested": true}`)
	a.waitUntilStopped(t)
	if pods := a.listPods(t); len(pods) > 0 {
		t.Errorf("expected no Pods, found %d", len(pods))
	}
	asleep := a.getApp(t)
	ready := meta.FindStatusCondition(asleep.Status.Conditions, korifiv1alpha1.ReadyCondition)
	if asleep.Spec.DesiredState != started || asleep.Status.ActualState != stopped || !strings.HasSuffix(ready.Message, "asked for by Slumber nights: nobody works at night") {
		t.Errorf("expected an unchanged spec, and a message that names the Slumber, found %s, %s and %q", asleep.Spec.DesiredState, asleep.Status.ActualState, ready.Message)
	}
	stop(`{"since": "2026-11-24T20:00:00Z", "by": "Slumber nights", "endedAt": "2026-11-25T06:00:00Z"}`)
	a.waitUntilRunning(t)
	after := a.getApp(t)
	if after.Annotations[revisionAnnotation] != before.Annotations[revisionAnnotation] || after.Generation != before.Generation {
		t.Errorf("expected revision %s and generation %d, found %s and %d", before.Annotations[revisionAnnotation], before.Generation, after.Annotations[revisionAnnotation], after.Generation)
	}
}

// Columns show zeros, because a blank column could also mean an unknown value.
func TestColumnsOfAProcessShowZeros(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	table := e.GetTable(t, korifiv1alpha1.GroupVersion().WithResource("cfprocesses"), types.NamespacedName{Namespace: e.namespace, Name: a.process})
	found := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		found[column.Name] = table.Rows[0].Cells[i]
	}
	for column, want := range map[string]string{"Revision": "0", "Ready": "1", "Desired": "1", "Draining": "0"} {
		testenv.ExpectEqual(t, column, want, fmt.Sprint(found[column]))
	}
}

// The decision of ADR 0010 under load: many stops and starts within milliseconds of each other.
func TestManyRestartsRunOneRevisionAtATime(t *testing.T) {
	e := shared.Get(t)
	times := testenv.CountRepetitions(25, 200)
	a := e.createApp(t, appOptions{instances: 2})
	h := a.watchHistory(t)
	a.waitUntilRunning(t)
	began := time.Now()
	for i := range times {
		a.setState(t, stopped)
		if found := a.setState(t, started).Annotations[revisionAnnotation]; found != fmt.Sprint(i+1) {
			t.Fatalf("expected revision %d, found %s", i+1, found)
		}
	}
	asked := time.Now()
	a.waitUntilRunning(t)
	testenv.Eventually(t, "only the last revision is left", func() error {
		for _, l := range a.listLRPs(t) {
			if l.Spec.Version != fmt.Sprint(times) {
				return fmt.Errorf("found the LRP of revision %s", l.Spec.Version)
			}
		}
		return nil
	})
	a.expectRestarts(t, int64(times))
	for _, p := range a.listPods(t) {
		if p.Labels[korifiv1alpha1.VersionLabel] != fmt.Sprint(times) {
			t.Errorf("found the Pod %s of revision %s", p.Name, p.Labels[korifiv1alpha1.VersionLabel])
		}
	}
	for name, n := range h.countLRPNames() {
		if n > 1 {
			t.Errorf("the name %s was used for %d LRPs", name, n)
		}
	}
	if most, overlap := h.measureOverlap(); most > 1 || overlap > 0 {
		t.Errorf("expected never two revisions with Pods, found %d for %s", most, overlap)
	}
	t.Logf("%d restarts, asked for in %s, made %d LRPs; all was settled %s later", times, asked.Sub(began), len(h.countLRPNames()), time.Since(asked))
}

// expectRestarts expects that the app's history has its last revisions without a gap, each with its droplet and its
// author.
func (a *app) expectRestarts(t *testing.T, newest int64) {
	t.Helper()
	restarts := a.getApp(t).Status.Restarts
	if len(restarts) != revision.MaxRestarts {
		t.Errorf("expected %d revisions to be remembered, found %d", revision.MaxRestarts, len(restarts))
	}
	for i, r := range restarts {
		if r.Revision != newest-int64(i) || r.Droplet != a.name || r.StartedAt == nil || r.Cause != korifiv1alpha1.CausedByStop {
			t.Errorf("expected revision %d with its droplet and its start, found %+v", newest-int64(i), r)
		}
	}
}
