// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// Kind is the counterpart of controller-runtime's source.Kind for a controller that runs all the time. It watches the
// kind of obj in the cluster while the kind is served there. The start of the controller does not wait for the kind.
func Kind[object client.Object](
	cl cluster.Cluster, obj object, h handler.TypedEventHandler[object, reconcile.Request], predicates ...predicate.TypedPredicate[object],
) source.SyncingSource {
	return &kindSource[object, reconcile.Request]{cl: cl, obj: obj, handler: h, predicates: predicates}
}

// ClusterKind is a source for many clusters, as in multicluster-runtime. ForCluster creates a source for one of them.
// The cluster is engaged whether or not it serves the kind of Object. name is the string type of cluster names.
type ClusterKind[name ~string, object client.Object, request comparable] struct {
	// Object is an object of the kind to watch.
	Object object
	// Handler creates the handler for one cluster. The handler sets the cluster's name in its requests.
	Handler func(name, cluster.Cluster) handler.TypedEventHandler[object, request]
	// Predicates filter the events of all clusters.
	Predicates []predicate.TypedPredicate[object]
}

// ForCluster returns the source for one cluster. The second result, which reports whether to engage the cluster, is
// true unless an error is returned. The source stops when the context of its start is cancelled, which happens when the
// cluster is disengaged.
func (k ClusterKind[name, object, request]) ForCluster(n name, cl cluster.Cluster) (source.TypedSource[request], bool, error) {
	if cl == nil || k.Handler == nil {
		return nil, false, errors.New("conditional.ClusterKind needs a cluster and a Handler, found nil: pass both")
	}
	if _, err := findKind(k.Object, cl.GetScheme()); err != nil {
		return nil, false, err
	}
	return &kindSource[object, request]{cl: cl, obj: k.Object, handler: k.Handler(n, cl), predicates: k.Predicates}, true, nil
}

// kindSource wraps controller-runtime's source with a cache in which the kind is optional.
type kindSource[object client.Object, request comparable] struct {
	cl         cluster.Cluster
	obj        object
	handler    handler.TypedEventHandler[object, request]
	predicates []predicate.TypedPredicate[object]
	interest   detect.Interest
}

// Start watches the kind until ctx is cancelled.
func (s *kindSource[object, request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	gvk, err := findKind(s.obj, s.cl.GetScheme())
	if err != nil {
		return err
	}
	h, release, err := process.AcquireState(process.FromCluster(s.cl), logr.FromContextOrDiscard(ctx))
	if err != nil {
		return err
	}
	cache, stop, err := scope.NewCache(s.cl, h, scope.Options{Optional: s.interest.WithKinds(gvk)})
	if err != nil {
		release()
		return err
	}
	// Start returns immediately, and a source has no method Stop. The source stops when the context of its start is
	// cancelled.
	context.AfterFunc(ctx, func() { stop(); release() })
	return source.TypedKind(cache, s.obj, s.handler, s.predicates...).Start(ctx, queue)
}

// restartableSource is a source that may be started again after the context of its last start was cancelled.
type restartableSource interface{ isRestartable() }

func (s *kindSource[object, request]) isRestartable() {}

// WaitForSync returns immediately, because a kind that is not served has nothing to sync.
func (s *kindSource[object, request]) WaitForSync(context.Context) error { return nil }

func (s *kindSource[object, request]) String() string {
	return fmt.Sprintf("conditional kind source: %T", s.obj)
}

// channelSource makes a source.Channel of controller-runtime restartable. A source.Channel reads its channel only until
// the context of its first start is cancelled. Therefore run starts it once, until the manager stops, and Start only
// sets the queue to which run forwards requests. Requests are dropped while the controller does not run.
type channelSource struct {
	source  source.Source
	current atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// isChannel reports whether source.Channel created src. Its type is not exported.
func isChannel(src source.Source) bool {
	t := reflect.TypeOf(src)
	return t != nil && t.Kind() == reflect.Pointer &&
		t.Elem().PkgPath() == reflect.TypeFor[source.Func]().PkgPath() && strings.HasPrefix(t.Elem().Name(), "channel[")
}

// run forwards the requests until ctx is cancelled. It is a manager.RunnableFunc.
func (s *channelSource) run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	context.AfterFunc(ctx, queue.ShutDown)
	if err := s.source.Start(ctx, queue); err != nil {
		return fmt.Errorf("start %v: %w", s.source, err)
	}
	for {
		request, isShutDown := queue.Get()
		if isShutDown {
			return nil
		}
		if current := s.current.Load(); current != nil {
			(*current).Add(request)
		}
		queue.Forget(request)
		queue.Done(request)
	}
}

// Start makes run forward its requests to queue until ctx is cancelled.
func (s *channelSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	current := &queue
	s.current.Store(current)
	context.AfterFunc(ctx, func() { s.current.CompareAndSwap(current, nil) })
	return nil
}

type groupWatch struct {
	source *kindSource[client.Object, reconcile.Request]
	users  int
	stop   context.CancelFunc // stop is nil while the group does not run
}

// Watch adds a watch to the group's controller without a restart. The controller watches the kind of object while that
// kind is served, until Unwatch has been called as often as Watch with this id. Every start of the group adds the watch
// to the new controller. If a watch with this id exists, the call is only counted, and its handler is not used. Reads
// of the kind with the group's client keep an informer until the group stops.
func (g *Group) Watch(id string, object client.Object, h handler.EventHandler, predicates ...predicate.Predicate) error {
	if id == "" || object == nil || h == nil {
		return fmt.Errorf("group %s: Watch needs an id, an object and a handler, found %q, %T and %T: pass all three", g.options.name, id, object, h)
	}
	if _, err := findKind(object, g.mgr.GetScheme()); err != nil {
		return fmt.Errorf("group %s: %w", g.options.name, err)
	}
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	if w := g.watches[id]; w != nil {
		w.users++
		return nil
	}
	w := &groupWatch{users: 1, source: &kindSource[client.Object, reconcile.Request]{
		cl: g.mgr, obj: object, handler: h, predicates: predicates, interest: g.optional,
	}}
	if err := g.startWatch(w); err != nil {
		return err
	}
	if g.watches == nil {
		g.watches = map[string]*groupWatch{}
	}
	g.watches[id] = w
	return nil
}

// Unwatch revokes one call of Watch. The last Unwatch for an id removes the watch.
func (g *Group) Unwatch(id string) error {
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	w := g.watches[id]
	if w == nil {
		return fmt.Errorf("group %s: expected the id of a Watch, found %q: "+
			"pass the id of a Watch that Unwatch has not removed", g.options.name, id)
	}
	if w.users--; w.users > 0 {
		return nil
	}
	delete(g.watches, id)
	if w.stop != nil {
		w.stop()
	}
	return nil
}

func (g *Group) startWatch(w *groupWatch) error {
	if g.queue == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(g.queue.Context)
	w.stop = cancel
	if err := w.source.Start(ctx, g.queue.Queue); err != nil {
		cancel()
		return fmt.Errorf("group %s: %w", g.options.name, err)
	}
	return nil
}

// useQueue starts the added watches when the group's controller starts.
func (g *Group) useQueue(q scope.ControllerQueue) error {
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	if g.queue != nil && g.queue.Context.Err() == nil {
		if len(g.watches) > 0 {
			return errors.New("expected one controller in a group with Watch, found two: set up a group for each")
		}
		return nil
	}
	g.queue = &q
	for _, w := range g.watches {
		if err := g.startWatch(w); err != nil {
			return err
		}
	}
	return nil
}
