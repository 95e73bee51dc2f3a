// SPDX-License-Identifier: Apache-2.0

// Package controller observes the objects of a MySQLCluster, applies the objects that differ from the desired ones,
// replaces the Pods of a rollout one by one, and updates the status. The decisions are in package provisioning.
package controller

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Name is the name of the controller, the reporter of its events and its field manager.
const Name = "torpor-provisioning"

// maxServerIDBase is the maximum of a generated spec.serverIDBase. It leaves room for adding the ordinals.
const maxServerIDBase = 1 << 30

// Controller creates and updates the objects of MySQLClusters.
type Controller struct {
	Clock clock.PassiveClock
	// Guard makes the controller skip MySQLClusters that MOCO's controller writes. If it is nil, no MySQLCluster is
	// skipped.
	Guard *reconcile.WriterGuard
	// WatchNamespaces limits the cache to these namespaces. An empty list means all namespaces.
	WatchNamespaces []string
	// RolloutsAtOnce is the maximum number of clusters whose serving Pods may be replaced at the same time. 0 means no
	// limit.
	RolloutsAtOnce int
	// ExporterImage is the image of mysqld_exporter, for clusters with collectors.
	ExporterImage string
	// Metrics must be registered by the caller.
	Metrics *Metrics
	// Ends contains the overdue stops of all controllers. If it is nil, overdue stops have no priority.
	Ends *priority.OverdueEnds

	client client.Client
	live   client.Reader
	// children caches the objects that belong to MySQLClusters.
	children client.Reader
	applied  *appliedHashes
	turns    *rolloutTurns
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller to the manager.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	children, err := newChildCache(mgr, c.WatchNamespaces)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.client, c.live, c.children, c.applied = mgr.GetClient(), mgr.GetAPIReader(), children, newAppliedHashes()
	c.turns = newRolloutTurns(c.RolloutsAtOnce, c.Clock)
	c.Metrics.useReaders(mgr.GetClient(), children)
	ends := priority.TrackEnds(c.Ends, Name, c.isStopOverdue, c.hasJustStarted)
	b := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers(), primaryOrHealthChanged(), scheduledStopsChanged()))).
		Watches(&mocov1beta2.MySQLCluster{}, ends.EnqueueOverdue()).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.clustersUsingConfigMap))
	for _, kind := range childKinds() {
		b = b.WatchesRawSource(source.Kind(children, kind, handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(mocov1beta2.InstanceLabel))))
	}
	workers := reconcile.WorkerOptions{Count: 10, PassTimeout: 2 * time.Minute, MinBackoff: time.Second, MaxBackoff: time.Minute}
	if err := b.WithOptions(workers.Options()).Complete(c.newPass(mgr, ends)); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func (c Controller) newPass(mgr manager.Manager, ends *priority.EndTracker[*mocov1beta2.MySQLCluster]) *reconcile.Pass[*mocov1beta2.MySQLCluster, observation, provisioning.ChangeSet] {
	return &reconcile.Pass[*mocov1beta2.MySQLCluster, observation, provisioning.ChangeSet]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard, Ends: ends,
		Status:    reconcilestatus.Storage[*mocov1beta2.MySQLCluster]{IsShared: true, Remember: rememberStop},
		New:       func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Finalizer: &reconcile.Finalizer[*mocov1beta2.MySQLCluster]{Name: mocov1beta2.Finalizer, Prepare: setDefaults, Finalize: c.finalize},
		Forget: func(name types.NamespacedName) {
			c.applied.forgetCluster(name)
			c.turns.giveBack(name)
			c.Metrics.forgetCluster(name)
		},
		Observe: c.observe,
		Decide:  func(seen observation) provisioning.ChangeSet { return provisioning.Decide(seen.Observed) },
		Act:     c.act,
		Report:  c.report,
	}
}

// setDefaults sets the finalizer and spec.serverIDBase if they are missing, as MOCO's webhook does, and reports whether
// it changed any of them. While reconciliation is stopped, it changes nothing.
func setDefaults(cluster *mocov1beta2.MySQLCluster) bool {
	if cluster.ReconciliationStopped() {
		return false
	}
	changed := controllerutil.AddFinalizer(cluster, mocov1beta2.Finalizer)
	if cluster.Spec.ServerIDBase == 0 {
		n, err := rand.Int(rand.Reader, big.NewInt(maxServerIDBase))
		if err != nil {
			return changed // The reader never fails. If it did, the next pass would set the field.
		}
		cluster.Spec.ServerIDBase, changed = int32(n.Int64())+1, true
	}
	return changed
}

// primaryOrHealthChanged selects updates that change the primary or the condition Healthy, because a rollout waits for
// both.
func primaryOrHealthChanged() predicate.Predicate {
	healthy := func(c *mocov1beta2.MySQLCluster) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, mocov1beta2.HealthyCondition)
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(*mocov1beta2.MySQLCluster)
		after, isNew := e.ObjectNew.(*mocov1beta2.MySQLCluster)
		return isOld && isNew && (before.Status.CurrentPrimaryIndex != after.Status.CurrentPrimaryIndex || healthy(before) != healthy(after))
	}}
}

// isStopOverdue reports whether the end time of a stop of reconciliation has passed. After an outage, all overdue stops
// end before the first cluster applies its pending objects. Each cluster has about ten objects.
func (c Controller) isStopOverdue(cluster *mocov1beta2.MySQLCluster) bool {
	return cluster.ReconciliationStopped() && mysqlswitches.Read(cluster, c.Clock.Now()).Reconciliation.IsOverdue
}

// hasJustStarted reports whether a stop of reconciliation has just expired, so that the changes that it delayed are
// being applied.
func (c Controller) hasJustStarted(_ context.Context, cluster *mocov1beta2.MySQLCluster) bool {
	return !cluster.ReconciliationStopped() && stoprecord.Records(cluster.Status.ReconciliationStops).HasJustExpired(c.Clock.Now())
}

// scheduledStopsChanged selects updates that change stops scheduled by Slumbers.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(c *mocov1beta2.MySQLCluster) any { return c.Status.ScheduledStops })
}

// childKinds returns the kinds of objects that belong to MySQLClusters, except Secrets and PersistentVolumeClaims,
// which are not cached. Except for Pods, the objects are unstructured, like the desired objects with which they are
// compared.
func childKinds() []client.Object {
	kinds := []client.Object{&corev1.Pod{}}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		corev1.SchemeGroupVersion.WithKind("Service"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	} {
		kinds = append(kinds, newUnstructured(kind))
	}
	return kinds
}

func newUnstructured(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

func newChildCache(mgr manager.Manager, namespaces []string) (cache.Cache, error) {
	return reconcile.NewLabelledCache(mgr, namespaces, labels.SelectorFromSet(labels.Set{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	}), childKinds()...)
}

// clustersUsingConfigMap maps a ConfigMap to the MySQLClusters that use its settings.
func (c Controller) clustersUsingConfigMap(ctx context.Context, obj client.Object) []ctrl.Request {
	var all mocov1beta2.MySQLClusterList
	if err := c.client.List(ctx, &all, client.InNamespace(obj.GetNamespace())); err != nil {
		return nil // A cluster with a ConfigMap is reconciled every userRetry anyway.
	}
	var found []ctrl.Request
	for i := range all.Items {
		if settingsConfigMapName(&all.Items[i]) == obj.GetName() {
			found = append(found, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}

func settingsConfigMapName(cluster *mocov1beta2.MySQLCluster) string {
	if name := cluster.Spec.MySQLConfigMapName; name != nil {
		return *name
	}
	return ""
}
