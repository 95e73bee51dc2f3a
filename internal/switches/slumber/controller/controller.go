// SPDX-License-Identifier: Apache-2.0

// Package controller carries out the decisions of package slumber. A reconciliation reads the objects that a Slumber
// selects, calls slumber.Decide, writes changed stops to the status and an annotation of the members, and updates the
// status of the Slumber. It may write several members, but never their specs.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// Name is the name of the controller and of its event recorder. Its field manager on a member is Name, a hyphen and the
// Slumber's name.
const Name = "torpor-slumber"

// Controller reconciles Slumbers.
type Controller struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Metrics exposes metrics of the Slumbers.
	Metrics *Metrics
	// Members are the kinds whose objects package fieldswitch stops; nil for none.
	Members *MemberKinds
	// Ends tracks the overdue stops of all controllers, so that other work waits for their ends; if nil, no work
	// waits.
	Ends *priority.OverdueEnds

	client client.Client
	// live reads from the API server, not from the cache.
	live client.Reader
}

// +kubebuilder:rbac:groups=torpor.dev,resources=slumbers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=torpor.dev,resources=slumbers/status,verbs=get;patch
// +kubebuilder:rbac:groups=torpor.dev,resources=clusterslumbers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=torpor.dev,resources=clusterslumbers/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=get;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/status,verbs=get;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// ListOptionalKinds returns the kinds of members that the API server of a hub need not serve.
func ListOptionalKinds() []client.Object {
	var all []client.Object
	for _, kind := range kinds.ListOwn() {
		all = append(all, kind.New())
	}
	return all
}

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.Metrics.cache.Use(mgr.GetClient())
	workers := reconcile.WorkerOptions{Count: 4, PassTimeout: 2 * time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	ends := priority.TrackEnds(c.Ends, Name, func(s *torporv1alpha1.Slumber) bool { return slumber.IsWakePending(s, c.Clock.Now()) }, nil)
	build := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&torporv1alpha1.Slumber{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		Watches(&torporv1alpha1.Slumber{}, ends.EnqueueOverdue()).
		WithOptions(workers.Options())
	for _, kind := range kinds.ListOwn() {
		build = build.Watches(kind.New(), handler.EnqueueRequestsFromMapFunc(c.slumbersOfNamespace), builder.WithPredicates(c.memberChanged(kind)))
	}
	if c.Members != nil {
		build = build.WatchesRawSource(c.Members.watch(c.enqueueConcerned, c.Clock))
	}
	err := build.Complete(c.withOrphans(newGoneSlumber, &reconcile.Pass[*torporv1alpha1.Slumber, *observation, slumber.Plan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Ends: ends,
		New:       func() *torporv1alpha1.Slumber { return &torporv1alpha1.Slumber{} },
		Finalizer: &reconcile.Finalizer[*torporv1alpha1.Slumber]{Name: torporv1alpha1.SlumberFinalizer, Finalize: c.finalize},
		Observe: func(ctx context.Context, s *torporv1alpha1.Slumber) (*observation, error) {
			return c.observe(ctx, s, nil)
		},
		Decide: func(seen *observation) slumber.Plan { return slumber.Decide(seen.Observed) },
		Act:    c.act,
		Report: c.report,
		Status: reconcilestatus.Storage[*torporv1alpha1.Slumber]{
			Conditions: func(s *torporv1alpha1.Slumber) *[]metav1.Condition { return &s.Status.Conditions },
		},
	}))
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// newGoneFunc returns the Slumber or ClusterSlumber that a request identifies, with only its name set, and its view
// as a Slumber.
type newGoneFunc func(req ctrl.Request) (client.Object, *torporv1alpha1.Slumber)

func newGoneSlumber(req ctrl.Request) (client.Object, *torporv1alpha1.Slumber) {
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	return s, s.DeepCopy()
}

// withOrphans extends a reconciler, so that it also removes the stops of a Slumber or ClusterSlumber that is gone.
func (c Controller) withOrphans(newGone newGoneFunc, pass ctrlreconcile.Reconciler) ctrlreconcile.Reconciler {
	return ctrlreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		obj, orphaned := newGone(req)
		err := c.client.Get(ctx, req.NamespacedName, obj)
		if !k8serrors.IsNotFound(err) {
			return pass.Reconcile(ctx, req) // The pass reads the object again, and returns the error.
		}
		obj, _ = newGone(req)
		if err := c.releaseOrphans(ctx, obj, orphaned); errors.Is(err, reconcile.ErrStale) {
			return ctrl.Result{RequeueAfter: reconcile.StaleCacheRetry}, nil
		} else if err != nil {
			return ctrl.Result{}, err
		}
		return pass.Reconcile(ctx, req)
	})
}

