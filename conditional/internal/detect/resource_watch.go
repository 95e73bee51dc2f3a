// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/go-logr/logr"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
)

// Resources whose changes trigger the detector.
const (
	crdResource        = "customresourcedefinitions" // belongs to apiextensions.k8s.io/v1; names are <plural>.<group>
	apiServiceResource = "apiservices"               // belongs to apiregistration.k8s.io/v1; names are <version>.<group>
)

// automanaged marks the APIServices that the API server creates itself, for example for every group version of a CRD.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// watchTarget is the target of one watch: all objects of a resource, or the object with the given name.
type watchTarget struct{ resource, name string }

// resourceWatch is a reflector's store. It stores a few facts about each object, and reports changes to the session.
type resourceWatch struct {
	session     *detectionSession
	target      watchTarget
	subscribers map[*presenceSubscriber]struct{}
	stop        context.CancelFunc // stop is nil until the watch is opened
	isClosed    bool
	objects     map[string]objectFacts
	isSynced    bool          // isSynced is true if the objects were listed
	isAway      bool          // isAway is true if the watch broke and no event has arrived since, so events may have been missed
	isRefused   bool          // isRefused is true if the server rejects the watch; its objects are outdated
	retryPause  time.Duration // retryPause is the pause after the last rejection
}

var (
	_ toolscache.TransformingStore      = &resourceWatch{}
	_ toolscache.ReflectorBookmarkStore = &resourceWatch{}
)

type objectFacts struct {
	uid         string
	version     string // version is the resource version; after a gap in the watch, only this shows that the spec has changed
	terminating bool
	automanaged bool
}

// objectChange is one event: an object was created, deleted or recreated, or its state has changed.
type objectChange struct {
	resource, name       string
	isDeleted, isCreated bool
	old                  objectFacts // old holds the facts about the deleted object
}

// stripMetadata removes fields that the detector does not need. Some CRDs have annotations of a hundred kilobytes.
func stripMetadata(obj any) (any, error) {
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

// Transformer returns a function that strips the objects that the reflector keeps while it lists.
func (*resourceWatch) Transformer() toolscache.TransformFunc { return stripMetadata }

func (w *resourceWatch) Add(obj any) error { return w.applyObject(obj, false) }

func (w *resourceWatch) Update(obj any) error { return w.applyObject(obj, false) }

func (w *resourceWatch) Delete(obj any) error { return w.applyObject(obj, true) }

// Resync does nothing, because the reflector of a watch has no resync period.
func (*resourceWatch) Resync() error { return nil }

func (w *resourceWatch) applyObject(obj any, gone bool) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.isAway = false
	if gone {
		w.dropObject(m.Name)
	} else {
		w.putObject(m)
	}
	w.session.publishChanges()
	return nil
}

// Bookmark is called about every minute, when the server sends a bookmark. A bookmark shows that the watch works.
func (w *resourceWatch) Bookmark(string) error {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.isAway = false
	return nil
}

// Replace stores a list of all objects, at the start and whenever events may have been missed.
func (w *resourceWatch) Replace(items []any, _ string) error {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.isAway = false
	now := map[string]*metav1.PartialObjectMetadata{}
	for _, item := range items {
		if m, ok := item.(*metav1.PartialObjectMetadata); ok {
			now[m.Name] = m
		}
	}
	// The first list is not a change, because the queries that wait for it will consider the objects.
	if !w.isSynced || w.isRefused {
		clear(w.objects)
		for name, m := range now {
			w.objects[name] = extractFacts(m)
		}
		w.isSynced, w.isRefused, w.retryPause = true, false, 0
		w.resumeSubscribers()
		w.session.detector.logRefusal(w.target, nil)
		return nil
	}
	for name := range w.objects {
		if now[name] == nil {
			w.dropObject(name)
		}
	}
	for name, m := range now {
		if w.objects[name] != extractFacts(m) {
			w.putObject(m)
		}
	}
	w.session.publishChanges()
	return nil
}

func (w *resourceWatch) putObject(m *metav1.PartialObjectMetadata) {
	old, there := w.objects[m.Name]
	now := extractFacts(m)
	w.objects[m.Name] = now
	// The API server may send a deletion and a creation as one update. Another UID means that it is a different object.
	w.session.handleChange(objectChange{resource: w.target.resource, name: m.Name, isCreated: old.uid != now.uid, isDeleted: there && old.uid != now.uid, old: old})
}

func (w *resourceWatch) dropObject(name string) {
	old := w.objects[name]
	delete(w.objects, name)
	w.session.handleChange(objectChange{resource: w.target.resource, name: name, isDeleted: true, old: old})
}

func extractFacts(m *metav1.PartialObjectMetadata) objectFacts {
	_, auto := m.Labels[automanaged]
	return objectFacts{uid: string(m.UID), version: m.ResourceVersion, terminating: m.DeletionTimestamp != nil, automanaged: auto}
}

// resumeSubscribers starts the queries of subscribers that waited for the watch, once it has listed the objects or was
// rejected.
func (w *resourceWatch) resumeSubscribers() {
	now := time.Now()
	for s := range w.subscribers {
		for _, t := range s.kinds {
			w.session.updateSchedule(t.version, now)
			if s.hasSettledWatches() {
				w.session.scheduleLook(t.version, now)
			}
		}
		if s.hasSettledWatches() {
			w.session.scheduleFirstLooks(s, now)
		}
	}
	w.session.publishChanges()
}

