// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"crypto/rand"
	_ "embed" // The manifest is a file, as a user's is.
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/local/kubeclient"
)

const (
	tokenID     = "abcdef"
	tokenSecret = "bootstrap-token-" + tokenID
)

// ensureBootstrapToken makes a bootstrap token, or finds the one of an earlier call.
func ensureBootstrapToken(ctx context.Context, client kubernetes.Interface) (string, error) {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	// The nodes of an earlier call have the token in their kubeconfig.
	existing, err := secrets.Get(ctx, tokenSecret, metav1.GetOptions{})
	if err == nil {
		return tokenID + "." + string(existing.Data["token-secret"]), nil
	}
	if !k8serrors.IsNotFound(err) {
		return "", fmt.Errorf("read bootstrap token: %w", err)
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make bootstrap token: %w", err)
	}
	secret := hex.EncodeToString(random)
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tokenSecret, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": tokenID, "token-secret": secret,
			"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create bootstrap token: %w", err)
	}
	return tokenID + "." + secret, nil
}

// bindNodeRoles lets nodes ask for certificates and renew their client certificates by themselves.
// No controller approves a first client certificate, nor the first one after a hibernation that outlived the last.
func bindNodeRoles(ctx context.Context, client kubernetes.Interface) error {
	for _, b := range []struct{ name, role, group string }{
		{"local-node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers"},
		{"local-node-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}},
		}, metav1.CreateOptions{})
		if err != nil && !k8serrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind role %s: %w", b.role, err)
		}
	}
	return nil
}

// awaitNodes approves the first client certificates, as an installer does, until every node is ready.
func (c Config) awaitNodes(ctx context.Context, client kubernetes.Interface) error {
	ready, last := 0, error(nil)
	err := wait.PollUntilContextTimeout(ctx, pollInterval, stepTimeout, true, func(ctx context.Context) (bool, error) {
		ready, last = approveAndCountReady(ctx, client)
		return last == nil && ready >= c.Nodes, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d nodes, found %d ready: %w; their logs are in %s", c.Nodes, ready, errors.Join(err, last), c.Dir)
	}
	return nil
}

func approveAndCountReady(ctx context.Context, client kubernetes.Interface) (int, error) {
	if err := approveBootstrap(ctx, client); err != nil {
		return 0, err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	ready := 0
	for _, n := range list.Items {
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready, nil
}

func approveBootstrap(ctx context.Context, client kubernetes.Interface) error {
	return kubeclient.ApproveRequests(ctx, client, "LocalInstaller", "first certificate of a new node",
		func(csr certificatesv1.CertificateSigningRequestSpec) (bool, error) {
			return csr.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && csr.Username == "system:bootstrap:"+tokenID, nil
		})
}

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
