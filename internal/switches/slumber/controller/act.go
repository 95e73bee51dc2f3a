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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	// maxWritesAtOnce limits concurrent writes, so that a large wave does not use up the manager's share of the API
	// server.
	maxWritesAtOnce = 8
	// maxFailures limits how many failed writes a message lists.
	maxFailures = 5
	// awaitInterval is how often the finalizer of a Slumber checks for kinds that their controllers have not announced
	// yet.
	awaitInterval = 5 * time.Second
	// fieldUnknown is a part of the API server's error message for a field that the schema lacks.
	fieldUnknown = "field not declared in schema"
)

// memberWrite is the pending write to one member.
type memberWrite struct {
	memberObject
	stops torporv1alpha1.ScheduledStop
	// before are the stops that the member recorded before the write.
	before torporv1alpha1.ScheduledStop
}

// logChanges logs the stops and starts that were written to a member.
func (w memberWrite) logChanges(ctx context.Context) {
	logger := log.FromContext(ctx).WithValues("memberKind", w.kind.Name(), "memberNamespace", w.GetNamespace(), "member", w.GetName())
	reconcile.LogChanges(logger, stoprecord.Changes("", w.before.Stops, w.stops.Stops))
}

// act writes the stops of the Slumber to each member whose recorded stops differ from the plan. Stops of other
// Slumbers and all other fields belong to other field managers. A failed write to one member does not prevent writes
// to other members.
func (c Controller) act(ctx context.Context, seen *observation, plan slumber.Plan) error {
	writes := listWrites(seen, plan)
	var group errgroup.Group
	group.SetLimit(maxWritesAtOnce)
	failures := make([]error, len(writes))
	for i, write := range writes {
		group.Go(func() error {
			err := c.writeStops(ctx, seen.Slumber.Name, write)
			if failures[i] = client.IgnoreNotFound(err); err == nil {
				write.logChanges(ctx)
			}
			return nil
		})
	}
	_ = group.Wait() // Each write stores its own error.
	return joinFailures(failures)
}

// joinFailures joins the errors of several members in a stable order, so that the condition's message does not
// alternate. ErrStale is returned only if there is no other error.
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

// joinedError joins several errors in one line of text.
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
		next, before := plan.NextStops(seen.Slumber, m, wave, wish, seen.Now), m.FindStops(seen.Slumber.Name)
		if !equality.Semantic.DeepEqual(next, before) || len(next.Stops) > 0 && !isAnnotated(o, next) {
			writes = append(writes, memberWrite{o, next, before})
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

// isAnnotated reports whether the annotation of an object holds these stops. After an interrupted write, it may still
// hold the old stops.
func isAnnotated(o client.Object, stops torporv1alpha1.ScheduledStop) bool {
	name, value, err := stoprecord.ScheduledAnnotation(stops, stops.Slumber)
	return err == nil && o.GetAnnotations()[name] == value
}

// writeStops writes the stops of a member to its status, if its kind has the field, and then to an annotation, because
// the served schema may drop the status field, and may be replaced at any time. If both contain the Slumber, readers
// use the status. A failure of one write does not prevent the other.
func (c Controller) writeStops(ctx context.Context, name string, write memberWrite) error {
	var inStatus error
	if write.kind.Switch() == nil {
		inStatus = c.applyStatus(ctx, name, write)
	}
	return joinFailures([]error{inStatus, c.annotateStop(ctx, name, write)})
}

// applyStatus applies the stops to status.scheduledStops. A schema without the field is not a failure.
func (c Controller) applyStatus(ctx context.Context, name string, write memberWrite) error {
	status := map[string]any{} // An apply without the field removes the entries of this field manager.
	if write.stops.Slumber != "" {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&write.stops)
		if err != nil {
			return fmt.Errorf("convert the stops: %w", err)
		}
		status["scheduledStops"] = []any{entry}
	}
	apply := func() error {
		applied := write.newApplied()
		applied.Object["status"] = status
		return reconcile.ApplyStatus(ctx, c.client, applied, Name+"-"+name)
	}
	err := apply()
	if len(status) == 0 && k8serrors.IsInvalid(err) {
		// An empty status becomes null at the API server, and the schema rejects null.
		status["scheduledStops"] = []any{}
		err = apply()
	}
	if err != nil && !strings.Contains(err.Error(), fieldUnknown) {
		return fmt.Errorf("write status.scheduledStops: %w", err)
	}
	return nil
}

