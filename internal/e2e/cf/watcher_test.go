// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// patience is how long something may take before a measurement is given up.
const patience = time.Minute

// sight is the newest that watches have seen of a space. What somebody waits for is judged with each piece of news, so that
// a moment that passes is seen, and its time is when the news came.
type sight struct {
	mu      sync.Mutex
	objects map[string]client.Object
	waiting []*wish
	// overlap adds up for how long there were Pods of two revisions; pods are the names of all that ever were.
	overlap, since time.Duration
	began          time.Time
	pods           map[string]bool
}

type wish struct {
	true func(map[string]client.Object) bool
	came chan time.Time
}

// look watches apps, StatefulSets and Pods of a space until the test ends.
func (w *env) look(t *testing.T, space string) *sight {
	t.Helper()
	s := &sight{objects: map[string]client.Object{}, began: time.Now(), since: -1, pods: map[string]bool{}}
	for _, list := range []client.ObjectList{&korifiv1alpha1.CFAppList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}} {
		w.watch(t, list, space, s.saw)
	}
	return s
}

// saw takes everything that there is of a kind, or one piece of news.
func (s *sight) saw(all []client.Object, kind string, news watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if news.Object == nil {
		maps.DeleteFunc(s.objects, func(key string, _ client.Object) bool { return key[:len(kind)] == kind })
	}
	if o, ok := news.Object.(client.Object); ok {
		if all = []client.Object{o}; news.Type == watch.Deleted {
			delete(s.objects, kind+o.GetName())
			all = nil
		}
	}
	for _, o := range all {
		s.objects[kind+o.GetName()] = o
	}
	now := time.Now()
	s.measure(now)
	s.waiting = slices.DeleteFunc(s.waiting, func(w *wish) bool {
		if w.true(s.objects) {
			w.came <- now
			return true
		}
		return false
	})
}

// measure adds the time since there are Pods of two revisions.
func (s *sight) measure(now time.Time) {
	revisions := map[string]bool{}
	for _, o := range s.objects {
		if p, ok := o.(*corev1.Pod); ok {
			revisions[p.Labels[korifiv1alpha1.VersionLabel]], s.pods[p.Name] = true, true
		}
	}
	at := now.Sub(s.began)
	switch two := len(revisions) > 1; {
	case two && s.since < 0:
		s.since = at
	case !two && s.since >= 0:
		s.overlap, s.since = s.overlap+at-s.since, -1
	}
}

// seen is for how long there were Pods of two revisions of the space's only app, and how many Pods there were in all.
func (s *sight) seen() (overlap time.Duration, pods int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlap, len(s.pods)
}

// await begins to wait; call it before what it waits for is asked for. What is returned says when it came.
func (s *sight) await(t *testing.T, what string, wanted func(map[string]client.Object) bool) func() time.Time {
	t.Helper()
	one := &wish{true: wanted, came: make(chan time.Time, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, one)
	s.mu.Unlock()
	return func() time.Time {
		t.Helper()
		deadline := time.NewTimer(patience)
		defer deadline.Stop()
		select {
		case at := <-one.came:
			return at
		case <-deadline.C:
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("%s was not seen within %s; the space has %v", what, patience, slices.Sorted(maps.Keys(s.objects)))
			return time.Time{}
		}
	}
}

// when waits until an app is seen as wanted, also if it is already.
func (s *sight) when(t *testing.T, app string, wanted func(*korifiv1alpha1.CFApp) bool) {
	t.Helper()
	as := of(app, wanted)
	s.mu.Lock()
	is := as(s.objects)
	s.mu.Unlock()
	if !is {
		s.await(t, app, as)()
	}
}

const (
	appKind = "CFApp/"
	setKind = "StatefulSet/"
	podKind = "Pod/"
)

func of(app string, wanted func(*korifiv1alpha1.CFApp) bool) func(map[string]client.Object) bool {
	return func(all map[string]client.Object) bool {
		a, ok := all[appKind+app].(*korifiv1alpha1.CFApp)
		return ok && wanted(a)
	}
}

// nothingRuns: no StatefulSet and no Pod is left in the space.
func nothingRuns(all map[string]client.Object) bool {
	for key := range all {
		if key[:len(podKind)] == podKind || len(key) > len(setKind) && key[:len(setKind)] == setKind {
			return false
		}
	}
	return true
}

// runs: an instance of the revision is ready in the space, and none of an older one is left, nor its StatefulSet.
func runs(revision string) func(map[string]client.Object) bool {
	return func(all map[string]client.Object) bool {
		ready := false
		for _, o := range all {
			if p, ok := o.(*corev1.Pod); ok {
				ready = ready || readyPod(p)
			}
			if _, app := o.(*korifiv1alpha1.CFApp); !app && o.GetLabels()[korifiv1alpha1.VersionLabel] != revision {
				return false
			}
		}
		return ready
	}
}

func readyPod(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
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

// watch tells of the objects of a space until the test ends: first of everything that is there, with no news, and then of
// each change. A watch may end at any time, above all under load; then it begins again with everything.
func (w *env) watch(t *testing.T, list client.ObjectList, space string, tell func([]client.Object, string, watch.Event)) {
	t.Helper()
	watching, err := client.NewWithWatch(w.Config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, there := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(there) })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := follow(ctx, watching, list, space, tell, once); err != nil && ctx.Err() == nil {
				t.Logf("a watch begins again: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-there
}

func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, space string, tell func([]client.Object, string, watch.Event), there func()) error {
	if err := c.List(ctx, list, client.InNamespace(space)); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	var all []client.Object
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		if one, ok := o.(client.Object); ok {
			all = append(all, one)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	events, err := c.Watch(ctx, list, &client.ListOptions{Namespace: space, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	kind := kindOf(list)
	tell(all, kind, watch.Event{})
	there()
	for e := range events.ResultChan() {
		if e.Type == watch.Error {
			return fmt.Errorf("the watch of %s ended with %v", kind, e.Object)
		}
		tell(nil, kind, e)
	}
	return fmt.Errorf("the watch of %s ended", kind)
}

func kindOf(list client.ObjectList) string {
	switch list.(type) {
	case *korifiv1alpha1.CFAppList:
		return appKind
	case *appsv1.StatefulSetList:
		return setKind
	default:
		return podKind
	}
}
