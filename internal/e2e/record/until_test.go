// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// outage is what became of targets whose stops ended while no manager ran.
type outage struct {
	// sinceStart and sinceReady are for how long the last target stayed stopped after the manager's program was started, and after it
	// said that it is ready.
	sinceStart, sinceReady time.Duration
}

// TestStopsEndAfterAnOutage has a few targets of each kind.
func TestStopsEndAfterAnOutage(t *testing.T) {
	t.Parallel()
	const targets = 15
	found := measureOutage(t, targets)
	t.Logf("%d targets: %+v", targets, found)
}

// TestBenchRecord measures how long a thousand stops outlast an outage in which they ended, and what the policies cost a request.
func TestBenchRecord(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected 1, to measure the record of stops; run with `make bench-record`")
	}
	figures := map[string]float64{}
	t.Run("until", func(t *testing.T) {
		const targets = 1000
		found := measureOutage(t, targets)
		figures["until_1000_resume_seconds"], figures["until_1000_resume_since_start_seconds"] = found.sinceReady.Seconds(), found.sinceStart.Seconds()
	})
	t.Run("admission", func(t *testing.T) { benchAdmission(t, figures) })
	testenv.SaveFigures(t, "record.json", figures)
}

// measureOutage stops targets of every kind until a time, kills the manager before that, and starts it after.
func measureOutage(t *testing.T, targets int) outage {
	h := newManagedHub(t)
	m := h.startManager(t)
	h.waitUntilNoted(t)
	began := time.Now()
	names := h.stopTargets(t, targets)
	took := time.Since(began)
	h.waitUntilRecorded(t, names)
	until := h.setUntil(t, names, time.Now().Add(3*took+10*time.Second))
	m.KillAtOnce(t)
	if time.Now().After(until) {
		t.Fatalf("expected the manager to be killed before %s, found that it took longer to say so", until)
	}
	seen := h.watchTargets(t)
	testenv.EventuallyWithin(t, time.Until(until)+time.Minute, "the time is over", func() error {
		return testenv.ErrorIf(time.Now().Before(until), "it comes at %s", until)
	})
	for name, n := range seen.starts() {
		t.Errorf("expected nothing to start while no manager runs, found %s %d times", name, n)
	}
	began = time.Now()
	h.startManager(t)
	testenv.Eventually(t, "the manager is ready", func() error { return h.isReady(t) })
	ready := time.Now()
	testenv.EventuallyWithin(t, 10*time.Minute, "all are started", func() error {
		found := len(seen.starts())
		return testenv.ErrorIf(found < targets, "found %d of %d", found, targets)
	})
	last := seen.last()
	h.expectOneStart(t, seen, names)
	return outage{sinceStart: last.Sub(began), sinceReady: max(0, last.Sub(ready))}
}

// stopTargets makes targets of all kinds in turn, and stops them as alice.
func (h *managedHub) stopTargets(t *testing.T, targets int) (names map[string]client.Object) {
	t.Helper()
	names = map[string]client.Object{}
	var mu sync.Mutex
	inParallel(t, targets, func(i int) error {
		k := kinds()[i%len(kinds())]
		obj := k.build(t, h.hub, fmt.Sprintf("target-%04d", i))
		if err := h.Client.Create(t.Context(), obj); err != nil {
			return fmt.Errorf("create %s: %w", obj.GetName(), err)
		}
		mu.Lock()
		names[obj.GetName()] = obj
		mu.Unlock()
		return h.Client.Patch(t.Context(), obj, mergePatch(t, annotated(k.stop, map[string]string{torporv1alpha1.UntilAnnotation: "48h"})))
	})
	return names
}

