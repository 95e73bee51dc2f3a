// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stopcheck "github.com/torpor-dev/torpor/internal/stop/check"
	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// planSubject is the object of a plan.
type planSubject struct {
	obj          client.Object
	target       target
	startCommand string
}

// planFunction makes a plan for one kind. It reads the other objects that it needs from the namespace.
type planFunction func(context.Context, *kubeClient, planSubject, stopcheck.PlanRequest) (stopcheck.Plan, error)

func planClusterDeployment(_ context.Context, _ *kubeClient, s planSubject, r stopcheck.PlanRequest) (stopcheck.Plan, error) {
	cd, _ := s.obj.(*hivev1.ClusterDeployment)
	statusannotation.RestoreStatus(cd)
	return stopcheck.PlanCluster(cd, r), nil
}

func planMySQLCluster(ctx context.Context, kube *kubeClient, s planSubject, r stopcheck.PlanRequest) (stopcheck.Plan, error) {
	found, _ := s.obj.(*mocov1beta2.MySQLCluster)
	statusannotation.RestoreStatus(found)
	cluster := stopcheck.MySQLCluster{MySQLCluster: found, IsClustering: s.target.part == clusteringPart, StartCommand: s.startCommand}
	if name := found.Spec.BackupPolicyName; name != nil && *name != "" {
		policy := &mocov1beta2.BackupPolicy{}
		err := kube.Get(ctx, client.ObjectKey{Namespace: found.Namespace, Name: *name}, policy)
		switch {
		case k8serrors.IsNotFound(err), connection.IsKindNotServed(err): // There are no backups.
		case err != nil:
			return stopcheck.Plan{}, fmt.Errorf("read the BackupPolicy %s: %w", *name, err)
		default:
			cluster.Policy = policy
		}
	}
	return stopcheck.PlanMySQLCluster(cluster, r), nil
}

func planCFApp(ctx context.Context, kube *kubeClient, s planSubject, r stopcheck.PlanRequest) (stopcheck.Plan, error) {
	found, _ := s.obj.(*korifiv1alpha1.CFApp)
	statusannotation.RestoreStatus(found)
	app := stopcheck.PlannedApp{CFApp: found, StartCommand: s.startCommand}
	err := eachItem(ctx, kube, &torporv1alpha1.CFDeploymentList{}, func(d *torporv1alpha1.CFDeployment) {
		app.Deployments = append(app.Deployments, *d)
	}, client.InNamespace(found.Namespace))
	if err != nil && !connection.IsKindNotServed(err) {
		return stopcheck.Plan{}, fmt.Errorf("list the CFDeployments: %w", err)
	}
	return stopcheck.PlanApp(app, r), nil
}

// planSwitched returns the planFunction of a kind whose switch the manager sets.
func planSwitched(k stoppable.Kind) planFunction {
	return func(ctx context.Context, kube *kubeClient, s planSubject, r stopcheck.PlanRequest) (plan stopcheck.Plan, err error) {
		u, _ := s.obj.(*unstructured.Unstructured)
		is := fieldswitch.ReadSwitch(u)
		object := stopcheck.SwitchedObject{Object: u, Scheduled: is.ListStopsSinceResume(), StartCommand: s.startCommand, Refusal: fieldswitch.RefuseOwned(u)}
		switch {
		case r.IsStart:
			object.Changes = is.DescribeStart()
		case len(is.Saved) > 0:
			object.Changes = []string{"Nothing changes: the object is already stopped"}
		default:
			if object.Changes, err = fieldswitch.DescribeStop(u.Object, k.Switch.Operations); err != nil {
				object.Refusal = err.Error()
			}
		}
		if k.Switch.IsScaled && object.Refusal == "" {
			object.Refusal, object.Unread, err = kube.judgeAutoscalers(ctx, u)
		}
		if u.GetKind() == "CronJob" {
			object.Schedule, _, _ = unstructured.NestedString(u.Object, "spec", "schedule")
			if deadline, isThere, _ := unstructured.NestedInt64(u.Object, "spec", "startingDeadlineSeconds"); isThere {
				object.Deadline = &deadline
			}
		}
		return stopcheck.PlanSwitched(object, r), err
	}
}

// judgeAutoscalers returns the refusal if an autoscaler would undo the stop.
func (kube *kubeClient) judgeAutoscalers(ctx context.Context, u *unstructured.Unstructured) (refusal, unread string, err error) {
	var all []autoscalingv2.HorizontalPodAutoscaler
	err = eachItem(ctx, kube, &autoscalingv2.HorizontalPodAutoscalerList{}, func(a *autoscalingv2.HorizontalPodAutoscaler) {
		all = append(all, *a)
	}, client.InNamespace(u.GetNamespace()))
	switch {
	case k8serrors.IsForbidden(err):
		return "", "Expected the right to list HorizontalPodAutoscalers, found none: whether one would undo the stop is not known", nil
	case err != nil:
		return "", "", fmt.Errorf("list the HorizontalPodAutoscalers: %w", err)
	}
	return fieldswitch.RefuseAutoscaled(u, all), "", nil
}
