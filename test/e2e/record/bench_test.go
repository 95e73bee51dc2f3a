// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	benchTargets  = 1000 // benchTargets is the total number of stopped objects
	benchMany     = 5000
	benchRequests = 1000
	benchRounds   = 20
	benchWriters  = 8
	outage        = 100 * time.Second
	p99           = 0.99
)

// TestBenchRecord measures how soon a new manager ends a thousand stops whose end time passed while no manager ran,
// the cost of admission for a request, and the time of a table of five thousand objects. The test does not check the
// figures, except that no stop may end twice.
func TestBenchRecord(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected `make bench NAME=record`")
	}
	h := newManagedHub(t)
	manager := h.startManager(t)
	h.waitUntilNoted(t)
	figures := map[string]float64{}
	until := time.Now().Add(outage + time.Minute).Truncate(time.Minute) // A Slumber's window ends at a whole minute.
	h.createSlumber(t, until)
	h.createStopped(t, benchTargets, until)
	testenv.Eventually(t, "all stops are recorded", func() error { return h.expectRecords(t, false) })
	manager.KillAtOnce(t)
	t.Logf("%d stops are recorded, %s before their end", benchTargets, time.Until(until))
	if !time.Now().Before(until) {
		t.Fatal("expected the stops to be recorded before their time")
	}
	testenv.Eventually(t, "their end time has passed", func() error { return testenv.ErrorIf(time.Now().Before(until), "it has not yet") })
	manager = h.startManager(t)
	testenv.Eventually(t, "the manager's caches are filled", h.expectReady)
	began, before := time.Now(), h.readCosts(t, manager)
	awaited := &benchTarget{}
	testenv.Eventually(t, "all switches are reset", func() error { return h.expectSetBack(t, awaited) })
	figures["until_1000_resume_seconds"] = time.Since(began).Seconds()
	h.readCosts(t, manager).note(t, before, "back", figures)
	// The record of a MySQLCluster is written later, by the pass that creates the delayed objects; each cluster has
	// fifteen of them.
	testenv.Eventually(t, "all ends are recorded", func() error { return h.expectRecords(t, true) })
	figures["until_1000_recorded_seconds"] = time.Since(began).Seconds()
	h.readCosts(t, manager).note(t, before, "recorded", figures)
	manager.Stop(t)

	h.benchAdmission(t, figures)
	h.createMany(t, "many", benchMany-benchTargets)
	figures["status_all_p99_seconds"] = h.benchStatus(t)
	testenv.MergeFigures(t, "record.json", figures) // The figures of the page are from another benchmark.
}

// createStopped creates objects of all kinds that are stopped until a time.
func (h *managedHub) createStopped(t *testing.T, count int, until time.Time) {
	t.Helper()
	said := map[string]string{torporv1alpha1.UntilAnnotation: until.UTC().Format(time.RFC3339), torporv1alpha1.ReasonAnnotation: "bench"}
	var writers errgroup.Group
	writers.SetLimit(benchWriters)
	sorts := benchKinds()
	for i := range count {
		k := sorts[i%len(sorts)]
		obj := k.build(t, h.hub, "target-"+strconv.Itoa(i))
		labels := maps.Clone(obj.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		labels[sortLabel] = k.sort
		obj.SetLabels(labels)
		writers.Go(func() error {
			if !k.isOfSlumber && k.isStoppedWhenNew {
				merge(t, obj, annotated(k.stop, said))
			}
			if err := h.Client.Create(t.Context(), obj); err != nil {
				return fmt.Errorf("create %s: %w", obj.GetName(), err)
			}
			if k.isOfSlumber || k.isStoppedWhenNew {
				return nil
			}
			if err := h.Client.Patch(t.Context(), obj, mergePatch(t, annotated(k.stop, said))); err != nil {
				return fmt.Errorf("stop %s: %w", obj.GetName(), err)
			}
			return nil
		})
	}
	testenv.ExpectNoError(t, writers.Wait())
}

// createMany creates running ClusterDeployments.
func (h *managedHub) createMany(t *testing.T, prefix string, count int) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(benchWriters)
	for i := range count {
		obj := clusterDeployments().build(t, h.hub, prefix+"-"+strconv.Itoa(i))
		writers.Go(func() error { return h.Client.Create(t.Context(), obj) })
	}
	testenv.ExpectNoError(t, writers.Wait())
}

