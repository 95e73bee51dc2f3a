// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles ClusterDeployments with the decisions of package hibernation. A reconcile pass observes
// a ClusterDeployment, its cloud and its cluster, calls hibernation.Decide, performs at most one action and writes the
// status.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/cloudcalls"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
)

// Name is the name of the controller, the reporter of its events and its field manager.
const Name = "torpor-hibernation"

// Controller reconciles ClusterDeployments.
type Controller struct {
	// Actuators are the actuators of the supported clouds, by platform.
	Actuators map[string]actuator.Actuator
	// Dialer connects to target clusters.
	Dialer targetcluster.Dialer
	// RequiresPossible refuses every new hibernation while the condition HibernationPossible is False, as the
	// annotation torpor.dev/require does for one cluster.
	RequiresPossible bool
	// UsesHiveReasons reports the conditions with Hive's reasons.
	UsesHiveReasons bool
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Guard excludes objects that another project's controller writes, such as Hive's. A nil Guard excludes no object.
	Guard *reconcile.WriterGuard
	// Metrics exposes states and counts.
	Metrics *Metrics
	// Ends contains the overdue ends of stops of all controllers. If nil, overdue ends have no precedence.
	Ends *priority.OverdueEnds

	client      client.Client
	live        client.Reader
	accounts    *cloudcalls.Service
	pool        *targetcluster.Pool
	approvalLog *approvalLog
	firstLooks  *firstLooks
	surveys     *surveySchedule
	clusterAPI  *clusterAPI
	// machineAccounts contains the cloud account of each cluster's machines.
	machineAccounts *machineAccounts
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=get;patch
// +kubebuilder:rbac:groups=hiveinternal.openshift.io,resources=clustersyncs,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.accounts = cloudcalls.NewService(c.Clock)
	c.accounts.MayStop = c.mayStop
	c.pool = targetcluster.NewPool(c.Dialer, c.Clock)
	c.pool.ReadKubeconfig = c.readKubeconfig
	c.approvalLog = &approvalLog{resumes: map[types.UID]*resumeApprovals{}}
	c.machineAccounts = newMachineAccounts()
	c.firstLooks = &firstLooks{resumes: map[types.UID]*firstLook{}}
	c.surveys = newSurveySchedule()
	c.clusterAPI = newClusterAPI(c.client, c.live, c.Clock)
	c.Metrics.cache.Use(mgr.GetClient())
	c.Metrics.saved.UseClock(c.Clock)
	c.Metrics.sources.Store(&metricSources{c.accounts, c.pool})
	if err := errors.Join(addIndexes(mgr), mgr.Add(c.accounts), mgr.Add(c.pool)); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	// PassTimeout limits the total time of a pass. Each call has a separate deadline.
	ends := priority.TrackEnds(c.Ends, Name, c.isEndOverdue, nil)
	workers := reconcile.WorkerOptions{Count: 20, PassTimeout: 2 * time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	err := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(specOrVersionChanged())).
		Watches(&hivev1.ClusterDeployment{}, ends.EnqueueOverdue()).
		// Secrets are read on demand and not watched, because the permission to watch them would allow reading all
		// Secrets on the hub.
		Watches(&hivev1.ClusterDeployment{}, handler.EnqueueRequestsFromMapFunc(c.clusterDeploymentsOfSameMachines), builder.WithPredicates(machinesChangeHands())).
		WatchesRawSource(c.answers()).
		WithOptions(workers.Options()).
		Complete(begunFirst{&reconcile.Pass[*hivev1.ClusterDeployment, *clusterObservation, hibernation.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard, Ends: ends,
			New:     func() *hivev1.ClusterDeployment { return &hivev1.ClusterDeployment{} },
			Forget:  c.forget,
			Observe: c.observe,
			Decide:  func(seen *clusterObservation) hibernation.Plan { return hibernation.Decide(seen.Observed) },
			Act:     c.act,
			Report:  c.report,
			Status: reconcilestatus.Storage[*hivev1.ClusterDeployment]{
				Conditions: func(cd *hivev1.ClusterDeployment) *[]metav1.Condition { return &cd.Status.Conditions },
				// Hive's CRD drops the record, and may replace Torpor's CRD while clusters hibernate. A lost start of a
				// resume is recorded again.
				Remember: rememberRecord, RemembersAlways: true, RemembersIfDropped: []string{"savings"},
				Recoverable: []string{"hibernation.asleepAt", "hibernation.resumeStartedAt", "hibernationCheck"},
			},
		}})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// answers triggers passes of clusters with new results from accounts or the pool.
func (c Controller) answers() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		c.accounts.Enqueue = func(look types.NamespacedName) {
			for _, cluster := range c.machineAccounts.takeWaiting(look) {
				priority.Enqueue(queue, ctrl.Request{NamespacedName: cluster}, priority.Urgent)
			}
		}
		c.pool.Enqueue = func(cluster types.NamespacedName, isCalm bool) {
			level := priority.Urgent
			if isCalm {
				level = priority.Usual
			}
			priority.Enqueue(queue, ctrl.Request{NamespacedName: cluster}, level)
		}
		return nil
	})
}

func (c Controller) forget(cluster types.NamespacedName) {
	c.forgetMachines(cluster)
	c.pool.Rest(cluster)
	c.surveys.forget(cluster)
	c.clusterAPI.forget(cluster)
}

// forgetMachines drops the state of a cluster's machines and their orders.
func (c Controller) forgetMachines(cluster types.NamespacedName) {
	c.machineAccounts.forget(cluster)
	c.accounts.ForgetCluster(cluster)
	c.accounts.ForgetCluster(ownerLook(cluster))
}

// machinesChangeHands selects deletions of a ClusterDeployment, and changes after which it refers to other machines.
func machinesChangeHands() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isBefore := e.ObjectOld.(*hivev1.ClusterDeployment)
			after, isAfter := e.ObjectNew.(*hivev1.ClusterDeployment)
			return isBefore && isAfter && (!slices.Equal(machineTags(before), machineTags(after)) || before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero())
		},
	}
}

func rememberRecord(cd *hivev1.ClusterDeployment) map[string]any {
	remembered := map[string]any{}
	if cd.Status.Hibernation != nil {
		remembered["hibernation"] = cd.Status.Hibernation
	}
	if len(cd.Status.Stops) > 0 {
		remembered["stops"] = cd.Status.Stops
	}
	if cd.Status.Savings != nil {
		remembered["savings"] = cd.Status.Savings
	}
	if cd.Status.HibernationCheck != nil {
		remembered["hibernationCheck"] = cd.Status.HibernationCheck
	}
	return remembered
}

// specOrVersionChanged selects changes that can change a decision, including stops by Slumbers. It ignores the status
// updates of this controller, except a new version.
func specOrVersionChanged() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, reconcile.AnnotationChangedByOthers(),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			before, isBefore := e.ObjectOld.(*hivev1.ClusterDeployment)
			after, isAfter := e.ObjectNew.(*hivev1.ClusterDeployment)
			return isBefore && isAfter &&
				(!equality.Semantic.DeepEqual(before.Status.ClusterVersionStatus, after.Status.ClusterVersionStatus) ||
					!equality.Semantic.DeepEqual(before.Status.InstallVersion, after.Status.InstallVersion) ||
					!equality.Semantic.DeepEqual(before.Status.ScheduledStops, after.Status.ScheduledStops))
		}},
	)
}
