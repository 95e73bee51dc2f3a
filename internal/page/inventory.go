// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// listedSwitch is one switch of an object, as last observed. It is immutable.
type listedSwitch struct {
	kinds.Row
	kind *kinds.Kind
	key  string
	// title is the display name of the object if it can be shown, otherwise its name.
	title   string
	savings kinds.Savings
	// labels may contain the owner of an object with savings.
	labels  map[string]string
	history stopHistory
}

// listing is the part of an object that is kept in memory. It contains only the fields that the page shows, about a
// hundredth of the object.
type listing struct {
	metav1.ObjectMeta
	switches []*listedSwitch
}

// GetObjectKind implements runtime.Object, as informers require.
func (l *listing) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It returns the listing itself, which is never changed.
func (l *listing) DeepCopyObject() runtime.Object { return l }

func newListing(k *kinds.Kind, obj client.Object) *listing {
	l := &listing{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}}
	if !k.HasRows(obj) { // Do not evaluate a StopAdapter's expressions for objects that were never stopped.
		return l
	}
	for _, row := range k.DescribeRows(obj) {
		l.switches = append(l.switches, newListedSwitch(k, obj, row))
	}
	return l
}

func newListedSwitch(k *kinds.Kind, obj client.Object, row kinds.Row) *listedSwitch {
	history, saved := newStopHistory(row), readSavings(k, obj)
	row = row.WithoutHistory()
	return &listedSwitch{
		Row: row, kind: k, key: k.Name() + "/" + row.Namespace + "/" + row.Name + "/" + row.Part,
		title: row.ShownName(), savings: saved, labels: keptLabels(saved, obj), history: history,
	}
}

// maxForeignRows limits the number of objects per StopAdapter kind, because the users of a namespace can create any
// number of objects.
const maxForeignRows = 1000

// kindNamespace is the name of a kind, and a namespace. Watches and visibility are defined per kind and namespace.
type kindNamespace struct{ kind, namespace string }

// inventory holds the stoppable objects, as last reported by the watches.
type inventory struct {
	mu sync.RWMutex
	// kinds lists the kinds that need no StopAdapter, followed by the kinds of StopAdapters in the order of their
	// names.
	kinds   []*kinds.Kind
	objects map[kindNamespace]map[string]*listing
	// places counts how often since the start a namespace got its first object of a kind.
	places int
	// counts is the number of stored objects by kind. surplus holds the objects beyond maxForeignRows.
	counts  map[string]int
	surplus map[string]map[types.NamespacedName]bool
	// unseen holds the reasons why kinds cannot be watched. An empty namespace means all namespaces. unwatched is the
	// number of StopAdapters beyond maxForeignKinds.
	unseen    map[kindNamespace]string
	unwatched int
	// acting describes the active managers, if known.
	acting lease.Acting
	// changed is closed at the next change.
	changed chan struct{}
}

func newInventory() *inventory {
	i := &inventory{
		objects: map[kindNamespace]map[string]*listing{}, counts: map[string]int{}, surplus: map[string]map[types.NamespacedName]bool{},
		unseen: map[kindNamespace]string{}, changed: make(chan struct{}),
	}
	for _, k := range kinds.ListBuiltIn() {
		i.kinds = append(i.kinds, &k)
	}
	return i
}

// listKinds returns the kinds that are currently watched.
func (i *inventory) listKinds() []*kinds.Kind {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.kinds
}

// findKind returns a watched kind by its name.
func (i *inventory) findKind(name string) (*kinds.Kind, error) {
	all := i.listKinds()
	if at := slices.IndexFunc(all, func(k *kinds.Kind) bool { return k.Name() == name }); at >= 0 {
		return all[at], nil
	}
	return nil, fmt.Errorf("expected a kind that can be stopped, found %q", name)
}

// addKind adds the kind of a StopAdapter. It replaces the slice, because callers may still use the old slice.
func (i *inventory) addKind(k *kinds.Kind) {
	i.change(func() {
		all := append(slices.Clone(i.kinds), k)
		slices.SortStableFunc(all, func(a, b *kinds.Kind) int {
			if !a.IsForeign() || !b.IsForeign() {
				return compareEmpty(a.IsForeign(), b.IsForeign())
			}
			return strings.Compare(a.Name(), b.Name())
		})
		i.kinds = all
	})
}

