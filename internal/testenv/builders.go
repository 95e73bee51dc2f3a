// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// BuildClusterDeployment returns an installed cluster on the simulated cloud, whose machines have its name as their
// infraID. Its Secrets are those that are named.
func BuildClusterDeployment(name types.NamespacedName, cloudSecret, kubeconfigSecret string) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{hivev1.VersionLabel: "4.16.3"},
	}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Installed = name.Name, "local.test", true
	cd.Spec.Platform.AWS = &hivev1.AWSPlatform{Region: Region}
	cd.Spec.Platform.AWS.CredentialsSecretRef.Name = cloudSecret
	cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: name.Name, InfraID: name.Name}
	cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = kubeconfigSecret
	return cd
}

// BuildMySQLCluster returns a MySQLCluster with as few fields as the API server takes.
func BuildMySQLCluster(t testing.TB, name types.NamespacedName, replicas int) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := DecodeObject(t, fmt.Sprintf(`{"spec": {
	"replicas": %d, "podTemplate": {"spec": {"containers": [{"name": "mysqld", "image": "mysql:1"}]}},
	"volumeClaimTemplates": [{"metadata": {"name": "mysql-data"},
		"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}`, replicas), &mocov1beta2.MySQLCluster{})
	cluster.Namespace, cluster.Name = name.Namespace, name.Name
	return cluster
}

// BuildCFApp returns a stopped app without a droplet.
func BuildCFApp(name types.NamespacedName) *korifiv1alpha1.CFApp {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	app.Spec.DisplayName, app.Spec.DesiredState, app.Spec.Lifecycle.Type = name.Name, korifiv1alpha1.StoppedState, korifiv1alpha1.DockerLifecycle
	return app
}

// WaitForAppAdmission waits until the webhooks answer: a new app, of which nothing is kept, gets a revision from them.
func (e *Environment) WaitForAppAdmission(t testing.TB, namespace, revision string) {
	t.Helper()
	Eventually(t, "admission sets revision "+revision, func() error {
		app := BuildCFApp(types.NamespacedName{Namespace: namespace, Name: "probe"})
		if err := e.Client.Create(t.Context(), app, client.DryRunAll); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if found := app.Annotations[korifiv1alpha1.RevisionAnnotation]; found != revision {
			return fmt.Errorf("expected revision %q, found %q", revision, found)
		}
		return nil
	})
}
