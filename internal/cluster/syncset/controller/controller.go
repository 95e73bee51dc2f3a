// SPDX-License-Identifier: Apache-2.0

// Package controller applies the SyncSets and SelectorSyncSets of clusters. A reconcile pass observes the sets and the
// ClusterSync, calls syncset.Decide, submits at most one job and writes the status. An Applier runs the jobs outside of
// the passes.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
)

// Name is the name of the controller, the reporter of its events and its field manager, on the hub and in clusters.
const Name = "torpor-sync"

// Controller reconciles ClusterSyncs.
type Controller struct {
	// Dialer connects to target clusters.
	Dialer targetcluster.Dialer
	// Clock is the source of the current time.
	Clock   clock.PassiveClock
	Metrics *Metrics
	// Guard excludes objects that another project's controller writes, such as Hive's. A nil Guard excludes no
	// object.
	Guard *reconcile.WriterGuard
	// WatchNamespaces are the namespaces whose objects are reconciled; empty means all namespaces. SelectorSyncSets are
	// cluster-scoped, and are read only if WatchNamespaces is empty.
	WatchNamespaces []string

	client  client.Client
	applier *Applier
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments;syncsets;selectorsyncsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=hiveinternal.openshift.io,resources=clustersyncs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=hiveinternal.openshift.io,resources=clustersyncs/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	c.applier = NewApplier(c.Dialer, c.Clock)
	c.applier.Metrics = c.Metrics
	c.Metrics.cache.Use(mgr.GetClient())
	c.applier.ReadSecret, c.applier.MayDial = targetcalls.ReadSecretWith(mgr.GetAPIReader()), c.mayDial
	if err := errors.Join(addIndexes(mgr), mgr.Add(c.applier)); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	workers := reconcile.WorkerOptions{Count: 10, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	build := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&hiveinternalv1alpha1.ClusterSync{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		Watches(&hivev1.ClusterDeployment{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(gateOrLabelsChanged())).
		Watches(&hivev1.SyncSet{}, handler.EnqueueRequestsFromMapFunc(clustersOfSyncSet), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(c.applier.Answers()).
		WithOptions(workers.Options())
	if c.usesSelectors() {
		build = build.Watches(&hivev1.SelectorSyncSet{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfSelectorSyncSet), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	err := build.Complete(&creatingReconciler{Controller: c, pass: &reconcile.Pass[*hiveinternalv1alpha1.ClusterSync, *clusterObservation, syncset.Plan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
		New:     func() *hiveinternalv1alpha1.ClusterSync { return &hiveinternalv1alpha1.ClusterSync{} },
		Forget:  c.applier.ForgetObject,
		Observe: c.observe,
		Decide:  func(seen *clusterObservation) syncset.Plan { return syncset.Decide(seen.Observed) },
		Act:     c.act,
		Report:  c.report,
		Status: reconcilestatus.Storage[*hiveinternalv1alpha1.ClusterSync]{
			Conditions: func(cs *hiveinternalv1alpha1.ClusterSync) *[]metav1.Condition { return &cs.Status.Conditions },
			// Hive's CRD drops these two status fields. Without them, Torpor would apply all sets over and over.
			Remember: rememberSync,
		},
	}})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// usesSelectors reports whether SelectorSyncSets can be read. They are cluster-scoped.
func (c Controller) usesSelectors() bool { return len(c.WatchNamespaces) == 0 }

func rememberSync(cs *hiveinternalv1alpha1.ClusterSync) map[string]any {
	remembered := map[string]any{}
	if cs.Status.LastSyncTime != nil {
		remembered["lastSyncTime"] = cs.Status.LastSyncTime
	}
	if cs.Status.SyncedResume != nil {
		remembered["syncedResume"] = cs.Status.SyncedResume
	}
	return remembered
}

// creatingReconciler creates the ClusterSync of a cluster that has sets but no ClusterSync. The cluster owns the
// ClusterSync, which is therefore deleted with the cluster.
type creatingReconciler struct {
	Controller
	pass *reconcile.Pass[*hiveinternalv1alpha1.ClusterSync, *clusterObservation, syncset.Plan]
}

// Reconcile implements reconcile.Reconciler.
func (r *creatingReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var found hiveinternalv1alpha1.ClusterSync
	if err := r.client.Get(ctx, req.NamespacedName, &found); !k8serrors.IsNotFound(err) {
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("read the ClusterSync: %w", err)
		}
		return r.pass.Reconcile(ctx, req)
	}
	var cd hivev1.ClusterDeployment
	if err := r.client.Get(ctx, req.NamespacedName, &cd); err != nil && !k8serrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("read the ClusterDeployment: %w", err)
	}
	sets, _, err := r.listSets(ctx, &cd, nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cd.UID == "" || !cd.DeletionTimestamp.IsZero() || len(sets) == 0 {
		return r.pass.Reconcile(ctx, req) // The pass of a deleted object also removes its state from memory.
	}
	if other := r.Guard.FindOther(ctx, &cd, r.Clock.Now()); other != "" {
		return ctrl.Result{RequeueAfter: reconcile.OtherWriterInterval}, nil // Another manager writes this ClusterDeployment, and creates its ClusterSync.
	}
	cs := &hiveinternalv1alpha1.ClusterSync{ObjectMeta: metav1.ObjectMeta{
		Namespace: req.Namespace, Name: req.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&cd, hivev1.ClusterDeploymentKind())},
	}}
	// The API server may reject blockOwnerDeletion if the manager has no permission to set finalizers on the owner.
	cs.OwnerReferences[0].BlockOwnerDeletion = nil
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := r.client.Create(ctx, cs, client.FieldOwner(Name)); err != nil && !k8serrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("create the ClusterSync: %w", err)
	}
	return ctrl.Result{}, nil
}
