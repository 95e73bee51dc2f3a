// SPDX-License-Identifier: Apache-2.0

// Package targetcluster creates a target cluster from machines of the simulated cloud: one control-plane machine and
// some nodes, and the objects that the hub needs.
package targetcluster

import (
	"context"
	"crypto/rand"
	_ "embed" // The manifest is a separate file, as a user would write it.
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

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
	"github.com/torpor-dev/torpor/local/pki"
)

// Config is the configuration of a target cluster.
type Config struct {
	// Name of the cluster and of its ClusterDeployment.
	Name string
	// Namespace of the ClusterDeployment in the hub.
	Namespace string
	// Dir contains the machines' disks: their data, certificates and logs.
	Dir string
	// HubKubeconfig is a kubeconfig of the hub.
	HubKubeconfig string
	// Cloud is the endpoint of the simulated cloud.
	Cloud string
	// Region is the cloud's region, and AccessKey a key for it.
	Region, AccessKey string
	// Nodes is the number of hollow nodes.
	Nodes int
	// Certificates is how long the nodes' certificates are valid.
	Certificates time.Duration
	// Heartbeat is the interval of the nodes' heartbeats.
	Heartbeat time.Duration
	// HoldFile is the path of a file. The start of every node is delayed while the file exists. If HoldFile is empty,
	// the start is not delayed.
	HoldFile string
	// Program is the path of this program, which the machines run.
	Program string
	// Version is the OpenShift version in a label of the ClusterDeployment.
	Version string
	// Progress is called for each step; nil drops the messages.
	Progress func(format string, args ...any)
}

// CreatedCluster describes a created cluster.
type CreatedCluster struct {
	// InfraID is in the tag of the machines.
	InfraID string
	// Kubeconfig is the path of the admin kubeconfig of the cluster.
	Kubeconfig string
	// Manifest is the file with the ClusterDeployment.
	Manifest string
	// Applied is false if the hub does not serve ClusterDeployments yet.
	Applied bool
}

const apiPort = 6443

// InfraID returns the infrastructure id, which is in the tag of the machines.
func (c Config) InfraID() string         { return c.Name + "-l0cal" }
func (c Config) controlPlaneDir() string { return filepath.Join(c.Dir, "control-plane") }
func (c Config) adminKubeconfig() string {
	return filepath.Join(c.controlPlaneDir(), "admin.kubeconfig")
}
func (c Config) bootstrapKubeconfig() string { return filepath.Join(c.Dir, "bootstrap.kubeconfig") }
func (c Config) manifestPath() string        { return filepath.Join(c.Dir, "clusterdeployment.yaml") }
func (c Config) nodeName(i int) string       { return fmt.Sprintf("%s-worker-%d", c.InfraID(), i) }
func (c Config) reportProgress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(format, args...)
	}
}

func (c Config) validate() error {
	var errs []error
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("expected a name of lower-case letters, digits and dashes, found %q", c.Name))
	}
	if c.Nodes < 1 {
		errs = append(errs, fmt.Errorf("expected at least one node, found %d; set --nodes", c.Nodes))
	}
	if c.Certificates < 20*time.Second {
		errs = append(errs, fmt.Errorf("expected certificates that are valid for 20s or longer, found %s; set --certificates", c.Certificates))
	}
	if c.Cloud == "" || c.HubKubeconfig == "" {
		errs = append(errs, errors.New("expected --cloud and --hub, found at least one of them empty"))
	}
	return errors.Join(errs...)
}

const (
	pollInterval = 100 * time.Millisecond
	stepTimeout  = 2 * time.Minute
)

