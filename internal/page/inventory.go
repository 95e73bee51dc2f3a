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

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
)

// listedSwitch is one switch of an object as it was seen last. It is not changed after it was listed.
type listedSwitch struct {
	torpor.Switch
	kind      *torpor.Kind
	key       string
	canFlip   bool
	savings   sleepSavings
	attention int
}

// listing is what is kept of an object: the few fields that the page shows, a hundredth of its memory.
type listing struct {
	metav1.ObjectMeta
	switches []*listedSwitch
}

// GetObjectKind and DeepCopyObject make a listing something that informers take.
func (l *listing) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the listing itself, which nobody changes.
func (l *listing) DeepCopyObject() runtime.Object { return l }

func newListing(k *torpor.Kind, obj client.Object) *listing {
	l := &listing{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}}
	if !k.HasSwitches(obj) { // No StopAdapter's questions are asked of what nobody ever stopped.
		return l
	}
	for _, s := range k.DescribeSwitches(obj) {
		s = s.WithoutHistory()
		listed := &listedSwitch{Switch: s, kind: k, key: k.Name() + "/" + s.Namespace + "/" + s.Name + "/" + s.Part, canFlip: k.CanFlip(s.Part) && !s.IsAsleepBySchedule(), savings: readSleepSavings(obj)}
		listed.attention = listed.rankAttention()
		l.switches = append(l.switches, listed)
	}
	return l
}

// The order in which things want to be looked at.
const (
	attentionStuck = iota
	attentionChanging
	attentionStopped
	attentionRunning
)

func (s *listedSwitch) rankAttention() int {
	switch {
	case s.IsStuck():
		return attentionStuck
	case s.isChanging():
		return attentionChanging
	case s.Stopped:
		return attentionStopped
	default:
		return attentionRunning
	}
}

// isChanging compares what is asked for with what is reported.
func (s *listedSwitch) isChanging() bool {
	rests := slices.Contains([]string{"Hibernating", "stopped"}, s.State)
	runs := slices.Contains([]string{"Running", "running"}, s.State)
	return s.Stopped && !rests || !s.Stopped && !runs && s.State != "unknown" && s.State != "Unknown"
}

// maxForeignRows bounds the objects of one StopAdapter's kind that are kept: a namespace's people make as many as they like.
const maxForeignRows = 1000

// kindNamespace is where objects of a kind, by its name, are seen together, and where one may or may not see them.
type kindNamespace struct{ kind, namespace string }

// inventory has what can be stopped, as watches have told last.
type inventory struct {
	mu sync.RWMutex
	// kinds are those that need no StopAdapter, and then the others by name.
	kinds   []*torpor.Kind
	objects map[kindNamespace]map[string]*listing
	// places counts the kinds and namespaces that have come since the start.
	places int
	// counts are the objects that are kept of a kind, and surplus has those that are not, because there are too many.
	counts  map[string]int
	surplus map[string]map[types.NamespacedName]bool
	// unseen has where a kind cannot be watched, and why; the namespace is empty for all. unwatched is how many StopAdapters are left out, because there are too many.
	unseen    map[kindNamespace]string
	unwatched int
	// changed is closed at the next change.
	changed chan struct{}
}

func newInventory() *inventory {
	i := &inventory{
		objects: map[kindNamespace]map[string]*listing{}, counts: map[string]int{}, surplus: map[string]map[types.NamespacedName]bool{},
		unseen: map[kindNamespace]string{}, changed: make(chan struct{}),
	}
	for _, k := range torpor.ListKinds() {
		i.kinds = append(i.kinds, &k)
	}
	return i
}

// listKinds returns those that are watched now.
func (i *inventory) listKinds() []*torpor.Kind {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.kinds
}

// findKind returns one of them by its name.
func (i *inventory) findKind(name string) (*torpor.Kind, error) {
	kinds := i.listKinds()
	if at := slices.IndexFunc(kinds, func(k *torpor.Kind) bool { return k.Name() == name }); at >= 0 {
		return kinds[at], nil
	}
	return nil, fmt.Errorf("expected a kind that can be stopped, found %q", name)
}

