// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/statusannotation"
	"github.com/torpor-dev/torpor/internal/stopcheck"
)

// planSubject is the object that a plan is about.
type planSubject struct {
	obj          client.Object
	target       target
	startCommand string
}

// planFunction plans for one kind. It reads what else it needs of the namespace.
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
	deployments := &torporv1alpha1.CFDeploymentList{}
	err := kube.List(ctx, deployments, client.InNamespace(found.Namespace), client.Limit(pageSize))
	if err != nil && !connection.IsKindNotServed(err) {
		return stopcheck.Plan{}, fmt.Errorf("list the CFDeployments: %w", err)
	}
	app.Deployments = deployments.Items
	return stopcheck.PlanApp(app, r), nil
}