// CreateCluster creates the cluster and waits until its nodes are ready. A second call with the same folder uses the
// existing machines.
func CreateCluster(ctx context.Context, c Config) (CreatedCluster, error) {
	var err error
	if err := c.validate(); err != nil {
		return CreatedCluster{}, err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return CreatedCluster{}, fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return CreatedCluster{}, fmt.Errorf("create cluster folder: %w", err)
	}
	cloud := newCloudClient(c.Cloud, c.Region, c.AccessKey)
	address, err := c.startControlPlane(ctx, cloud)
	if err != nil {
		return CreatedCluster{}, err
	}
	client, err := c.awaitControlPlane(ctx)
	if err != nil {
		return CreatedCluster{}, err
	}
	c.reportProgress("the control plane answers at %s", address)
	if err := c.allowNodes(ctx, client, address); err != nil {
		return CreatedCluster{}, err
	}
	if err := c.startNodes(ctx, cloud); err != nil {
		return CreatedCluster{}, err
	}
	if err := c.awaitNodes(ctx, client); err != nil {
		return CreatedCluster{}, err
	}
	c.reportProgress("%d nodes are ready with certificates that are valid for %s", c.Nodes, c.Certificates)
	applied, err := c.applyToHub(ctx)
	if err != nil {
		return CreatedCluster{}, err
	}
	return CreatedCluster{InfraID: c.InfraID(), Kubeconfig: c.adminKubeconfig(), Manifest: c.manifestPath(), Applied: applied}, nil
}

func (c Config) startControlPlane(ctx context.Context, cloud *cloudClient) (string, error) {
	name := c.InfraID() + "-master-0"
	m := machineSpec{name: name, infraID: c.InfraID(), log: filepath.Join(c.Dir, name+".log"), command: []string{
		c.Program, "control-plane", "--dir", c.controlPlaneDir(), "--address", "{{ip}}", "--port", fmt.Sprint(apiPort),
		"--signing-duration", c.Certificates.String(), "--approve-serving",
	}}
	address, err := cloud.ensureRunning(ctx, m)
	if err != nil {
		return "", fmt.Errorf("run control-plane machine: %w", err)
	}
	return fmt.Sprintf("https://%s:%d", address, apiPort), nil
}

func (c Config) startNodes(ctx context.Context, cloud *cloudClient) error {
	for i := range c.Nodes {
		name := c.nodeName(i)
		m := machineSpec{name: name, infraID: c.InfraID(), log: filepath.Join(c.Dir, name+".log"), command: []string{
			c.Program, "node", "--name", name, "--address", "{{ip}}", "--dir", filepath.Join(c.Dir, name),
			"--bootstrap-kubeconfig", c.bootstrapKubeconfig(), "--heartbeat", c.Heartbeat.String(), "--hold-file", c.HoldFile,
		}}
		if _, err := cloud.ensureRunning(ctx, m); err != nil {
			return fmt.Errorf("run node machine: %w", err)
		}
	}
	return nil
}

func (c Config) awaitControlPlane(ctx context.Context) (kubernetes.Interface, error) {
	var client kubernetes.Interface
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, stepTimeout, true, func(ctx context.Context) (bool, error) {
		if client, last = kubeclient.NewClient(c.adminKubeconfig()); last == nil {
			// The API server responds before the controllers run. Once they run, this ServiceAccount exists.
			_, last = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		}
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the control plane: %w; its log is in %s", errors.Join(err, last), c.Dir)
	}
	return client, nil
}

// allowNodes writes the bootstrap kubeconfig and creates the ClusterRoleBindings that nodes need to join a cluster,
// as kubeadm does.
func (c Config) allowNodes(ctx context.Context, client kubernetes.Interface, server string) error {
	token, err := ensureBootstrapToken(ctx, client)
	if err != nil {
		return err
	}
	authority, err := pki.OpenAuthority(filepath.Join(c.controlPlaneDir(), "pki"))
	if err != nil {
		return err
	}
	if err := authority.WriteBootstrapKubeconfig(c.bootstrapKubeconfig(), token, server); err != nil {
		return err
	}
	return bindNodeRoles(ctx, client)
}

