// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/coexist/lease"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// follower prints rows when they change, until the user ends the program.
type follower struct {
	*statusCommand
	kube     *kubeClient
	selector labels.Selector
	// mu guards the fields below, because each kind has its own watch.
	mu    sync.Mutex
	table *alignedTable
	rows  map[rowKey]stopRow
	err   error
	// slumbers and acting are the Slumbers and the active manager as of slumbersReadAt.
	slumbers       []torporv1alpha1.Slumber
	acting         lease.Acting
	slumbersReadAt time.Time
}

// slumbersInterval is how long the Slumbers are reused before they are read again.
const slumbersInterval = 30 * time.Second

// rowKey identifies a row.
type rowKey struct {
	kind                  schema.GroupKind
	namespace, name, part string
}

func (r stopRow) key() rowKey { return rowKey{r.GroupKind, r.Namespace, r.Name, r.Part} }

// shown returns the fields of a row that a follower compares. NEXT already contains the visible part of the schedule.
func (r stopRow) shown() stopRow {
	r.Row, r.Schedule = r.WithoutHistory(), nil
	return r
}

// follow prints the rows, and then each row that changes or is deleted.
func (s *statusCommand) follow(ctx context.Context, kube *kubeClient, selector labels.Selector, found []stopRow) error {
	table := newAlignedTable(s.Out, s.headings()...)
	f := &follower{statusCommand: s, kube: kube, selector: selector, table: table, rows: map[rowKey]stopRow{}}
	for _, r := range found {
		f.rows[r.key()] = r.shown()
	}
	if err := f.table.write(s.cellsOf(found)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watches sync.WaitGroup
	all, err := kube.listKinds(ctx)
	if err != nil {
		return err
	}
	isFollowing := false
	for _, k := range all {
		// The first table already reported a kind that is not served or not listable. After another error the watch
		// lists the kind again.
		if _, isServed, err := kube.listRows(ctx, k, selector); !isServed || errors.Is(err, errForbidden) {
			continue
		}
		isFollowing = true
		watches.Go(func() { f.followKind(ctx, cancel, k) })
	}
	watches.Wait()
	switch {
	case f.err != nil:
		return f.err
	case !isFollowing:
		return fmt.Errorf(
			"expected a kind that can be followed in %s, found none that is served and that you may list; see kubectl torpor status", kube.namespaceText())
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("watch the stoppable objects: %w", err)
	}
	return nil // The user has ended the program.
}

// followKind watches the objects of a kind, and restarts a watch that ends.
func (f *follower) followKind(ctx context.Context, stop context.CancelFunc, k kinds.Kind) {
	changed := func(obj any, isGone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f.show(ctx, describeRows(k, o.DeepCopyObject().(client.Object)), isGone, stop)
		}
	}
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: f.kube.namespace, LabelSelector: f.selector, Raw: &o}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := k.NewList()
				return list, f.kube.List(ctx, list, options(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return f.kube.Watch(ctx, k.NewList(), options(o))
			},
		},
		ObjectType: k.New(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { changed(obj, false) },
			UpdateFunc: func(_, obj any) { changed(obj, false) },
			DeleteFunc: func(obj any) { changed(obj, true) },
		},
	})
	informer.RunWithContext(ctx)
}

// show prints the rows of an object that have changed.
func (f *follower) show(ctx context.Context, rows []stopRow, isGone bool, stop context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshSlumbers(ctx)
	f.addSchedules(rows, f.slumbers)
	hideSharedNames(rows, slices.AppendSeq(slices.Clone(rows), maps.Values(f.rows)))
	addGaps(rows, f.acting)
	var changed []stopRow
	for _, r := range rows {
		if isGone {
			r.State, r.Next, r.Message = "deleted", "", ""
		}
		before, isKnown := f.rows[r.key()]
		if !isKnown && r.IsUntouched {
			continue
		}
		if isKnown && reflect.DeepEqual(before, r.shown()) {
			continue
		}
		changed = append(changed, r)
		if f.rows[r.key()] = r.shown(); isGone {
			delete(f.rows, r.key())
		}
	}
	if err := f.table.write(f.cellsOf(changed)); err != nil && f.err == nil {
		f.err = err
		stop()
	}
}

// refreshSlumbers reads the Slumbers again once slumbersInterval has passed. After an error the earlier ones stay in
// use. The caller holds the lock.
func (f *follower) refreshSlumbers(ctx context.Context) {
	now := f.clock.Now()
	if !f.slumbersReadAt.IsZero() && now.Sub(f.slumbersReadAt) < slumbersInterval {
		return
	}
	f.slumbersReadAt, f.acting = now, connection.ReadActing(ctx, f.kube, now)
	if slumbers, err := f.kube.readSlumbers(ctx, f.kube.namespace); err == nil {
		f.slumbers = slumbers
	}
}