// giveUp stops a watch that the server rejects. The watch is retried after pauses between pollMin and pollMax, because
// a role may be bound after the start of the process.
func (w *resourceWatch) giveUp(err error) {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if w.isClosed {
		return
	}
	first := !w.isRefused
	w.isRefused = true
	w.stopReflector()
	w.retryPause = max(pollMin, min(2*w.retryPause, pollMax))
	time.AfterFunc(w.retryPause, w.reopen)
	if first {
		w.resumeSubscribers()
		w.session.detector.logRefusal(w.target, err)
	}
}

func (w *resourceWatch) reopen() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if w.session.watches[w.target] != w {
		return
	}
	w.isClosed = false
	w.session.unopened = append(w.session.unopened, w)
	w.session.publishChanges()
}

// noteDisconnect records that the watch is broken, and schedules queries, because no events arrive.
func (w *resourceWatch) noteDisconnect() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.isAway = true
	w.lookAtIdleKinds()
}

// noteEarlyEnd records that the watch ended before its timeout, possibly because the server stops.
func (w *resourceWatch) noteEarlyEnd() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.isAway = true
}

// noteConnect schedules queries after the watch was down, because it may be connected to another server now, which may
// serve other kinds. It resets the number of queries that found a kind missing, because the event that explains them
// will arrive soon. A server that has just started takes seconds to send that event.
func (w *resourceWatch) noteConnect() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if !w.isAway {
		return
	}
	for s := range w.subscribers {
		for _, t := range s.kinds {
			t.history.misses = 0
		}
	}
	w.lookAtIdleKinds()
}

func (w *resourceWatch) lookAtIdleKinds() {
	for s := range w.subscribers {
		for _, t := range s.kinds {
			w.session.lookIfIdle(t.version)
		}
	}
	w.session.startDueLooks()
}

func (w *resourceWatch) startReflector(ctx context.Context) {
	if w.isClosed {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.session.workers.Go(func() { w.session.detector.server.runWatch(ctx, w) })
}

func (w *resourceWatch) stopReflector() {
	w.isClosed = true
	if w.stop != nil {
		w.stop()
	}
}

// knowsVersion reports whether the watch has listed a CRD of the group, or the APIService of the version.
func (w *resourceWatch) knowsVersion(gv schema.GroupVersion) bool {
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

// runWatch runs one watch with a reflector, which renews it, lists again after a gap, and pauses while the server is
// unavailable. The reflector's own log is dropped, because verdicts report that the server is unavailable.
func (s *restServer) runWatch(ctx context.Context, w *resourceWatch) {
	source := &listWatcher{client: s.metadata.Resource(w.target.groupVersionResource()), watch: w}
	toolscache.NewReflectorWithOptions(
		&toolscache.ListWatch{ListWithContextFunc: source.listMetadata, WatchFuncWithContext: source.openWatch},
		&metav1.PartialObjectMetadata{}, w,
		toolscache.ReflectorOptions{Name: "detect " + w.target.resource, Backoff: &wait.Backoff{
			Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 10 * time.Second,
		}},
	).RunWithContext(logr.NewContext(ctx, logr.Discard()))
}

func (t watchTarget) groupVersionResource() schema.GroupVersionResource {
	group := "apiextensions.k8s.io"
	if t.resource == apiServiceResource {
		group = "apiregistration.k8s.io"
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: t.resource}
}

// listWatcher lists and watches. It handles errors before the reflector receives them, because the reflector retries
// after any error.
type listWatcher struct {
	client metadata.Getter
	watch  *resourceWatch
}

func (s *listWatcher) listMetadata(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := s.client.List(short, s.withNameSelector(o))
	if err != nil {
		return nil, s.handleError(ctx, err)
	}
	return list, nil
}

// openWatch sets a deadline. The server ends a watch after its timeout, so a watch that is open for longer has lost its
// connection without an error.
func (s *listWatcher) openWatch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	limit := lookTimeout
	if o.TimeoutSeconds != nil {
		limit += time.Duration(*o.TimeoutSeconds) * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	w, err := s.client.Watch(bounded, s.withNameSelector(o))
	if err != nil {
		cancel()
		return nil, s.handleError(ctx, err)
	}
	s.watch.noteConnect()
	return &boundedWatch{Interface: w, cancel: cancel, watch: s.watch, endsAt: time.Now().Add(limit - 2*lookTimeout)}, nil
}

func (s *listWatcher) withNameSelector(o metav1.ListOptions) metav1.ListOptions {
	if name := s.watch.target.name; name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return o
}

// handleError stops the watch if it is forbidden, or if the server does not serve the resource.
func (s *listWatcher) handleError(ctx context.Context, err error) error {
	switch {
	// The watch was stopped, which caused the error.
	case ctx.Err() != nil:
	case k8serrors.IsForbidden(err) || k8serrors.IsNotFound(err) || k8serrors.IsMethodNotSupported(err):
		s.watch.giveUp(err)
	default:
		s.watch.noteDisconnect()
	}
	return err
}

// boundedWatch releases the timer of its deadline when it is stopped. The reflector always stops its watch.
type boundedWatch struct {
	apiwatch.Interface

	cancel context.CancelFunc
	watch  *resourceWatch
	endsAt time.Time // endsAt is the time after which the end of the watch is expected
}

func (s *boundedWatch) Stop() {
	s.Interface.Stop()
	s.cancel()
	if time.Now().Before(s.endsAt) {
		s.watch.noteEarlyEnd()
	}
}
