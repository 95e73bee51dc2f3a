// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// upstream is what Korifi's HEAD took on the same machine with the same kind of Pods, and what the issue asks for.
func upstream() map[string]string {
	return map[string]string{
		"stop_p50_seconds": "upstream 0.195", "start_p50_seconds": "upstream 0.435", "restart_p50_seconds": "upstream 0.665",
		"overlap_seconds_strict": "target 0", "list_apps_5000_p99_seconds": "target < 0.1", "refusal_p99_seconds": "target < 0.05, upstream 2.6",
	}
}

// save prints the figures and writes them where TORPOR_BENCH_DIR says.
func save(t *testing.T, figures map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		t.Logf("%-28s %8.3f   %s", name, figures[name], upstream()[name])
	}
	dir := os.Getenv("TORPOR_BENCH_DIR")
	if dir == "" {
		return
	}
	raw, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const folder, file = 0o755, 0o644
	if err := os.MkdirAll(dir, folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "restart.json"), append(raw, '\n'), file); err != nil {
		t.Fatal(err)
	}
}

// quantile of some runs, in seconds.
func quantile(runs []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(runs))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Seconds()
}

// sight is the newest that a watch has seen of the apps of a space, and when.
type sight struct {
	mu   sync.Mutex
	apps map[string]*korifiv1alpha1.CFApp
	at   map[string]time.Time
	news chan struct{}
}

// look watches the apps of a space.
func (w *world) look(t *testing.T, space string) *sight {
	t.Helper()
	s := &sight{apps: map[string]*korifiv1alpha1.CFApp{}, at: map[string]time.Time{}, news: make(chan struct{}, 1)}
	w.watch(t, &korifiv1alpha1.CFAppList{}, space, func(e watch.Event, at time.Time) {
		if a, ok := e.Object.(*korifiv1alpha1.CFApp); ok {
			s.mu.Lock()
			s.apps[a.Name], s.at[a.Name] = a, at
			s.mu.Unlock()
			select {
			case s.news <- struct{}{}:
			default:
			}
		}
	})
	return s
}

// when waits until an app is first seen as wanted, and says when that was.
func (s *sight) when(t *testing.T, app string, wanted func(*korifiv1alpha1.CFApp) bool) time.Time {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		a, at := s.apps[app], s.at[app]
		s.mu.Unlock()
		if a != nil && wanted(a) {
			return at
		}
		select {
		case <-s.news:
		case <-deadline.C:
			t.Fatalf("%s was never seen as wanted: %+v", app, a)
		}
	}
}

// settled says that everything the app wants is so, at a revision.
func settled(revision string, state korifiv1alpha1.AppState) func(*korifiv1alpha1.CFApp) bool {
	return func(a *korifiv1alpha1.CFApp) bool {
		ready := meta.FindStatusCondition(a.Status.Conditions, korifiv1alpha1.ReadyCondition)
		return a.Annotations[korifiv1alpha1.RevisionAnnotation] == revision && fmt.Sprint(a.Status.ObservedRevision) == revision &&
			a.Spec.DesiredState == state && a.Status.ActualState == state && a.Status.ObservedGeneration == a.Generation &&
			ready != nil && ready.Status == metav1.ConditionTrue
	}
}

// watch tells of the objects of a space until the test ends.
func (w *world) watch(t *testing.T, list client.ObjectList, space string, tell func(watch.Event, time.Time)) {
	t.Helper()
	watching, err := client.NewWithWatch(w.Config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// A watch may end at any time; the next one begins with everything that is there.
		for ctx.Err() == nil {
			events, err := watching.Watch(ctx, list, client.InNamespace(space))
			if err != nil {
				continue
			}
			for e := range events.ResultChan() {
				tell(e, time.Now())
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// overlap adds up for how long there were Pods of two revisions in a space.
type overlap struct {
	mu    sync.Mutex
	pods  map[string]string
	since time.Time
	total time.Duration
	names map[string]bool
}

func (w *world) overlap(t *testing.T, space string) *overlap {
	t.Helper()
	o := &overlap{pods: map[string]string{}, names: map[string]bool{}}
	w.watch(t, &corev1.PodList{}, space, func(e watch.Event, at time.Time) {
		if p, ok := e.Object.(*corev1.Pod); ok {
			o.saw(p, e.Type == watch.Deleted, at)
		}
	})
	return o
}

func (o *overlap) saw(p *corev1.Pod, gone bool, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pods[p.Name] = p.Labels[korifiv1alpha1.VersionLabel]; gone {
		delete(o.pods, p.Name)
	}
	o.names[p.Name] = true
	two := len(slices.Compact(slices.Sorted(maps.Values(o.pods)))) > 1
	switch {
	case two && o.since.IsZero():
		o.since = at
	case !two && !o.since.IsZero():
		o.total, o.since = o.total+at.Sub(o.since), time.Time{}
	}
}

// seen is for how long, and how many Pods there were in all.
func (o *overlap) seen() (time.Duration, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total, len(o.names)
}
