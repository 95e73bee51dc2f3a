// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/slumber"
	"github.com/torpor-dev/torpor/internal/stopadapter"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

const (
	// maxWritesAtOnce keeps a fleet that falls asleep from taking all that the API server gives to the manager.
	maxWritesAtOnce = 8
	// maxFailures is how many refused writes a message tells of.
	maxFailures = 5
	// awaitInterval is how often a deleted Slumber looks for kinds that are not announced yet.
	awaitInterval = 5 * time.Second
	// fieldUnknown is what the API server says of a field that a schema lacks.
	fieldUnknown = "field not declared in schema"
)

// memberWrite is what is to be written of one member.
type memberWrite struct {
	memberObject
	stops torporv1alpha1.ScheduledStop
}

// act writes the stops that differ into the status of the members, or into an annotation of those without one of Torpor's. Those of other Slumbers and the rest of the status are other field
// managers'. It goes on after a failure: one member whose write is refused must not keep others asleep.
func (c Controller) act(ctx context.Context, seen *observation, plan slumber.Plan) error {
	writes := listWrites(seen, plan)
	var group errgroup.Group
	group.SetLimit(maxWritesAtOnce)
	failures, isLacking := make([]error, len(writes)), make([]bool, len(writes))
	for i, write := range writes {
		group.Go(func() error {
			isKept, err := c.writeStops(ctx, seen.Slumber.Name, write)
			failures[i], isLacking[i] = client.IgnoreNotFound(err), err == nil && !isKept
			return nil
		})
	}
	_ = group.Wait() // Each failure is kept beside its write.
	if err := joinFailures(failures); err != nil {
		return err
	}
	var lacking []string
	for i, write := range writes {
		if isLacking[i] {
			lacking = append(lacking, write.kind.GVK.Kind+" "+write.GetName())
		}
	}
	if len(lacking) > 0 {
		return &reconcile.RefusedError{Class: torporv1alpha1.SlumberSchemaLacksFieldReason, Message: slumber.JoinNames(lacking)}
	}
	return nil
}

// joinFailures makes one error of those of several members, in an order that stays, so that the condition does not change back and forth. A stale
// cache is no failure to tell of, and hides none.
func joinFailures(failures []error) error {
	failures = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	if told := slices.DeleteFunc(slices.Clone(failures), func(err error) bool { return errors.Is(err, reconcile.ErrStale) }); len(told) > 0 {
		failures = told
	}
	if len(failures) < 2 {
		return errors.Join(failures...)
	}
	var texts []string
	for _, err := range failures {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	if more := len(texts) - maxFailures; more > 0 {
		texts = append(texts[:maxFailures], fmt.Sprintf("and %d more", more))
	}
	return &joinedError{strings.Join(texts, "; "), failures}
}

// joinedError is several errors in one line of text.
type joinedError struct {
	text string
	all  []error
}

// Error implements error.
func (j *joinedError) Error() string { return j.text }

// Unwrap implements the interface of errors.Is and errors.As.
func (j *joinedError) Unwrap() []error { return j.all }

func listWrites(seen *observation, plan slumber.Plan) (writes []memberWrite) {
	consider := func(o memberObject, m slumber.Member, wave int, wish slumber.MemberWish) {
		next := plan.NextStops(seen.Slumber, m, wave, wish, seen.Now)
		if !equality.Semantic.DeepEqual(next, m.FindStops(seen.Slumber.Name)) {
			writes = append(writes, memberWrite{o, next})
		}
	}
	for i, wishes := range plan.Wishes {
		for j, wish := range wishes {
			consider(seen.waves[i][j], seen.Waves[i][j], i, wish)
		}
	}
	if plan.Wishes != nil {
		for i, o := range seen.leftovers {
			consider(o, seen.Leftovers[i], -1, slumber.MemberWish{Verb: slumber.Start})
		}
	}
	return writes
}

// writeStops applies what a Slumber wants of a member, and reports whether its schema keeps that.
func (c Controller) writeStops(ctx context.Context, name string, write memberWrite) (isKept bool, err error) {
	if write.kind.Switch != nil {
		return true, c.annotateStop(ctx, name, write)
	}
	status, entries := map[string]any{}, 0 // Without its field a field manager takes its entries away.
	if write.stops.Slumber != "" {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&write.stops)
		if err != nil {
			return false, fmt.Errorf("convert the stops: %w", err)
		}
		status["scheduledStops"], entries = []any{entry}, 1
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	applied.SetGroupVersionKind(write.kind.GVK)
	applied.SetNamespace(write.GetNamespace())
	applied.SetName(write.GetName())
	applied.SetUID(write.GetUID()) // Another object of the same name has not been looked at.
	err = reconcile.ApplyStatus(ctx, c.client, applied, Name+"-"+name)
	if err != nil && strings.Contains(err.Error(), fieldUnknown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write status.scheduledStops: %w", err)
	}
	kept, _, _ := unstructured.NestedSlice(applied.Object, "status", "scheduledStops")
	return len(kept) >= entries, nil
}

// annotateStop applies what a Slumber wants of a member whose status is not Torpor's.
func (c Controller) annotateStop(ctx context.Context, name string, write memberWrite) error {
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	applied.SetGroupVersionKind(write.kind.GVK)
	applied.SetNamespace(write.GetNamespace())
	applied.SetName(write.GetName())
	applied.SetUID(write.GetUID()) // One that is gone is not made anew.
	annotation, value, err := stopadapter.ScheduledAnnotation(write.stops, name)
	if err != nil {
		return fmt.Errorf("write the stop: %w", err)
	}
	if value != "" {
		applied.SetAnnotations(map[string]string{annotation: value})
	}
	return reconcile.ApplyObserved(ctx, c.client, applied, Name+"-"+name)
}

// finalize lets everything start that a deleted Slumber has stopped: what the cache lacks, too, since nobody else would ever start it, and workloads
// that nobody stops now, but perhaps did. A manager that has just begun waits for the kinds that are not announced yet.
func (c Controller) finalize(ctx context.Context, s *torporv1alpha1.Slumber) (time.Duration, error) {
	var failures []error
	missing, announced := listKindNames(s), c.listKinds()
	for _, kind := range append(slices.Clone(announced), listUnannounced(announced)...) {
		objects, isServed, err := listObjects(ctx, c.live, kind.Kind, s.Namespace)
		if k8serrors.IsForbidden(err) && kind.reader == nil {
			continue // The feature is not there, and perhaps never was.
		}
		failures = append(failures, err) // What serves or converts one kind holds up no other.
		if isServed || err != nil {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == kind.GVK.GroupKind().String() })
		}
		for _, o := range objects {
			member := slumber.ReadMember(s.Name, kind.Kind, o, c.Clock.Now())
			if len(member.FindStops(s.Name).Stops) > 0 {
				_, err := c.writeStops(ctx, s.Name, memberWrite{memberObject: memberObject{o, kind.Kind}})
				failures = append(failures, client.IgnoreNotFound(err))
			}
		}
	}
	if left := c.Members.kindsAwaitedUntil().Sub(c.Clock.Now()); len(missing) > 0 && left > 0 {
		return min(left, awaitInterval), errors.Join(failures...)
	}
	return 0, errors.Join(failures...)
}

// listUnannounced returns the workloads that are not announced.
func listUnannounced(announced []readableKind) (all []readableKind) {
	for _, kind := range stoppable.ListWorkloads() {
		if !slices.ContainsFunc(announced, func(known readableKind) bool { return known.GVK.GroupKind() == kind.GVK.GroupKind() }) {
			all = append(all, readableKind{Kind: kind})
		}
	}
	return all
}
