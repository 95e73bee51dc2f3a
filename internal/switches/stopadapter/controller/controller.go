// SPDX-License-Identifier: Apache-2.0

// Package controller runs a controller for the kind of each StopAdapter while the kind is served and Torpor has the
// required permissions, and reports in the StopAdapter whether the controller runs.
package controller

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
)

const (
	// Name is the name of the controller and of its event recorder.
	Name = "torpor-stopadapters"
	// rightsInterval is how often granted permissions are checked again.
	rightsInterval = time.Minute
	// lookInterval is the interval at which an adapter is reconciled while its controller does not run. settledInterval
	// applies while the controller runs, or the spec is invalid.
	lookInterval, settledInterval = 5 * time.Second, time.Minute
)

// Controller reconciles StopAdapters.
type Controller struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Manager runs the controllers of the kinds.
	Manager manager.Manager
	// Observer is notified of kinds that can be stopped, and of changes to their objects.
	Observer fieldswitchcontroller.Observer
	// Metrics exposes metrics of the stops.
	Metrics *fieldswitchcontroller.Metrics
	// WatchNamespaces are the only namespaces in which permissions are needed; empty means all.
	WatchNamespaces []string
	// Ends tracks the overdue stops of all controllers, so that other work waits for their ends; if nil, no work
	// waits.
	Ends *priority.OverdueEnds

	groups   *adapterGroups
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=torpor.dev,resources=stopadapters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=torpor.dev,resources=stopadapters/status,verbs=get;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.groups = &adapterGroups{abandoned: make(chan struct{}, 1)}
	c.client, c.live, c.recorder = mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(Name)
	workers := reconcile.WorkerOptions{Count: 2, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Minute}
	err := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&torporv1alpha1.StopAdapter{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(workers.Options()).
		Complete(&reconcile.Pass[*torporv1alpha1.StopAdapter, *observation, adapterPlan]{
			Hub:       reconcile.HubOf(mgr, Name, c.Clock),
			New:       func() *torporv1alpha1.StopAdapter { return &torporv1alpha1.StopAdapter{} },
			Finalizer: &reconcile.Finalizer[*torporv1alpha1.StopAdapter]{Name: torporv1alpha1.StopAdapterFinalizer, Finalize: c.finalize},
			Forget:    func(name types.NamespacedName) { c.groups.abandon(name.Name) },
			Observe:   observe,
			Decide:    func(seen *observation) adapterPlan { return adapterPlan{Runs: seen.problem == nil} },
			Act:       c.act,
			Report:    c.report,
			Status: reconcilestatus.Storage[*torporv1alpha1.StopAdapter]{
				Conditions: func(a *torporv1alpha1.StopAdapter) *[]metav1.Condition { return &a.Status.Conditions },
			},
		})
	if err == nil {
		err = mgr.Add(manager.RunnableFunc(c.groups.run))
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// observation is a StopAdapter with its kind, or with the error in its spec.
type observation struct {
	adapter *torporv1alpha1.StopAdapter
	kind    kinds.Kind
	problem error
}

// adapterPlan defines whether a controller for the kind should run.
type adapterPlan struct{ Runs bool }

func observe(_ context.Context, a *torporv1alpha1.StopAdapter) (*observation, error) {
	seen := &observation{adapter: a}
	seen.kind, seen.problem = stopadapter.NewKind(a)
	return seen, nil
}

func (c Controller) act(ctx context.Context, seen *observation, plan adapterPlan) error {
	a := seen.adapter
	if !plan.Runs || !c.groups.isCurrent(a) {
		c.groups.remove(ctx, a.Name)
	}
	if !plan.Runs || c.groups.isCurrent(a) {
		return nil
	}
	setup := fieldswitchcontroller.Controller{Clock: c.Clock, Kind: seen.kind, Observer: c.Observer, Metrics: c.Metrics, Ends: c.Ends}.SetupWithManager
	when := conditional.All(conditional.Served(seen.kind.GVK()), conditional.Allowed(rightsInterval, c.listRights(a)...))
	group, err := conditional.Setup(c.Manager, when, setup, conditional.Name("stopadapter/"+a.Name))
	if err != nil {
		return fmt.Errorf("run the controller of %s: %w", a.Name, err)
	}
	if !c.groups.add(a, group) {
		adapterGroup{Group: group}.end(context.WithoutCancel(ctx))
	}
	return nil
}

func (c Controller) listRights(a *torporv1alpha1.StopAdapter) (rights []authorizationv1.ResourceAttributes) {
	for _, namespace := range c.listNamespaces() {
		for _, verb := range []string{"get", "list", "watch", "patch"} {
			rights = append(rights, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: a.Spec.Target.Group, Resource: a.Spec.Target.Resource})
		}
	}
	return rights
}

// listNamespaces returns the namespaces of the objects; an empty name means all.
func (c Controller) listNamespaces() []string {
	if len(c.WatchNamespaces) == 0 {
		return []string{""}
	}
	return c.WatchNamespaces
}

func (c Controller) report(a *torporv1alpha1.StopAdapter, seen *observation, _ adapterPlan, refused *reconcile.RefusedError) reconcile.FollowUp {
	a.Status.ObservedGeneration = a.Generation
	ready := describeGroup(a, c.groups.status(a.Name))
	switch {
	case seen.problem != nil:
		ready = decision.False(torporv1alpha1.StopAdapterInvalidReason, seen.problem.Error())
	case refused != nil:
		ready = decision.False(torporv1alpha1.StopAdapterFailedReason, refused.Error())
	}
	reconcile.SetConditions(&a.Status.Conditions, map[string]decision.Condition{torporv1alpha1.StopAdapterReadyCondition: ready}, a.Generation, c.Clock)
	out := reconcile.FollowUp{Rule: ready.Reason, RequeueAfter: lookInterval}
	if ready.Status == metav1.ConditionTrue || seen.problem != nil {
		out.RequeueAfter = settledInterval
	}
	return out
}

// describeGroup returns a condition that reports whether the controller of a kind runs. If it does not run, the
// condition contains the cause.
func describeGroup(a *torporv1alpha1.StopAdapter, is conditional.GroupStatus) decision.Condition {
	target := a.Spec.Target
	switch {
	case is.Phase == conditional.Running:
		return decision.True(torporv1alpha1.StopAdapterRunningReason, "Users and Slumbers can stop and start objects of kind "+target.Kind)
	case is.Condition.Reason == conditional.ForbiddenReason:
		return decision.False(torporv1alpha1.StopAdapterForbiddenReason, fmt.Sprintf(
			"Expected permission to get, list, watch and patch %s.%s, found that some of these verbs are missing; create a ClusterRole with these verbs and the label %s", target.Resource, target.Group, torporv1alpha1.StopAdapterRoleLabel))
	case is.Error != "":
		return decision.False(torporv1alpha1.StopAdapterFailedReason, "The controller of "+target.Kind+" failed: "+is.Error)
	case is.Phase == conditional.Starting:
		return decision.Unknown(torporv1alpha1.StopAdapterStartingReason, "The controller of "+target.Kind+" starts: the objects of the kind are being listed")
	case is.Condition.State == conditional.Unknown: // A new leader has not checked whether the kind is served.
		return decision.Unknown(torporv1alpha1.StopAdapterStartingReason, fmt.Sprintf("Checking whether the API server serves %s/%s %s", target.Group, target.Version, target.Kind))
	default:
		return decision.False(torporv1alpha1.StopAdapterDormantReason, fmt.Sprintf("The API server does not serve %s/%s %s", target.Group, target.Version, target.Kind))
	}
}
