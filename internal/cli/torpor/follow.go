// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/liggitt/tabwriter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// follower prints rows when they change, until somebody ends the program.
type follower struct {
	*statusCommand
	kube     *kubeClient
	selector labels.Selector
	// mu guards what follows: each kind is watched by itself.
	mu    sync.Mutex
	table alignedTable
	rows  map[rowKey]stopRow
	err   error
	// slumbers are those that were read last, and slumbersReadAt when that was.
	slumbers       []torporv1alpha1.Slumber
	slumbersReadAt time.Time
}

// slumbersInterval is how old the Slumbers may be that a changed row is shown with.
const slumbersInterval = 30 * time.Second

// rowKey is what names a row.
type rowKey struct {
	kind                  schema.GroupKind
	namespace, name, part string
}

func (r stopRow) key() rowKey { return rowKey{r.groupKind, r.Namespace, r.Name, r.Part} }

// withoutHistory is what two rows are compared by: what is shown, and not what the record has of earlier stops.
func (r stopRow) withoutHistory() stopRow {
	r.stops, r.conditions, r.labels, r.pastScheduled = nil, nil, nil, nil
	return r
}

// shown is what two rows of a follower are compared by. NEXT tells of the schedule what is shown.
func (r stopRow) shown() stopRow {
	r = r.withoutHistory()
	r.Schedule = nil
	return r
}

// follow prints the rows that were found, and then each that changes. What is deleted is told.
func (s *statusCommand) follow(ctx context.Context, kube *kubeClient, selector labels.Selector, found []stopRow) error {
	f := &follower{statusCommand: s, kube: kube, selector: selector, table: newAlignedTable(s.Out), rows: map[rowKey]stopRow{}}
	for _, r := range found {
		f.rows[r.key()] = r.shown()
	}
	if err := f.table.write(append([][]string{s.headings()}, s.cellsOf(found)...)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var kinds sync.WaitGroup
	all, err := kube.listKinds(ctx)
	if err != nil {
		return err
	}
	isFollowing := false
	for _, k := range all {
		// A kind that is not served, or that may not be listed, was told of with the first table. After another error the watch lists it again.
		if _, isServed, err := kube.listRows(ctx, k, selector); !isServed || errors.Is(err, errForbidden) {
			continue
		}
		isFollowing = true
		kinds.Go(func() { f.followKind(ctx, cancel, k) })
	}
	kinds.Wait()
	switch {
	case f.err != nil:
		return f.err
	case !isFollowing:
		return fmt.Errorf("expected a kind that can be followed in %s, found none that is served and that you may list any more; see kubectl torpor status", kube.namespaceText())
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("follow what can be stopped: %w", err)
	}
	return nil // Somebody has seen enough.
}

// followKind watches the objects of a kind, and again whenever a watch ends.
func (f *follower) followKind(ctx context.Context, stop context.CancelFunc, k stoppableKind) {
	changed := func(obj any, isGone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f.show(ctx, k.describe(o.DeepCopyObject().(client.Object)), isGone, stop)
		}
	}
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: f.kube.namespace, LabelSelector: f.selector, Raw: &o}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := k.newList()
				return list, f.kube.List(ctx, list, options(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return f.kube.Watch(ctx, k.newList(), options(o))
			},
		},
		ObjectType: k.newObject(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { changed(obj, false) },
			UpdateFunc: func(_, obj any) { changed(obj, false) },
			DeleteFunc: func(obj any) { changed(obj, true) },
		},
	})
	informer.RunWithContext(ctx)
}

// show prints the rows of an object that are not as they were.
func (f *follower) show(ctx context.Context, rows []stopRow, isGone bool, stop context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshSlumbers(ctx)
	f.addSchedules(rows, f.slumbers)
	var changed []stopRow
	for _, r := range rows {
		if isGone {
			r.State, r.Next, r.Message = "deleted", "", ""
		}
		before, isKnown := f.rows[r.key()]
		if !isKnown && r.isUntouched {
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

// refreshSlumbers reads the Slumbers again where they may have changed. Those that were read before count as long as there is no answer. It is called with
// the lock held.
func (f *follower) refreshSlumbers(ctx context.Context) {
	now := f.clock.Now()
	if !f.slumbersReadAt.IsZero() && now.Sub(f.slumbersReadAt) < slumbersInterval {
		return
	}
	f.slumbersReadAt = now
	if slumbers, err := f.kube.readSlumbers(ctx, f.kube.namespace); err == nil {
		f.slumbers = slumbers
	}
}

// alignedTable writes rows in columns as wide as the widest cell so far, so that rows which come later stand below the first, as those of
// kubectl get --watch do.
type alignedTable struct{ columns *tabwriter.Writer }

func newAlignedTable(out io.Writer) alignedTable {
	const gap = 3
	return alignedTable{tabwriter.NewWriter(out, 0, 0, gap, ' ', tabwriter.RememberWidths)}
}

func (t alignedTable) write(rows [][]string) error {
	for _, cells := range rows {
		if _, err := fmt.Fprintln(t.columns, strings.Join(cells, "\t")); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if err := t.columns.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