// annotateStop applies the stops to the annotation of the Slumber.
func (c Controller) annotateStop(ctx context.Context, name string, write memberWrite) error {
	annotation, value, err := stoprecord.ScheduledAnnotation(write.stops, name)
	if err != nil {
		return fmt.Errorf("write the stop: %w", err)
	}
	applied := write.newApplied()
	if value != "" {
		applied.SetAnnotations(map[string]string{annotation: value})
	}
	if err := reconcile.ApplyObserved(ctx, c.client, applied, Name+"-"+name); err != nil {
		return err
	}
	if value != "" || applied.GetAnnotations()[annotation] == "" {
		return nil
	}
	// The annotation belongs to another field manager, so the apply does not remove it.
	without := applied.DeepCopy()
	annotations := without.GetAnnotations()
	delete(annotations, annotation)
	without.SetAnnotations(annotations)
	return reconcile.PatchObserved(ctx, c.client, applied, without, Name+"-"+name)
}

// newApplied returns an apply configuration with the member's UID, so that another object of the same name is not
// changed.
func (w memberWrite) newApplied() *unstructured.Unstructured {
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	applied.SetGroupVersionKind(w.kind.GVK())
	applied.SetNamespace(w.GetNamespace())
	applied.SetName(w.GetName())
	applied.SetUID(w.GetUID())
	return applied
}

// finalize removes the stops of a deleted Slumber from every object, because no other controller would. This includes
// objects that the cache lacks, and workloads even if the feature that stops them is now disabled. A newly started
// manager waits for kinds that are not announced yet.
func (c Controller) finalize(ctx context.Context, s *torporv1alpha1.Slumber) (time.Duration, error) {
	var failures []error
	missing, announced := listKindNames(s), c.listKinds()
	for _, kind := range append(slices.Clone(announced), listUnannounced(announced)...) {
		objects, isServed, err := listObjects(ctx, c.live, kind.Kind, s.Namespace)
		if k8serrors.IsForbidden(err) && kind.reader == nil {
			continue // The feature is disabled, and may never have been enabled.
		}
		failures = append(failures, err) // A failing conversion webhook of one kind must not delay other kinds.
		if isServed || err != nil {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == kind.GVK().GroupKind().String() })
		}
		failures = append(failures, c.release(ctx, s.Name, kind.Kind, objects))
	}
	if left := c.Members.kindsAwaitedUntil().Sub(c.Clock.Now()); len(missing) > 0 && left > 0 {
		return min(left, awaitInterval), errors.Join(failures...)
	}
	return 0, errors.Join(failures...)
}

// release removes the stops of a Slumber from objects of a kind.
func (c Controller) release(ctx context.Context, name string, kind kinds.Kind, objects []client.Object) error {
	var failures []error
	for _, o := range objects {
		if stops := slumber.ReadMember(name, kind, o, c.Clock.Now()).FindStops(name).Stops; len(stops) > 0 {
			failures = append(failures, client.IgnoreNotFound(c.writeStops(ctx, name, memberWrite{memberObject: memberObject{o, kind}})))
		}
	}
	return errors.Join(failures...)
}

// releaseOrphans removes the stops of a Slumber that does not exist, because no other controller ends them. Such
// stops remain if the Slumber's finalizer was removed by hand, and may also be written by hand. obj is the missing
// Slumber or ClusterSlumber, and orphaned is its view as a Slumber.
func (c Controller) releaseOrphans(ctx context.Context, obj client.Object, orphaned *torporv1alpha1.Slumber) error {
	limited, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	err := c.live.Get(limited, client.ObjectKeyFromObject(obj), obj)
	switch {
	case err == nil:
		return nil // The Slumber exists, and the cache is outdated.
	case !k8serrors.IsNotFound(err) || k8serrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// NotFound with this cause means that the API server temporarily does not serve the kind.
		return fmt.Errorf("read the %s: %w", stoprecord.NameSlumber(orphaned.Name), err)
	}
	var failures []error
	for _, kind := range c.listKinds() {
		objects, _, err := listMembers(ctx, kind, orphaned, &slumber.Reach{})
		failures = append(failures, err, c.release(ctx, orphaned.Name, kind.Kind, objects))
	}
	return errors.Join(failures...)
}

// listUnannounced returns the workload kinds that are not announced.
func listUnannounced(announced []readableKind) (all []readableKind) {
	for _, kind := range kinds.ListWorkloads() {
		if !slices.ContainsFunc(announced, func(known readableKind) bool { return known.GVK().GroupKind() == kind.GVK().GroupKind() }) {
			all = append(all, readableKind{Kind: kind})
		}
	}
	return all
}