// inParallel does something often, and fails the test with what went wrong.
func inParallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	const workers = 8
	var work sync.WaitGroup
	next, failed := make(chan int), make(chan error, n)
	for range workers {
		work.Go(func() {
			for i := range next {
				failed <- do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	work.Wait()
	close(failed)
	for err := range failed {
		testenv.ExpectNoError(t, err)
	}
}

func kindOf(t *testing.T, obj client.Object) kind {
	t.Helper()
	switch obj.(type) {
	case *hivev1.ClusterDeployment:
		return clusterDeployments()
	case *mocov1beta2.MySQLCluster:
		return mysqlClusters()
	default:
		return cfApps()
	}
}

// lists are the lists of all kinds.
func lists() []client.ObjectList {
	return []client.ObjectList{&hivev1.ClusterDeploymentList{}, &mocov1beta2.MySQLClusterList{}, &korifiv1alpha1.CFAppList{}}
}

func (h *managedHub) waitUntilRecorded(t *testing.T, names map[string]client.Object) {
	t.Helper()
	testenv.EventuallyWithin(t, 10*time.Minute, "every stop is recorded", func() error {
		for name, obj := range names {
			k := kindOf(t, obj)
			for !allStopped(k.records(obj)) {
				if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
					return fmt.Errorf("get %s: %w", name, err)
				}
				if !allStopped(k.records(obj)) {
					return fmt.Errorf("%s: found %+v", name, k.records(obj))
				}
			}
		}
		return nil
	})
}

func allStopped(records [][]torporv1alpha1.StopRecord) bool {
	return !slices.ContainsFunc(records, func(stops []torporv1alpha1.StopRecord) bool { return len(stops) == 0 || stops[0].Until == nil })
}

// setUntil has every stop end at one time.
func (h *managedHub) setUntil(t *testing.T, names map[string]client.Object, until time.Time) time.Time {
	t.Helper()
	all := make([]client.Object, 0, len(names))
	for _, obj := range names {
		all = append(all, obj)
	}
	until = until.UTC().Truncate(time.Second)
	inParallel(t, len(all), func(i int) error {
		obj, _ := all[i].DeepCopyObject().(client.Object)
		change := annotated(nil, map[string]string{torporv1alpha1.UntilAnnotation: until.Format(time.RFC3339)})
		return h.Client.Patch(t.Context(), obj, mergePatch(t, change))
	})
	return until
}

func (h *managedHub) isReady(t *testing.T) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.probes+"/readyz", http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask whether it is ready: %w", err)
	}
	_ = answer.Body.Close()
	return testenv.ErrorIf(answer.StatusCode != http.StatusOK, "found %s", answer.Status)
}

// sight is what was seen of the targets: how often each was started, and when the last was.
type sight struct {
	mu        sync.Mutex
	isStopped map[string]bool
	started   map[string]int
	lastStart time.Time
}

func (s *sight) starts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.started)
}

func (s *sight) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastStart
}

// isWantedStopped reports whether a target is to be stopped. A ClusterDeployment whose stop has ended says so in its status only.
func isWantedStopped(k kind, obj client.Object) bool {
	if cd, ok := obj.(*hivev1.ClusterDeployment); ok {
		return k.isStopped(obj) && (len(cd.Status.Stops) == 0 || cd.Status.Stops[0].EndedAt == nil)
	}
	return k.isStopped(obj)
}

func (s *sight) see(k kind, obj client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, name := isWantedStopped(k, obj), obj.GetName()
	if was, isKnown := s.isStopped[name]; isKnown && was && !is {
		s.started[name]++
		s.lastStart = time.Now()
	}
	s.isStopped[name] = is
}

// watchTargets sees every change of every target until the test ends.
func (h *managedHub) watchTargets(t *testing.T) *sight {
	t.Helper()
	s := &sight{isStopped: map[string]bool{}, started: map[string]int{}}
	watcher, err := client.NewWithWatch(h.Config, client.Options{Scheme: h.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		work.Wait()
	})
	for _, list := range lists() {
		w, err := watcher.Watch(ctx, list, client.InNamespace(metav1.NamespaceDefault)) // Without a version it begins with all that there are.
		testenv.ExpectNoError(t, err)
		work.Go(func() {
			for e := range w.ResultChan() {
				if obj, ok := e.Object.(client.Object); ok && e.Type != watch.Deleted {
					s.see(kindOf(t, obj), obj)
				}
			}
		})
	}
	return s
}

