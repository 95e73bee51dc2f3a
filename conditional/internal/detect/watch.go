// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
)

// The resources that wake the detector.
const (
	crdResource        = "customresourcedefinitions" // of apiextensions.k8s.io/v1, named <plural>.<group>
	apiServiceResource = "apiservices"               // of apiregistration.k8s.io/v1, named <version>.<group>
)

// automanaged marks the APIServices that the API server makes by itself, as for every group version of a CRD.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// target is what one watch sees: all objects of a resource, or the one of that name.
type target struct{ resource, name string }

// watch is a reflector's store. It keeps of an object what is needed, and tells the loop what changes.
type watch struct {
	loop    *loop
	target  target
	subs    map[*subscriber]struct{}
	stop    context.CancelFunc // nil until it is opened
	closed  bool
	objects map[string]object
	synced  bool // the objects were listed
	refused bool // the watch is not allowed; what it knew is old
}

var _ toolscache.TransformingStore = &watch{}

type object struct {
	uid         string
	terminating bool
	automanaged bool
}

// change is one event: an object came, went, did both, or has another state.
type change struct {
	resource, name string
	gone, came     bool
	old            object // of what is gone
}

// strip keeps of an object what is needed: some carry a hundred kilobytes of annotations.
func strip(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}}
	if by, ok := m.Labels[automanaged]; ok {
		slim.Labels = map[string]string{automanaged: by}
	}
	return slim, nil
}

// Transformer strips what the reflector holds while it lists.
func (*watch) Transformer() toolscache.TransformFunc { return strip }

// Add is told of a new object.
func (w *watch) Add(obj any) error { return w.take(obj, false) }

// Update is told of another state of an object.
func (w *watch) Update(obj any) error { return w.take(obj, false) }

// Delete is told that an object is gone.
func (w *watch) Delete(obj any) error { return w.take(obj, true) }

// Resync is of no use here.
func (*watch) Resync() error { return nil }

func (w *watch) take(obj any, gone bool) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	w.loop.mu.Lock()
	defer w.loop.mu.Unlock()
	if gone {
		w.drop(m.Name)
	} else {
		w.put(m)
	}
	return nil
}

// Replace is told of all objects, at first and whenever events may have been missed.
func (w *watch) Replace(items []any, _ string) error {
	w.loop.mu.Lock()
	defer w.loop.mu.Unlock()
	now := map[string]*metav1.PartialObjectMetadata{}
	for _, item := range items {
		if m, ok := item.(*metav1.PartialObjectMetadata); ok {
			now[m.Name] = m
		}
	}
	if !w.synced {
		for name, m := range now {
			w.objects[name] = objectOf(m)
		}
		w.synced = true
		w.settle()
		return nil
	}
	for name := range w.objects {
		if now[name] == nil {
			w.drop(name)
		}
	}
	for name, m := range now {
		if w.objects[name] != objectOf(m) {
			w.put(m)
		}
	}
	return nil
}

func (w *watch) put(m *metav1.PartialObjectMetadata) {
	old, there := w.objects[m.Name]
	now := objectOf(m)
	w.objects[m.Name] = now
	// A deletion and a creation may be told as one.
	w.loop.hear(change{resource: w.target.resource, name: m.Name, came: old.uid != now.uid, gone: there && old.uid != now.uid, old: old})
}

func (w *watch) drop(name string) {
	old := w.objects[name]
	delete(w.objects, name)
	w.loop.hear(change{resource: w.target.resource, name: name, gone: true, old: old})
}

func objectOf(m *metav1.PartialObjectMetadata) object {
	_, auto := m.Labels[automanaged]
	return object{uid: string(m.UID), terminating: m.DeletionTimestamp != nil, automanaged: auto}
}

// settle lets those begin who waited for the watch, whether it has listed its objects or may not.
func (w *watch) settle() {
	now := time.Now()
	for s := range w.subs {
		for _, b := range s.boards {
			w.loop.replan(b, now)
			if s.ready() {
				w.loop.schedule(b, now)
			}
		}
		if s.ready() {
			w.loop.begin(s, now)
		}
	}
	w.loop.nudge()
}

// refuse gives the watch up.
func (w *watch) refuse(err error) {
	w.loop.mu.Lock()
	first := !w.refused && !w.closed
	w.refused = true
	w.close()
	if first {
		w.settle()
	}
	w.loop.mu.Unlock()
	if first {
		w.loop.refused(w.target, err)
	}
}

// lose notes that the watch is broken for the moment: what it does not tell now must be looked for.
func (w *watch) lose() {
	w.loop.mu.Lock()
	defer w.loop.mu.Unlock()
	for s := range w.subs {
		for _, b := range s.boards {
			if b.next.IsZero() && !b.looking {
				w.loop.schedule(b, time.Now())
			}
		}
	}
	w.loop.nudge()
}

// open starts the watch; close ends it, also before it was opened.
func (w *watch) open(ctx context.Context) {
	if w.closed {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.loop.work.Go(func() { w.loop.world.watch(ctx, w) })
}

func (w *watch) close() {
	w.closed = true
	if w.stop != nil {
		w.stop()
	}
}

// knows tells whether the watch has seen a CRD of the group, or the APIService of the version.
func (w *watch) knows(gv schema.GroupVersion) bool {
	if w.target.resource == apiServiceResource {
		_, ok := w.objects[gv.Version+"."+gv.Group]
		return ok
	}
	for name := range w.objects {
		if _, group, _ := strings.Cut(name, "."); group == gv.Group {
			return true
		}
	}
	return false
}