// removeKind removes a kind and its objects.
func (i *inventory) removeKind(k *kinds.Kind) {
	i.change(func() {
		i.kinds = slices.DeleteFunc(slices.Clone(i.kinds), func(one *kinds.Kind) bool { return one == k })
		i.clear(k.Name(), "")
		maps.DeleteFunc(i.unseen, func(at kindNamespace, _ string) bool { return at.kind == k.Name() })
	})
}

// clear removes the objects of a kind, in one namespace or in all. The caller must hold the lock.
func (i *inventory) clear(kind, namespace string) {
	isThere := func(found string) bool { return namespace == "" || namespace == found }
	for at, objects := range i.objects {
		if at.kind == kind && isThere(at.namespace) {
			i.counts[kind] -= len(objects)
			delete(i.objects, at)
		}
	}
	maps.DeleteFunc(i.surplus[kind], func(name types.NamespacedName, _ bool) bool { return isThere(name.Namespace) })
}

// changeChannel returns a channel that is closed at the next change.
func (i *inventory) changeChannel() <-chan struct{} {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.changed
}

func (i *inventory) change(apply func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	apply()
	close(i.changed)
	i.changed = make(chan struct{})
}

// put stores an object that has switches, and removes an object without switches. Most Deployments and similar objects
// were never stopped, so they have no switches and do not cause a change.
func (i *inventory) put(k *kinds.Kind, l *listing) {
	if len(l.switches) == 0 {
		if i.has(k, l) {
			i.remove(k, l)
		}
		return
	}
	i.change(func() {
		kind, at, name := k.Name(), kindNamespace{k.Name(), l.Namespace}, types.NamespacedName{Namespace: l.Namespace, Name: l.Name}
		isNew := i.objects[at][l.Name] == nil
		if isNew && k.IsForeign() && i.counts[kind] >= maxForeignRows {
			if i.surplus[kind] == nil {
				i.surplus[kind] = map[types.NamespacedName]bool{}
			}
			i.surplus[kind][name], l.switches = true, nil
			return
		}
		delete(i.surplus[kind], name)
		if i.objects[at] == nil {
			i.objects[at] = map[string]*listing{}
			i.places++
		}
		if isNew {
			i.counts[kind]++
		}
		i.objects[at][l.Name] = l
	})
}

// has reports whether an object is stored, or was omitted because of the limit.
func (i *inventory) has(k *kinds.Kind, l metav1.Object) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects[kindNamespace{k.Name(), l.GetNamespace()}][l.GetName()] != nil || i.surplus[k.Name()][types.NamespacedName{Namespace: l.GetNamespace(), Name: l.GetName()}]
}

func (i *inventory) remove(k *kinds.Kind, l metav1.Object) {
	i.change(func() {
		at := kindNamespace{k.Name(), l.GetNamespace()}
		delete(i.surplus[at.kind], types.NamespacedName{Namespace: l.GetNamespace(), Name: l.GetName()})
		if i.objects[at][l.GetName()] == nil {
			return
		}
		i.counts[at.kind]--
		if delete(i.objects[at], l.GetName()); len(i.objects[at]) == 0 {
			delete(i.objects, at)
		}
	})
}

// setUnseen stores the reason why a kind cannot be watched in a namespace, or in all namespaces. An empty reason means
// that the kind can be watched. For the reasons notInstalled and noRole, the objects of the kind are removed.
func (i *inventory) setUnseen(kind, namespace, why string) {
	at := kindNamespace{kind, namespace}
	i.mu.RLock()
	before := i.unseen[at]
	i.mu.RUnlock()
	if before == why {
		return
	}
	i.change(func() {
		if i.unseen[at] = why; why == "" {
			delete(i.unseen, at)
		}
		if why == notInstalled || why == noRole {
			i.clear(kind, namespace)
		}
	})
}