// expectOneStart demands that every target was started once, by its end.
func (h *managedHub) expectOneStart(t *testing.T, seen *sight, names map[string]client.Object) {
	t.Helper()
	testenv.EventuallyWithin(t, 10*time.Minute, "each start is recorded", func() error {
		for _, obj := range names {
			if err := h.expectEndedByItself(t, obj); err != nil {
				return err
			}
		}
		return nil
	})
	for name, n := range seen.starts() {
		if n != 1 {
			t.Errorf("%s: expected one start, found %d", name, n)
		}
	}
}

func (h *managedHub) expectEndedByItself(t *testing.T, obj client.Object) error {
	t.Helper()
	k := kindOf(t, obj)
	check := func() error {
		for _, stops := range k.records(obj) {
			if len(stops) != 1 || stops[0].StartedBy != torporv1alpha1.UntilAnnotation {
				return fmt.Errorf("%s: expected one stop that has ended by itself, found %+v", obj.GetName(), stops)
			}
		}
		return nil
	}
	if check() == nil {
		return nil
	}
	if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return fmt.Errorf("get %s: %w", obj.GetName(), err)
	}
	return check()
}

// benchAdmission compares requests that flip switches with the policies and without, in turn, so that both see the same load.
func benchAdmission(t *testing.T, figures map[string]float64) {
	const rounds, requests = 6, 250
	h := newHub(t, "hibernation", "mysql")
	targets := map[string]client.Object{}
	for _, k := range []kind{clusterDeployments(), mysqlClusters()} {
		targets[k.name] = k.build(t, h, "measured")
		h.ExpectCreated(t, targets[k.name])
	}
	took := map[bool][]time.Duration{}
	for round := range rounds {
		areOn := round%2 == 1
		h.setPolicies(t, areOn)
		for i := range requests {
			for _, k := range []kind{clusterDeployments(), mysqlClusters()} {
				change := []map[string]any{k.stop, k.start}[i%2]
				began := time.Now()
				testenv.ExpectNoError(t, h.Client.Patch(t.Context(), targets[k.name], mergePatch(t, change)))
				took[areOn] = append(took[areOn], time.Since(began))
			}
		}
	}
	for areOn, name := range map[bool]string{true: "admission_on", false: "admission_off"} {
		slices.Sort(took[areOn])
		figures[name+"_p50_seconds"] = took[areOn][len(took[areOn])/2].Seconds()
		figures[name+"_p99_seconds"] = took[areOn][len(took[areOn])*99/100].Seconds()
	}
	figures["admission_overhead_p99_seconds"] = figures["admission_on_p99_seconds"] - figures["admission_off_p99_seconds"]
}

// setPolicies makes or removes the bindings of the policies that note requesters, and waits until the API server follows.
func (h *hub) setPolicies(t *testing.T, areOn bool) {
	t.Helper()
	for _, k := range []kind{clusterDeployments(), mysqlClusters()} {
		name := map[string]string{"ClusterDeployment": "torpor-hibernation-record", "MySQLCluster": "torpor-mysql-record"}[k.name]
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
		if areOn {
			testenv.ExpectNoError(t, client.IgnoreAlreadyExists(h.Client.Create(t.Context(), binding)))
		} else {
			testenv.ExpectNoError(t, client.IgnoreNotFound(h.Client.Delete(t.Context(), binding)))
		}
		testenv.Eventually(t, "the policies are as they should be", func() error {
			tried := k.build(t, h, "tried")
			merge(t, tried, k.stop)
			err := h.Client.Create(t.Context(), tried, client.DryRunAll)
			isNoted := tried.GetAnnotations()[k.notes[0]] != ""
			return errors.Join(err, testenv.ErrorIf(isNoted != areOn, "expected notes: %t, found %t", areOn, isNoted))
		})
	}
}
