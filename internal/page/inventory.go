// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	key       string
	canFlip   bool
	savings   sleepSavings
	attention int
}

// listing is what is kept of an object: a hundredth of it.
type listing struct {
	metav1.ObjectMeta
	switches []*listedSwitch
}

// GetObjectKind and DeepCopyObject make a listing something that informers take.
func (l *listing) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the listing itself, which nobody changes.
func (l *listing) DeepCopyObject() runtime.Object { return l }

func newListing(k torpor.Kind, obj client.Object) *listing {
	l := &listing{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}}
	for _, s := range k.DescribeSwitches(obj) {
		if s.IsUntouched() {
			continue
		}
		s = s.WithoutHistory()
		listed := &listedSwitch{Switch: s, key: s.Kind + "/" + s.Namespace + "/" + s.Name + "/" + s.Part, canFlip: k.CanFlip(s.Part) && !s.IsAsleepBySchedule(), savings: readSleepSavings(obj)}
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

// kindNamespace is where objects are seen together, and where one may or may not see them.
type kindNamespace struct{ kind, namespace string }

// inventory has what can be stopped, as watches have told last.
type inventory struct {
	mu      sync.RWMutex
	objects map[kindNamespace]map[string]*listing
	// unseen are the kinds that cannot be watched, and why.
	unseen map[string]string
	// changed is closed at the next change.
	changed chan struct{}
}

func newInventory() *inventory {
	return &inventory{objects: map[kindNamespace]map[string]*listing{}, unseen: map[string]string{}, changed: make(chan struct{})}
}

// awaitChange returns what is closed when something is no longer as it is now.
func (i *inventory) awaitChange() <-chan struct{} {
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
func (i *inventory) put(kind string, l *listing) {
	if len(l.switches) == 0 {
		if i.has(kind, l) {
			i.remove(kind, l)
		}
		return
	}
	i.change(func() {
		at := kindNamespace{kind, l.Namespace}
		if i.objects[at] == nil {
			i.objects[at] = map[string]*listing{}
		}
		i.objects[at][l.Name] = l
	})
}

func (i *inventory) has(kind string, l metav1.Object) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects[kindNamespace{kind, l.GetNamespace()}][l.GetName()] != nil
}

func (i *inventory) remove(kind string, l metav1.Object) {
	i.change(func() {
		at := kindNamespace{kind, l.GetNamespace()}
		if delete(i.objects[at], l.GetName()); len(i.objects[at]) == 0 {
			delete(i.objects, at)
		}
	})
}

// setUnseen notes why a kind is not seen; empty if it is.
func (i *inventory) setUnseen(kind, why string) {
	i.mu.RLock()
	before := i.unseen[kind]
	i.mu.RUnlock()
	if before == why {
		return
	}
	i.change(func() {
		if i.unseen[kind] = why; why == "" {
			delete(i.unseen, kind)
		}
	})
}

func (i *inventory) listUnseen() map[string]string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return maps.Clone(i.unseen)
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
func (i *inventory) watchKind(ctx context.Context, kube client.WithWatch, k torpor.Kind, namespace string) {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o}
	}
	kind := k.GVK().Kind
	put := func(obj any) {
		if l, ok := obj.(*listing); ok {
			i.put(kind, l)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := k.NewList()
				err := kube.List(ctx, list, options(o))
				i.setUnseen(kind, describeUnseen(k, err))
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := kube.Watch(ctx, k.NewList(), options(o))
				i.setUnseen(kind, describeUnseen(k, err))
				return events, err
			},
		},
		ObjectType: k.NewObject(),
		Transform: func(obj any) (any, error) {
			o, ok := obj.(client.Object)
			if _, isListed := obj.(*listing); !ok || isListed { // What is put in anew passes twice.
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
				if o, ok := obj.(metav1.Object); ok && i.has(kind, o) {
					i.remove(kind, o)
				}
			},
		},
	})
	// What goes wrong is on the page; the informer would log it again and again.
	informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// notInstalled is why a kind is not seen that the API server does not serve, which is nothing to worry about.
const notInstalled = "not installed"

func describeUnseen(k torpor.Kind, err error) string {
	switch {
	case err == nil:
		return ""
	case connection.IsKindNotServed(err), k.IsSwitched() && k8serrors.IsForbidden(err): // Workloads are stopped where that is asked for.
		return notInstalled
	case k8serrors.IsForbidden(err):
		return "torpor manager may not list them; install the feature that they belong to"
	default:
		return "the API server did not answer as expected; what is shown may be old"
	}
}
