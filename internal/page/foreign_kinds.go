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
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
)

// maxForeignKinds bounds the kinds of StopAdapters that are watched.
const maxForeignKinds = 50

// listedAdapter is what is kept of a StopAdapter.
type listedAdapter struct {
	metav1.ObjectMeta
	// kind is nil of one that makes no sense, which its own status says.
	kind *torpor.Kind
	// ready is the reason of its condition, which changes when the kind comes or goes, or the right to it.
	ready string
}

// GetObjectKind and DeepCopyObject make it something that informers take.
func (a *listedAdapter) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the adapter itself, which nobody changes.
func (a *listedAdapter) DeepCopyObject() runtime.Object { return a }

func listAdapter(a *torporv1alpha1.StopAdapter) *listedAdapter {
	listed := &listedAdapter{ObjectMeta: metav1.ObjectMeta{Name: a.Name, UID: a.UID, Generation: a.Generation, ResourceVersion: a.ResourceVersion}}
	if c := meta.FindStatusCondition(a.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition); c != nil {
		listed.ready = c.Reason
	}
	if k, err := torpor.NewForeignKind(a); err == nil {
		listed.kind = &k
	}
	return listed
}

// foreignKinds keeps the kinds of StopAdapters in the inventory. The controllers that stop their objects run on the leader only, so that every
// replica watches them itself. One goroutine uses it.
type foreignKinds struct {
	config     *rest.Config
	http       *http.Client
	scheme     *runtime.Scheme
	namespaces []string
	inventory  *inventory
	log        logr.Logger
	watched    map[string]*foreignWatch
}

// foreignWatch are the watches of one StopAdapter's kind.
type foreignWatch struct {
	of   *listedAdapter
	stop func()
}

// run follows the StopAdapters until ctx ends. Where nobody may list them, or nobody has installed them, there are none.
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

// noteAnswer tells callers when the StopAdapters cannot be read. Where the feature is not installed there are none to read.
func (f *foreignKinds) noteAnswer(err error) error {
	why := ""
	if err != nil && !connection.IsKindNotServed(err) && !k8serrors.IsForbidden(err) {
		why = noAnswer
	}
	f.inventory.setUnseen(torporv1alpha1.StopAdapterKind().Kind, "", why)
	return err
}

// follow has the watches be those of the adapters that there are.
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

// chooseAdapters returns those that make sense, by name, and how many more there are than are watched. A kind of which the manager says that it is
// not served is not asked for again and again.
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

// needsRestart reports whether an adapter is another one by now. A kind that could not be seen is looked for again, too, when the manager reports
// that it may be read: an informer would find that out half a minute later.
func (f *foreignKinds) needsRestart(is, next *listedAdapter) bool {
	return is.UID != next.UID || is.Generation != next.Generation || is.ready != next.ready && f.inventory.isUnseen(is.kind)
}

// watch begins to watch the kind of an adapter.
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
	of := *a // What the informer keeps is not changed.
	f.watched[a.Name] = &foreignWatch{of: &of, stop: func() {
		cancel()
		watches.Wait()
	}}
}

// newMapper returns a mapper of the kinds that callers read and write now.
func (i *inventory) newMapper() *meta.DefaultRESTMapper {
	var own []schema.GroupVersionKind
	var foreign []*torpor.Kind
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
