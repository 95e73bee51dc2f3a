// SPDX-License-Identifier: Apache-2.0

// Package controller runs CFTasks as Jobs, and reports their results.
package controller

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/appenvironment"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/task"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the controller, its event reporter and its field manager.
const Name = "torpor-tasks"

// Controller reconciles CFTasks.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Pods are the options for the Pods of tasks and apps.
	Pods lrp.PodOptions
	// WatchNamespaces restricts the controller to these namespaces. If it is empty, the controller handles all
	// namespaces.
	WatchNamespaces []string
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard

	client client.Client
	live   client.Reader
	// jobs caches only the Jobs of tasks.
	jobs cache.Cache
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cftasks,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cftasks/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cftasks/finalizers,verbs=update
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps;cfbuilds;cfprocesses,verbs=get;list;watch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfserviceinstances;cfservicebindings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller. It has a single worker, because the tasks of an app are numbered one after
// another.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	ofTasks, err := labels.NewRequirement(korifiv1alpha1.TaskGUIDLabel, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	if c.jobs, err = reconcile.NewLabelledCache(mgr, c.WatchNamespaces, labels.NewSelector().Add(*ofTasks), &batchv1.Job{}); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name).
		For(&korifiv1alpha1.CFTask{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](c.jobs, &batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(korifiv1alpha1.TaskGUIDLabel)))).
		WithOptions(reconcile.WorkerOptions{Count: 1, PassTimeout: time.Minute}.Options()).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFTask, task.Observed, task.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New:     func() *korifiv1alpha1.CFTask { return &korifiv1alpha1.CFTask{} },
			Observe: c.observe,
			Decide:  task.Decide,
			Act:     c.act,
			Report:  c.report,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func (c Controller) act(ctx context.Context, seen task.Observed, plan task.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	switch plan.Do {
	case task.CreateJob:
		environment, err := appenvironment.Read(ctx, c.client, seen.App)
		if err != nil {
			return fmt.Errorf("read the environment: %w", err)
		}
		// If the Secret already exists, an earlier reconciliation has created it, but has not created the Job. Its
		// content was correct at that time.
		if err := c.client.Create(ctx, task.BuildSecret(seen.Task, environment), client.FieldOwner(Name)); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("save the environment in a Secret: %w", err)
		}
		if err := c.client.Create(ctx, task.BuildJob(seen, c.Pods), client.FieldOwner(Name)); err != nil {
			return ignoreStale(err)
		}
	case task.DeleteJob:
		// The garbage collector then deletes the Job's Pods, which receive SIGTERM.
		err := c.client.Delete(ctx, seen.Job, client.Preconditions{UID: new(seen.Job.UID)}, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the Job: %w", err)
		}
	case task.DeleteTask:
		if err := reconcile.DeleteObserved(ctx, c.client, seen.Task); err != nil {
			return fmt.Errorf("delete the task: %w", err)
		}
	case task.DoNothing:
	}
	return nil
}

func (c Controller) report(obj *korifiv1alpha1.CFTask, _ task.Observed, plan task.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	status, out := &obj.Status, reconcile.FollowUp{Rule: plan.Why, RequeueAfter: plan.After}
	status.ObservedGeneration = obj.Generation
	if plan.Initial != nil {
		status.SequenceID, status.DropletRef, status.MemoryMB, status.DiskQuotaMB = plan.Initial.SequenceID, plan.Initial.DropletRef, plan.Initial.MemoryMB, plan.Initial.DiskQuotaMB
	}
	conditions := plan.Conditions
	if refused != nil {
		out.RequeueAfter = 0
		conditions = map[string]decision.Condition{korifiv1alpha1.TaskStartedCondition: describeRefusal(status, refused)}
	}
	if len(conditions) > 0 {
		reconcile.SetConditions(&status.Conditions, conditions, obj.Generation, c.Clock)
	}
	return out
}

// describeRefusal returns the condition Started of a task for which an action was refused. If the condition is True, it
// remains True, because the refused action does not change that the task was started.
func describeRefusal(status *korifiv1alpha1.CFTaskStatus, refused *reconcile.RefusedError) decision.Condition {
	if meta.IsStatusConditionTrue(status.Conditions, korifiv1alpha1.TaskStartedCondition) {
		return decision.True(korifiv1alpha1.TaskProceedsReason, "the task was started; "+refused.Error())
	}
	return decision.False(korifiv1alpha1.TaskPendingReason, refused.Error())
}
