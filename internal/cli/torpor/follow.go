// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// follower prints rows when they change, until the user ends the program.
type follower struct {
	*statusCommand
	kube *kubeClient
	// mu guards the fields below, because several watches run concurrently.
	mu    sync.Mutex
	table *alignedTable
	rows  map[rowKey]stopRow
	err   error
	// schedules and acting are the schedules and the active manager as of schedulesReadAt.
	schedules       slumber.Schedules
	acting          lease.Acting
	schedulesReadAt time.Time
}

// watchScope defines which objects of a kind are followed.
type watchScope struct {
	kind     kinds.Kind
	selector labels.Selector
	// name is the name of a single object. It is empty for all objects that the selector selects.
	name string
	// isNamed is true if the user named the kind or the object. If false, objects that were never stopped and kinds
	// that cannot be listed are omitted.
	isNamed bool
}

// listOptions returns the options of list and watch requests.
func (w watchScope) listOptions(kube *kubeClient, raw *metav1.ListOptions) *client.ListOptions {
	options := &client.ListOptions{Namespace: kube.namespace, LabelSelector: w.selector, Raw: raw}
	if w.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name)
	}
	return options
}

// check reports whether the objects can be followed: the API server serves the kind, and the user may list it. If
// isNamed is true, it returns an error instead of false.
func (w watchScope) check(ctx context.Context, kube *kubeClient) (canFollow bool, err error) {
	err = kube.List(ctx, w.kind.NewList(), w.listOptions(kube, &metav1.ListOptions{Limit: 1}))
	isRefused := connection.IsKindNotServed(err) || k8serrors.IsForbidden(err)
	switch {
	case !isRefused: // After any other error, the watch lists the objects again.
		return true, nil
	case w.isNamed:
		return false, fmt.Errorf("watch %s: %w", w.kind.Names()[0], err)
	default:
		return false, nil // The first table has already reported this kind.
	}
}

// schedulesInterval is how long schedules are used before they are read again.
const schedulesInterval = 30 * time.Second

// rowKey identifies a row.
type rowKey struct {
	kind                  schema.GroupKind
	namespace, name, part string
}

func (r stopRow) key() rowKey { return rowKey{r.GroupKind, r.Namespace, r.Name, r.Part} }

// shown returns the row with only the fields that a follower compares. The column NEXT already contains the visible
// part of the schedule.
func (r stopRow) shown() stopRow {
	r.Row, r.Schedule = r.WithoutHistory(), nil
	return r
}

// follow prints the rows, and then each row that changes or is deleted. Without scopes it follows every kind.
func (s *statusCommand) follow(ctx context.Context, kube *kubeClient, scopes []watchScope, selector labels.Selector, found []stopRow) error {
	f := &follower{statusCommand: s, kube: kube, table: newAlignedTable(s.Out, s.headings()...), rows: map[rowKey]stopRow{}}
	for _, r := range found {
		f.rows[r.key()] = r.shown()
	}
	if err := f.write(found); err != nil {
		return err
	}
	if scopes == nil {
		all, err := kube.listKinds(ctx)
		if err != nil {
			return err
		}
		for _, k := range all {
			scopes = append(scopes, watchScope{kind: k, selector: selector})
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watches sync.WaitGroup
	defer watches.Wait()
	isFollowing := false
	for _, w := range scopes {
		canFollow, err := w.check(ctx, kube)
		if err != nil {
			cancel()
			return err
		}
		if canFollow {
			isFollowing = true
			watches.Go(func() { f.followScope(ctx, cancel, w) })
		}
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

// write prints rows in the format of the command: as rows of the table, or one document for each row.
func (f *follower) write(rows []stopRow) error {
	switch f.output {
	case "json", "yaml":
		for _, r := range rows {
			if err := f.writeDocument(r); err != nil {
				return err
			}
		}
		return nil
	case "name":
		return f.writeNames(rows)
	default:
		return f.table.write(f.cellsOf(rows))
	}
}

// writeDocument prints a row as one line of JSON, or as a YAML document.
func (f *follower) writeDocument(r stopRow) error {
	text, err := json.Marshal(r)
	if f.output == "yaml" {
		text, err = yaml.Marshal(r)
		text = append([]byte("---\n"), text...)
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if _, err := unfitted(f.Out).Write(text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// followScope watches objects of a kind, and restarts a watch that ends.
func (f *follower) followScope(ctx context.Context, stop context.CancelFunc, w watchScope) {
	k := w.kind
	changed := func(obj any, isGone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f.show(ctx, w, describeRows(k, o.DeepCopyObject().(client.Object)), isGone, stop)
		}
	}
	options := func(o metav1.ListOptions) *client.ListOptions { return w.listOptions(f.kube, &o) }
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

// show prints those rows of an object that have changed.
func (f *follower) show(ctx context.Context, w watchScope, rows []stopRow, isGone bool, stop context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshSchedules(ctx)
	f.addSchedules(rows, f.schedules)
	hideSharedNames(rows, slices.AppendSeq(slices.Clone(rows), maps.Values(f.rows)))
	addGaps(rows, f.acting)
	var changed []stopRow
	for _, r := range rows {
		if isGone {
			r.State, r.Next, r.Message = "deleted", "", ""
		}
		before, isKnown := f.rows[r.key()]
		if !isKnown && r.IsUntouched && !w.isNamed {
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
	if err := f.write(changed); err != nil && f.err == nil {
		f.err = err
		stop()
	}
}

// refreshSchedules reads the schedules again once schedulesInterval has passed. After an error, the earlier
// schedules remain in use. The caller holds the lock.
func (f *follower) refreshSchedules(ctx context.Context) {
	now := f.clock.Now()
	if !f.schedulesReadAt.IsZero() && now.Sub(f.schedulesReadAt) < schedulesInterval {
		return
	}
	f.schedulesReadAt, f.acting = now, leasereader.ReadActing(ctx, f.kube, now)
	if schedules, err := f.kube.readSchedules(ctx); err == nil {
		f.schedules = schedules
	}
}
