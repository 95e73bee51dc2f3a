// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

// maxForeignKinds limits the number of StopAdapter kinds that are watched.
const maxForeignKinds = 50

// listedAdapter is the part of a StopAdapter that is kept in memory.
type listedAdapter struct {
	metav1.ObjectMeta
	// kind is nil for an invalid StopAdapter, whose own status reports the error.
	kind *kinds.Kind
	// ready is the reason of the Ready condition. It changes when the kind, or the right to list it, becomes available
	// or unavailable.
	ready string
}

// GetObjectKind implements runtime.Object, as informers require.
func (a *listedAdapter) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It returns the adapter itself, which is never changed.
func (a *listedAdapter) DeepCopyObject() runtime.Object { return a }

func listAdapter(a *torporv1alpha1.StopAdapter) *listedAdapter {
	listed := &listedAdapter{ObjectMeta: metav1.ObjectMeta{Name: a.Name, UID: a.UID, Generation: a.Generation, ResourceVersion: a.ResourceVersion}}
	if c := meta.FindStatusCondition(a.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition); c != nil {
		listed.ready = c.Reason
	}
	if k, err := stopadapter.NewKind(a); err == nil {
		listed.kind = &k
	}
	return listed
}

// foreignKinds keeps the kinds of StopAdapters in the inventory. It watches the StopAdapters itself on every replica,
// because the StopAdapter controllers run only on the leader. Only one goroutine may use it.
type foreignKinds struct {
	config     *rest.Config
	http       *http.Client
	scheme     *runtime.Scheme
	namespaces []string
	inventory  *inventory
	log        logr.Logger
	watched    map[string]*foreignWatch
}

// foreignWatch is the running watch for the kind of one StopAdapter.
type foreignWatch struct {
	of   *listedAdapter
	stop func()
}

// run follows the StopAdapters until ctx is cancelled. If they are not served or may not be listed, it does not
// watch any of their kinds.
func (f *foreignKinds) run(ctx context.Context, kube client.WithWatch) {
	f.watched = map[string]*foreignWatch{}
	var known cache.Store
	follow := func() { f.follow(ctx, known.List()) }
	known, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := &torporv1alpha1.StopAdapterList{}
				return list, f.noteAnswer(kube.List(ctx, list, &client.ListOptions{Raw: &o}))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := kube.Watch(ctx, &torporv1alpha1.StopAdapterList{}, &client.ListOptions{Raw: &o})
				return events, f.noteAnswer(err)
			},
		},
		ObjectType: &torporv1alpha1.StopAdapter{},
		Transform: func(obj any) (any, error) {
			if a, ok := obj.(*torporv1alpha1.StopAdapter); ok {
				return listAdapter(a), nil
			}
			return obj, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(any) { follow() }, UpdateFunc: func(any, any) { follow() }, DeleteFunc: func(any) { follow() }},
	})
	informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
	f.follow(ctx, nil)
}

// noteAnswer records whether the StopAdapters can be read. The page shows a warning if they cannot. A missing kind or a
// missing right does not cause a warning.
func (f *foreignKinds) noteAnswer(err error) error {
	why := ""
	if err != nil && !kinds.IsKindNotServed(err) && !k8serrors.IsForbidden(err) {
		why = noAnswer
	}
	f.inventory.setUnseen(torporv1alpha1.StopAdapterKind().Kind, "", why)
	return err
}

// follow starts and stops watches according to the known adapters.
func (f *foreignKinds) follow(ctx context.Context, known []any) {
	wanted, surplus := chooseAdapters(known)
	f.inventory.setUnwatched(surplus)
	for name, one := range f.watched {
		if next := wanted[name]; next == nil || f.needsRestart(one.of, next) {
			one.stop()
			f.inventory.removeKind(one.of.kind)
			delete(f.watched, name)
		} else {
			one.of.ready = next.ready
		}
	}
	for name, a := range wanted {
		if f.watched[name] == nil {
			f.watch(ctx, a)
		}
	}
}

// chooseAdapters returns the valid adapters by name, and the number of adapters beyond the limit. It omits kinds that
// are not served according to the manager, to avoid repeated requests that fail.
func chooseAdapters(known []any) (wanted map[string]*listedAdapter, surplus int) {
	var all []*listedAdapter
	for _, obj := range known {
		if a, ok := obj.(*listedAdapter); ok && a.kind != nil && a.ready != torporv1alpha1.StopAdapterDormantReason {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *listedAdapter) int { return strings.Compare(a.Name, b.Name) })
	surplus = max(0, len(all)-maxForeignKinds)
	wanted = map[string]*listedAdapter{}
	for _, a := range all[:len(all)-surplus] {
		wanted[a.Name] = a
	}
	return wanted, surplus
}

// needsRestart reports whether the watch for an adapter must be restarted. This is so if the adapter has changed, or if
// the readiness of an unseen kind has changed, because the informer would detect this only half a minute later.
func (f *foreignKinds) needsRestart(is, next *listedAdapter) bool {
	return is.UID != next.UID || is.Generation != next.Generation || is.ready != next.ready && f.inventory.isUnseen(is.kind)
}

// watch starts the watches of an adapter's kind.
func (f *foreignKinds) watch(ctx context.Context, a *listedAdapter) {
	mapper := meta.NewDefaultRESTMapper(nil)
	a.kind.AddToMapper(mapper)
	kube, err := client.NewWithWatch(f.config, client.Options{HTTPClient: f.http, Scheme: f.scheme, Mapper: mapper})
	if err != nil {
		f.log.Error(err, "the kind of a StopAdapter cannot be watched", "stopadapter", a.Name)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	f.inventory.addKind(a.kind)
	for _, namespace := range f.namespaces {
		watches.Go(func() { f.inventory.watchKind(ctx, kube, a.kind, namespace) })
	}
	of := *a // The informer's object must not be changed.
	f.watched[a.Name] = &foreignWatch{of: &of, stop: func() {
		cancel()
		watches.Wait()
	}}
}

// newMapper returns a mapper for the kinds that callers can currently read and write.
func (i *inventory) newMapper() *meta.DefaultRESTMapper {
	var own []schema.GroupVersionKind
	var foreign []*kinds.Kind
	for _, k := range i.listKinds() {
		if k.IsForeign() {
			foreign = append(foreign, k)
		} else {
			own = append(own, k.GVK())
		}
	}
	mapper := authorization.NewRESTMapper(own)
	for _, k := range foreign {
		k.AddToMapper(mapper)
	}
	return mapper
}
