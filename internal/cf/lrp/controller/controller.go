// SPDX-License-Identifier: Apache-2.0

// Package controller runs each LRP as a StatefulSet, with a disruption budget if the LRP has several instances. An LRP
// exists until its Pods are deleted.
package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/podcache"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the controller, its event reporter and its field manager.
const Name = "torpor-lrp"

const (
	// maxReleased limits the number of LRPs in released. releasedTTL is the time for which an LRP stays in it.
	maxReleased = 1 << 12
	releasedTTL = 10 * time.Second

	// byPodLabels and byProcess are the cache indexes of LRPs, by the labels of their Pods and by their process.
	byPodLabels = "what"
	byProcess   = "process"
)

// Controller reconciles LRPs.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard
	// PodCache caches the Pods of apps, and the StatefulSets and budgets with the same labels. It does not cache the
	// many other objects in a cluster.
	PodCache *podcache.Cache
	// Pods are the options for the Pods of all instances.
	Pods lrp.PodOptions

	client client.Client
	live   client.Reader
	pods   client.Reader
	// released holds the UIDs of LRPs whose finalizer this controller has removed.
	released *cache.LRUExpireCache
}

// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps/status,verbs=get;patch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.released = cache.NewLRUExpireCacheWithClock(maxReleased, c.Clock)
	pods, err := c.PodCache.ShareWith(mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &eiriniv1.LRP{}, byPodLabels, indexPodLabels); err != nil {
		return fmt.Errorf("set up %s: index LRPs: %w", Name, err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &eiriniv1.LRP{}, byProcess, indexProcess); err != nil {
		return fmt.Errorf("set up %s: index LRPs by process: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&eiriniv1.LRP{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&eiriniv1.LRP{}, handler.EnqueueRequestsFromMapFunc(c.otherLRPs), builder.WithPredicates(deletionBegins())).
		WatchesRawSource(pods.Watch(&appsv1.StatefulSet{}, ownersOf(mgr))).
		WatchesRawSource(pods.Watch(&policyv1.PodDisruptionBudget{}, ownersOf(mgr), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(pods.Watch(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(c.lrpsForPod))).
		WithOptions(reconcile.WorkerOptions{Count: 20, PassTimeout: time.Minute, MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Minute}.Options()).
		Complete(&reconcile.Pass[*eiriniv1.LRP, lrp.Observed, lrp.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New:     func() *eiriniv1.LRP { return &eiriniv1.LRP{} },
			Observe: c.observe,
			Decide:  lrp.Decide,
			Act:     c.act,
			Report:  c.report,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// ownersOf maps an object to the LRP that controls it.
func ownersOf(mgr manager.Manager) handler.EventHandler {
	return handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &eiriniv1.LRP{}, handler.OnlyControllerOwner())
}

// lrpsForPod maps a Pod to the LRPs to which it may belong.
func (c Controller) lrpsForPod(ctx context.Context, pod client.Object) []ctrl.Request {
	labels := pod.GetLabels()
	var list eiriniv1.LRPList
	err := c.client.List(ctx, &list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{
		byPodLabels: podLabelsKey(labels[korifiv1alpha1.ProcessGUIDLabel], labels[korifiv1alpha1.VersionLabel]),
	})
	if err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: list.Items[i].Name}})
	}
	return requests
}

// otherLRPs maps an LRP to the other LRPs of its process. When the deletion of the LRP begins, their removed instances
// may no longer need to serve during the stop delay.
func (c Controller) otherLRPs(ctx context.Context, o client.Object) []ctrl.Request {
	obj, ok := o.(*eiriniv1.LRP)
	if !ok {
		return nil
	}
	var list eiriniv1.LRPList
	err := c.client.List(ctx, &list, client.InNamespace(obj.Namespace), client.MatchingFields{byProcess: obj.Spec.GUID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if name := list.Items[i].Name; name != obj.Name {
			requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: obj.Namespace, Name: name}})
		}
	}
	return requests
}

// deletionBegins selects the update that sets an object's deletion timestamp.
func deletionBegins() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

func indexProcess(o client.Object) []string {
	obj, ok := o.(*eiriniv1.LRP)
	if !ok {
		return nil
	}
	return []string{obj.Spec.GUID}
}

func indexPodLabels(o client.Object) []string {
	obj, ok := o.(*eiriniv1.LRP)
	if !ok {
		return nil
	}
	return []string{podLabelsKey(obj.Spec.GUID, obj.Spec.Version)}
}

func podLabelsKey(guid, version string) string { return guid + "/" + version }