// slumbersOfNamespace maps a member to the Slumbers of its namespace, and to those whose stops it records, even if
// they no longer exist.
func (c Controller) slumbersOfNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	var list torporv1alpha1.SlumberList
	if err := c.client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return append(requests, listRecorded(o)...) // The handler drops duplicates.
}

// listRecorded returns requests for the Slumbers whose stops an object records.
func listRecorded(o client.Object) (requests []ctrl.Request) {
	for _, stop := range stoprecord.ReadScheduled(o.GetAnnotations()) {
		if !strings.HasPrefix(stop.Slumber, torporv1alpha1.ClusterSlumberPrefix) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: stop.Slumber}})
		}
	}
	return requests
}

// enqueueConcerned enqueues each Slumber that selects an object or has stopped it, even if the Slumber no longer exists.
// If obj is nil, it enqueues every Slumber. Requests for an object are delayed, because many objects of a wave change at
// the same time and each reconciliation reads all of them.
func (c Controller) enqueueConcerned(ctx context.Context, kind kinds.Kind, obj client.Object, add addFunc) {
	if obj == nil {
		obj = &metav1.PartialObjectMetadata{}
	}
	for _, req := range listRecorded(obj) {
		add(req, changesDelay)
	}
	var list torporv1alpha1.SlumberList
	if err := c.client.List(ctx, &list, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return // The cache returns an error only while the controller is ending.
	}
	for i := range list.Items {
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}
		if obj.GetName() == "" {
			add(req, 0)
		} else if slumber.Concerns(&list.Items[i], nil, kind.GVK().GroupKind(), obj) {
			add(req, changesDelay)
		}
	}
}

// memberChanged accepts events that may change a decision.
func (c Controller) memberChanged(kind kinds.Kind) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now := c.Clock.Now()
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			e.ObjectOld.GetAnnotations()[torporv1alpha1.SkipUntilAnnotation] != e.ObjectNew.GetAnnotations()[torporv1alpha1.SkipUntilAnnotation] ||
			!equality.Semantic.DeepEqual(kind.ReadState(e.ObjectOld, now), kind.ReadState(e.ObjectNew, now))
	}}
}

// observation is what Decide uses, together with the objects that Act writes.
type observation struct {
	slumber.Observed
	reach     *slumber.Reach
	waves     [][]memberObject
	leftovers []memberObject
}

// memberObject is a member and its kind.
type memberObject struct {
	client.Object
	kind kinds.Kind
}