// expectRecords checks that every switch has one stop, which is in effect or has ended, and that no app was
// restarted without need.
func (h *managedHub) expectRecords(t *testing.T, hasEnded bool) error {
	t.Helper()
	return h.eachTarget(t, func(k benchKind, obj client.Object) error {
		for _, stops := range k.records(obj) {
			if len(stops) > 1 {
				t.Fatalf("%s %s: expected one stop, found %+v", k.name, obj.GetName(), stops)
			}
			if len(stops) == 0 || (stops[0].EndedAt != nil) != hasEnded {
				return fmt.Errorf("%s %s: expected a stop that has ended: %t, found %+v", k.name, obj.GetName(), hasEnded, stops)
			}
		}
		if app, isApp := obj.(*korifiv1alpha1.CFApp); isApp && app.Annotations[korifiv1alpha1.RevisionAnnotation] != "1" {
			t.Fatalf("%s: expected the one revision that the stop began, found %q", app.Name, app.Annotations[korifiv1alpha1.RevisionAnnotation])
		}
		return nil
	})
}

// expectSetBack returns an error while an object is still stopped. It first reads the object that the last call
// found stopped, because listing a thousand objects ten times a second would take a third of the CPU time.
func (h *managedHub) expectSetBack(t *testing.T, awaited *benchTarget) error {
	t.Helper()
	isStopped := func(k benchKind, obj client.Object) error {
		return testenv.ErrorIf(!k.isBack(obj), "%s %s is stopped", k.name, obj.GetName())
	}
	if awaited.obj != nil {
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(awaited.obj), awaited.obj); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		if err := isStopped(awaited.kind, awaited.obj); err != nil {
			return err
		}
	}
	return h.eachTarget(t, func(k benchKind, obj client.Object) error {
		err := isStopped(k, obj)
		if err != nil {
			awaited.kind, awaited.obj = k, obj
		}
		return err
	})
}

// benchTarget is an object that the benchmark stops, and its kind.
type benchTarget struct {
	kind benchKind
	obj  client.Object
}

// eachTarget calls visit for all objects that can be stopped.
func (h *managedHub) eachTarget(t *testing.T, visit func(benchKind, client.Object) error) error {
	t.Helper()
	for _, k := range benchKinds() {
		list := k.list()
		if err := h.Client.List(t.Context(), list, client.MatchingLabels{sortLabel: k.sort}); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			obj, _ := o.(client.Object)
			return visit(k, obj)
		}); err != nil {
			return err
		}
	}
	return nil
}

// expectReady checks whether the manager is ready.
func (h *managedHub) expectReady() error {
	answer, err := http.Get("http://" + h.probes + "/readyz")
	if err != nil {
		return fmt.Errorf("request readiness: %w", err)
	}
	if err := answer.Body.Close(); err != nil {
		return fmt.Errorf("close the answer: %w", err)
	}
	return testenv.ErrorIf(answer.StatusCode != http.StatusOK, "found status %d", answer.StatusCode)
}

// benchAdmission measures requests that change a ClusterDeployment's switch, with and without the policies that
// record requesters.
func (h *managedHub) benchAdmission(t *testing.T, figures map[string]float64) {
	t.Helper()
	k := clusterDeployments()
	obj := k.build(t, h.hub, "flipped")
	h.ExpectCreated(t, obj)
	measure := func() float64 {
		var took []float64
		for i := range benchRequests {
			change := k.stop
			if i%2 == 1 {
				change = k.start
			}
			began := time.Now()
			testenv.ExpectNoError(t, h.Client.Patch(t.Context(), obj, mergePatch(t, change)))
			took = append(took, time.Since(began).Seconds())
		}
		slices.Sort(took)
		return took[int(float64(len(took))*p99)]
	}
	with := measure()
	h.removePolicy(t, "torpor-hibernation-record")
	testenv.Eventually(t, "requesters are not recorded", func() error {
		tried := k.build(t, h.hub, "tried")
		merge(t, tried, k.stop)
		if err := h.Client.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return fmt.Errorf("try a creation: %w", err)
		}
		return testenv.ErrorIf(tried.GetAnnotations()[k.notes[0]] != "", "they still are")
	})
	without := measure()
	figures["admission_with_p99_seconds"], figures["admission_without_p99_seconds"] = with, without
	figures["admission_overhead_p99_seconds"] = with - without
}

// benchStatus measures the table of all objects that can be stopped.
func (h *managedHub) benchStatus(t *testing.T) float64 {
	t.Helper()
	var took []float64
	for range benchRounds {
		began := time.Now()
		if code := torpor.Run(t.Context(), torpor.Streams{Out: io.Discard, Err: t.Output()}, []string{"status", "-A", "--kubeconfig", h.KubeconfigPath(t)}); code != 0 {
			t.Errorf("expected a table, found exit code %d", code)
		}
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	return took[int(float64(len(took))*p99)]
}
