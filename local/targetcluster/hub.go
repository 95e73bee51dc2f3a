// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	_ "embed" // The manifest is a file, as a user's is.
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

//go:embed clusterdeployment.yaml
var manifestTemplate string

const fieldOwner = "local-cluster"

// applyToHub writes the Secrets and the ClusterDeployment. It reports false when the hub does not serve that kind;
// the manifest is written in any case.
func (c Config) applyToHub(ctx context.Context) (bool, error) {
	deployment, err := c.buildClusterDeployment()
	if err != nil {
		return false, err
	}
	data, err := yaml.Marshal(deployment)
	if err != nil {
		return false, fmt.Errorf("encode manifest: %w", err)
	}
	if err := os.WriteFile(c.manifestPath(), data, 0o600); err != nil {
		return false, fmt.Errorf("write manifest: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.HubKubeconfig)
	if err != nil {
		return false, fmt.Errorf("read hub kubeconfig: %w", err)
	}
	hub, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return false, fmt.Errorf("make hub client: %w", err)
	}
	kubeconfig, err := os.ReadFile(c.adminKubeconfig())
	if err != nil {
		return false, fmt.Errorf("read kubeconfig: %w", err)
	}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	for name, values := range map[string]map[string]any{
		c.Name + "-admin-kubeconfig": {"kubeconfig": string(kubeconfig)},
		c.Name + "-aws-creds": {
			"aws_access_key_id": c.AccessKey, "aws_secret_access_key": "simulated", "endpoint_url": c.Cloud,
		},
	} {
		if err := applyObject(ctx, hub, secrets, c.buildSecret(name, values)); err != nil {
			return false, err
		}
	}
	err = applyObject(ctx, hub, deployment.GroupVersionKind().GroupVersion().WithResource("clusterdeployments"), deployment)
	// The CRD is not installed yet: the manifest is applied when it is.
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func applyObject(ctx context.Context, hub dynamic.Interface, kind schema.GroupVersionResource, u *unstructured.Unstructured) error {
	_, err := hub.Resource(kind).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldOwner, Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Resource, u.GetName(), err)
	}
	return nil
}

func (c Config) buildSecret(name string, values map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata":   map[string]any{"name": name, "namespace": c.Namespace},
		"stringData": values,
	}}
}

// buildClusterDeployment fills the manifest that a user would write.
func (c Config) buildClusterDeployment() (*unstructured.Unstructured, error) {
	values := map[string]string{"name": c.Name, "namespace": c.Namespace, "region": c.Region, "version": c.Version, "infraID": c.infraID()}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(os.Expand(manifestTemplate, func(key string) string { return values[key] })), &u.Object); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return u, nil
}