// addKind lets callers see the kind of a StopAdapter. The list that others hold stays as it is.
func (i *inventory) addKind(k *torpor.Kind) {
	i.change(func() {
		kinds := append(slices.Clone(i.kinds), k)
		slices.SortStableFunc(kinds, func(a, b *torpor.Kind) int {
			if !a.IsForeign() || !b.IsForeign() {
				return compareEmpty(a.IsForeign(), b.IsForeign())
			}
			return strings.Compare(a.Name(), b.Name())
		})
		i.kinds = kinds
	})
}

// removeKind forgets a kind and its objects.
func (i *inventory) removeKind(k *torpor.Kind) {
	i.change(func() {
		i.kinds = slices.DeleteFunc(slices.Clone(i.kinds), func(one *torpor.Kind) bool { return one == k })
		i.clear(k.Name(), "")
		maps.DeleteFunc(i.unseen, func(at kindNamespace, _ string) bool { return at.kind == k.Name() })
	})
}

// clear forgets the objects of a kind, in one namespace or in all; the lock is held.
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

// changeChannel returns what is closed when something is no longer as it is now.
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

// put keeps what has switches. Most Deployments and their like have none, and their changes are nobody's matter.
func (i *inventory) put(k *torpor.Kind, l *listing) {
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

// has reports whether an object is kept, or left out.
func (i *inventory) has(k *torpor.Kind, l metav1.Object) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects[kindNamespace{k.Name(), l.GetNamespace()}][l.GetName()] != nil || i.surplus[k.Name()][types.NamespacedName{Namespace: l.GetNamespace(), Name: l.GetName()}]
}

func (i *inventory) remove(k *torpor.Kind, l metav1.Object) {
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

// setUnseen notes why a kind is not seen in a namespace, or in all; empty if it is. What was seen is forgotten where it cannot be there any more, or
// nobody may look.
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

// isUnseen reports whether a kind cannot be watched somewhere.
func (i *inventory) isUnseen(k *torpor.Kind) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for at := range i.unseen {
		if at.kind == k.Name() {
			return true
		}
	}
	return false
}

// setUnwatched notes how many StopAdapters there are too many.
func (i *inventory) setUnwatched(n int) {
	if i.listGaps().unwatched != n {
		i.change(func() { i.unwatched = n })
	}
}

// inventoryGaps is what of the inventory is not shown, or not as it is now.
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

// placesVersion changes when objects of a kind are somewhere where none were before.
func (i *inventory) placesVersion() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.places
}

// listNamespaces returns where objects of a kind are, in order.
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

// listSwitches returns the switches in all places that a function lets through.
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

// watchKind keeps the objects of a kind in the inventory until ctx ends, also where the kind comes later.
func (i *inventory) watchKind(ctx context.Context, kube client.WithWatch, k *torpor.Kind, namespace string) {
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
		ObjectType: k.NewObject(),
		Transform: func(obj any) (any, error) {
			o, ok := obj.(client.Object)
			if _, isListed := obj.(*listing); !ok || isListed { // A transform may see what it has returned before.
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
	// What goes wrong is on the page; the informer would log it again and again.
	informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

const (
	// notInstalled is why a kind is not seen that the API server does not serve, which is nothing to worry about.
	notInstalled = "not installed"
	// noRole is why that of a StopAdapter is not seen: somebody has to give the rights.
	noRole = "torpor manager may not list them; make the ClusterRole that their StopAdapter needs"
	// noAnswer is why what is shown may be another thing than what is there.
	noAnswer = "the API server did not answer as expected; what is shown may be old"
)

func describeUnseen(k *torpor.Kind, err error) string {
	switch {
	case err == nil:
		return ""
	case k.IsForeign() && k8serrors.IsForbidden(err):
		return noRole
	case connection.IsKindNotServed(err), k.IsSwitched() && k8serrors.IsForbidden(err): // Workloads are stopped where that is asked for.
		return notInstalled
	case k8serrors.IsForbidden(err):
		return "torpor manager may not list them; install the feature that they belong to"
	default:
		return noAnswer
	}
}