// observe reads the members. Objects of the kinds in kinds.ListOwn come from the cache; those of other kinds are read
// from the API server if their cached metadata shows that the Slumber selects or has stopped one of them.
func (c Controller) observe(ctx context.Context, s *torporv1alpha1.Slumber, reach *slumber.Reach) (*observation, error) {
	seen := &observation{reach: reach, Observed: slumber.Observed{Now: c.Clock.Now(), Slumber: s, Waves: make([][]slumber.Member, len(s.Spec.Waves))}, waves: make([][]memberObject, len(s.Spec.Waves))}
	seen.MissingKinds, seen.KindsAwaitedUntil = listKindNames(s), c.Members.kindsAwaitedUntil()
	if !slumber.HasReadableSelectors(s) {
		return seen, nil // It is unknown which objects are selected; the decision reports the reason.
	}
	for _, kind := range c.listKinds() {
		objects, isServed, err := listMembers(ctx, kind, s, reach)
		if err != nil && (kind.Switch() == nil || ctx.Err() != nil) {
			return nil, err
		}
		if err != nil { // A failing conversion webhook of one kind must not delay other kinds.
			if seen.UnreadableKinds == nil {
				seen.UnreadableKinds = map[string]string{}
			}
			seen.UnreadableKinds[kind.GVK().GroupKind().String()] = describeListFailure(err)
		}
		if isServed || err != nil {
			seen.MissingKinds = slices.DeleteFunc(seen.MissingKinds, func(name string) bool { return name == kind.GVK().GroupKind().String() })
		}
		if err := seen.addMembers(kind.Kind, objects); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// addMembers adds the stoppable objects of a kind to the waves that select them, and other objects that the Slumber has
// stopped to the leftovers.
func (o *observation) addMembers(kind kinds.Kind, objects []client.Object) error {
	for _, object := range objects {
		wave, err := o.reach.FindWave(o.Slumber, kind.GVK().GroupKind(), object)
		if err != nil {
			return fmt.Errorf("read the selectors: %w", err)
		}
		member := slumber.ReadMember(o.Slumber.Name, kind, object, o.Now)
		switch {
		case wave >= 0 && member.IsStoppable:
			o.Waves[wave], o.waves[wave] = append(o.Waves[wave], member), append(o.waves[wave], memberObject{object, kind})
		case member.IsStopped:
			o.Leftovers, o.leftovers = append(o.Leftovers, member), append(o.leftovers, memberObject{object, kind})
		}
	}
	return nil
}

// listKindNames returns the kinds that a Slumber selects, sorted.
func listKindNames(s *torporv1alpha1.Slumber) (names []string) {
	for _, wave := range s.Spec.Waves {
		for _, target := range wave.Targets {
			names = append(names, slumber.KindOf(target).String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listKinds returns the kinds that members can have, whether or not they are served.
func (c Controller) listKinds() []readableKind {
	var all []readableKind
	for _, kind := range kinds.ListOwn() {
		all = append(all, readableKind{kind, c.client})
	}
	if c.Members != nil {
		all = append(all, c.Members.list()...)
	}
	return all
}

// describeListFailure returns a stable text for the reason why a kind could not be listed.
func describeListFailure(err error) string {
	if reason := k8serrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "no answer in time"
}

// listMembers returns at least the objects of a kind that concern a Slumber. Of kinds that kinds.ListOwn does not
// contain, only metadata is cached; whole objects are read from the API server if the metadata shows that one of them
// concerns the Slumber.
func listMembers(ctx context.Context, kind readableKind, s *torporv1alpha1.Slumber, reach *slumber.Reach) (objects []client.Object, isServed bool, err error) {
	if kind.Switch() == nil {
		return listObjects(ctx, kind.reader, kind.Kind, s.Namespace)
	}
	known := kind.NewMetadataList()
	limited, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := kind.reader.List(limited, known, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("list the metadata of kind %s: %w", kind.GVK().Kind, err)
	}
	isConcerned := func(o metav1.PartialObjectMetadata) bool {
		return slumber.Concerns(s, reach, kind.GVK().GroupKind(), &o)
	}
	if !slices.ContainsFunc(known.Items, isConcerned) {
		return nil, true, nil
	}
	return listObjects(ctx, kind.reader, kind.Kind, s.Namespace)
}

// listObjects returns the objects of a kind in a namespace, which may be shared with the cache and must not be
// changed, and whether the kind is served.
func listObjects(ctx context.Context, reader client.Reader, kind kinds.Kind, namespace string) (objects []client.Object, isServed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	list := kind.NewList()
	err = reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if meta.IsNoMatchError(err) || k8serrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list the objects of kind %s: %w", kind.GVK().Kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, false, fmt.Errorf("extract the items of the list of kind %s: %w", kind.GVK().Kind, err)
	}
	for _, item := range items {
		if o, ok := item.(client.Object); ok {
			objects = append(objects, o)
		}
	}
	return objects, true, nil
}