// isUnseen reports whether a kind cannot be watched in at least one namespace.
func (i *inventory) isUnseen(k *kinds.Kind) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for at := range i.unseen {
		if at.kind == k.Name() {
			return true
		}
	}
	return false
}

// setUnwatched stores the number of StopAdapters beyond the limit.
func (i *inventory) setUnwatched(n int) {
	if i.listGaps().unwatched != n {
		i.change(func() { i.unwatched = n })
	}
}

// inventoryGaps describes which parts of the inventory are missing or outdated.
type inventoryGaps struct {
	unseen    map[kindNamespace]string
	crowded   []string
	unwatched int
}

func (i *inventory) listGaps() inventoryGaps {
	i.mu.RLock()
	defer i.mu.RUnlock()
	gaps := inventoryGaps{unseen: maps.Clone(i.unseen), unwatched: i.unwatched}
	for kind, left := range i.surplus {
		if len(left) > 0 {
			gaps.crowded = append(gaps.crowded, kind)
		}
	}
	slices.Sort(gaps.crowded)
	return gaps
}

// placesVersion returns a number that changes when a namespace gets its first object of a kind.
func (i *inventory) placesVersion() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.places
}

// listNamespaces returns the namespaces with objects of a kind, sorted.
func (i *inventory) listNamespaces(kind string) []string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var namespaces []string
	for at := range i.objects {
		if at.kind == kind {
			namespaces = append(namespaces, at.namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// listSwitches returns the switches in all places for which isVisible returns true.
func (i *inventory) listSwitches(isVisible func(kindNamespace) bool) []*listedSwitch {
	i.mu.RLock()
	defer i.mu.RUnlock()
	var all []*listedSwitch
	for at, objects := range i.objects {
		if !isVisible(at) {
			continue
		}
		for _, l := range objects {
			all = append(all, l.switches...)
		}
	}
	return all
}

// watchKind updates the objects of a kind in the inventory until ctx is cancelled. The kind may be installed later.
func (i *inventory) watchKind(ctx context.Context, kube client.WithWatch, k *kinds.Kind, namespace string) {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o}
	}
	put := func(obj any) {
		if l, ok := obj.(*listing); ok {
			i.put(k, l)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := k.NewList()
				err := kube.List(ctx, list, options(o))
				i.setUnseen(k.Name(), namespace, describeUnseen(k, err))
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := kube.Watch(ctx, k.NewList(), options(o))
				i.setUnseen(k.Name(), namespace, describeUnseen(k, err))
				return events, err
			},
		},
		ObjectType: k.New(),
		Transform: func(obj any) (any, error) {
			o, ok := obj.(client.Object)
			if _, isListed := obj.(*listing); !ok || isListed { // A transform may get an object that it has already returned.
				return obj, nil
			}
			return newListing(k, o), nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    put,
			UpdateFunc: func(_, obj any) { put(obj) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				if o, ok := obj.(metav1.Object); ok && i.has(k, o) {
					i.remove(k, o)
				}
			},
		},
	})
	// The page shows these errors. The informer would log them repeatedly.
	informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

const (
	// notInstalled is the reason for a kind that the API server does not serve, or whose feature is not installed. It
	// does not cause a warning.
	notInstalled = "not installed"
	// noRole is the reason for a StopAdapter kind that the manager may not list, so an administrator has to grant the
	// rights.
	noRole = "torpor manager may not list objects of this kind; create the ClusterRole that the StopAdapter needs"
	// noAnswer is the reason for a failed list or watch, after which the rows may be outdated.
	noAnswer = "the API server did not answer as expected; the rows may be outdated"
)

func describeUnseen(k *kinds.Kind, err error) string {
	switch {
	case err == nil:
		return ""
	case k.IsForeign() && k8serrors.IsForbidden(err):
		return noRole
	// Without the feature workloads, the manager may not list these kinds.
	case kinds.IsKindNotServed(err), k.IsSwitched() && k8serrors.IsForbidden(err):
		return notInstalled
	case k8serrors.IsForbidden(err):
		return "torpor manager may not list objects of this kind; install the feature that manages the kind"
	default:
		return noAnswer
	}
}