// CreateBare creates a cluster whose machines run nothing, and whose kubeconfig is that of the hub. Only the power
// states of its machines can be observed. Benchmarks use such a cluster to measure Torpor's own time, without the time
// that the start of a cluster takes.
func CreateBare(ctx context.Context, c Config, machines int) error {
	if err := c.validate(); err != nil {
		return err
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.MkdirAll(c.controlPlaneDir(), 0o700); err != nil {
		return fmt.Errorf("create cluster folder: %w", err)
	}
	hub, err := os.ReadFile(c.HubKubeconfig)
	if err != nil {
		return fmt.Errorf("read hub kubeconfig: %w", err)
	}
	if err := os.WriteFile(c.adminKubeconfig(), hub, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	cloud := newCloudClient(c.Cloud, c.Region, c.AccessKey)
	for i := range machines {
		if err := cloud.runMachine(ctx, machineSpec{name: fmt.Sprintf("%s-%d", c.InfraID(), i), infraID: c.InfraID()}); err != nil {
			return err
		}
	}
	_, err = c.applyToHub(ctx)
	return err
}

const (
	tokenID     = "abcdef"
	tokenSecret = "bootstrap-token-" + tokenID
)

func ensureBootstrapToken(ctx context.Context, client kubernetes.Interface) (string, error) {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	// The nodes of an earlier call already have the token in their kubeconfig.
	existing, err := secrets.Get(ctx, tokenSecret, metav1.GetOptions{})
	if err == nil {
		return tokenID + "." + string(existing.Data["token-secret"]), nil
	}
	if !k8serrors.IsNotFound(err) {
		return "", fmt.Errorf("read bootstrap token: %w", err)
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("create bootstrap token: %w", err)
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

// bindNodeRoles allows nodes to request certificates and to have their client certificates renewed. No controller
// approves the first client certificate of a node, nor the next one if the last expired during a hibernation.
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

// applyToHub writes the Secrets and the ClusterDeployment. It returns false if the hub does not serve
// ClusterDeployments. It writes the manifest in both cases.
func (c Config) applyToHub(ctx context.Context) (bool, error) {
	deployment, err := c.BuildClusterDeployment()
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
		return false, fmt.Errorf("create hub client: %w", err)
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
		if err := applyObject(ctx, hub, secrets, c.BuildSecret(name, values)); err != nil {
			return false, err
		}
	}
	err = applyObject(ctx, hub, deployment.GroupVersionKind().GroupVersion().WithResource("clusterdeployments"), deployment)
	// If the CRD is not installed yet, the manifest can be applied later.
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func applyObject(ctx context.Context, hub dynamic.Interface, kind schema.GroupVersionResource, u *unstructured.Unstructured) error {
	// An API server has the schema of a new CRD only a few seconds after it serves the kind.
	const schemaLimit, schemaRetry = 30 * time.Second, 200 * time.Millisecond
	var err error
	_ = wait.PollUntilContextTimeout(ctx, schemaRetry, schemaLimit, true, func(ctx context.Context) (bool, error) {
		options := metav1.ApplyOptions{FieldManager: fieldOwner, Force: true}
		_, err = hub.Resource(kind).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, options)
		return err == nil || !strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions are created"), nil
	}) // err holds the last error.
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Resource, u.GetName(), err)
	}
	return nil
}

// BuildSecret returns a Secret that belongs to the ClusterDeployment.
func (c Config) BuildSecret(name string, values map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata":   map[string]any{"name": name, "namespace": c.Namespace},
		"stringData": values,
	}}
}

// BuildClusterDeployment returns the ClusterDeployment that a user would write.
func (c Config) BuildClusterDeployment() (*unstructured.Unstructured, error) {
	values := map[string]string{"name": c.Name, "namespace": c.Namespace, "region": c.Region, "version": c.Version, "infraID": c.InfraID()}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(os.Expand(manifestTemplate, func(key string) string { return values[key] })), &u.Object); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return u, nil
}
