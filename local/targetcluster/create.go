// SPDX-License-Identifier: Apache-2.0

// Package targetcluster makes a target cluster out of machines of the simulated cloud:
// one control-plane machine and some nodes, and what the hub needs to know of them.
package targetcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/pki"
)

// Config is what a target cluster is made with.
type Config struct {
	// Name of the cluster and of its ClusterDeployment.
	Name string
	// Namespace of the ClusterDeployment in the hub.
	Namespace string
	// Dir keeps the machines' disks: their data, certificates and logs.
	Dir string
	// HubKubeconfig lets in to the hub.
	HubKubeconfig string
	// Cloud is the endpoint of the simulated cloud.
	Cloud string
	// Region and AccessKey are what the cloud expects.
	Region, AccessKey string
	// Nodes is how many hollow nodes the cluster has.
	Nodes int
	// Certificates is how long the nodes' certificates are valid.
	Certificates time.Duration
	// Heartbeat of the nodes.
	Heartbeat time.Duration
	// HoldFile holds the start of every node for as long as a file of this path exists; empty holds nothing.
	HoldFile string
	// Program is the path of this program: the machines run it.
	Program string
	// Version is the OpenShift version that the ClusterDeployment claims.
	Version string
	// Progress gets each step; nil drops them.
	Progress func(format string, args ...any)
}

// CreatedCluster is what was made.
type CreatedCluster struct {
	// InfraID tags the machines.
	InfraID string
	// Kubeconfig is the admin kubeconfig of the cluster.
	Kubeconfig string
	// Manifest is the file with the ClusterDeployment.
	Manifest string
	// Applied is false when the hub does not serve ClusterDeployments yet.
	Applied bool
}

const apiPort = 6443

func (c Config) infraID() string         { return c.Name + "-l0cal" }
func (c Config) controlPlaneDir() string { return filepath.Join(c.Dir, "control-plane") }
func (c Config) adminKubeconfig() string {
	return filepath.Join(c.controlPlaneDir(), "admin.kubeconfig")
}
func (c Config) bootstrapKubeconfig() string { return filepath.Join(c.Dir, "bootstrap.kubeconfig") }
func (c Config) manifestPath() string        { return filepath.Join(c.Dir, "clusterdeployment.yaml") }
func (c Config) nodeName(i int) string       { return fmt.Sprintf("%s-worker-%d", c.infraID(), i) }
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
		errs = append(errs, fmt.Errorf("expected certificates that live 20s or longer, found %s; set --certificates", c.Certificates))
	}
	if c.Cloud == "" || c.HubKubeconfig == "" {
		errs = append(errs, errors.New("expected --cloud and --hub, found one of them empty"))
	}
	return errors.Join(errs...)
}

const (
	pollInterval = 100 * time.Millisecond
	stepTimeout  = 2 * time.Minute
)

// CreateCluster makes the cluster and waits until its nodes are ready. A second call with the same folder finds its machines.
func CreateCluster(ctx context.Context, c Config) (CreatedCluster, error) {
	var err error
	if err := c.validate(); err != nil {
		return CreatedCluster{}, err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return CreatedCluster{}, fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return CreatedCluster{}, fmt.Errorf("make cluster folder: %w", err)
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
	c.reportProgress("%d nodes are ready with certificates that live %s", c.Nodes, c.Certificates)
	applied, err := c.applyToHub(ctx)
	if err != nil {
		return CreatedCluster{}, err
	}
	return CreatedCluster{InfraID: c.infraID(), Kubeconfig: c.adminKubeconfig(), Manifest: c.manifestPath(), Applied: applied}, nil
}

func (c Config) startControlPlane(ctx context.Context, cloud *cloudClient) (string, error) {
	name := c.infraID() + "-master-0"
	m := machineSpec{name: name, infraID: c.infraID(), log: filepath.Join(c.Dir, name+".log"), command: []string{
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
		m := machineSpec{name: name, infraID: c.infraID(), log: filepath.Join(c.Dir, name+".log"), command: []string{
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
			// The API server answers before the controllers run; the ServiceAccount is the first trace of those.
			_, last = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		}
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the control plane: %w; its log is in %s", errors.Join(err, last), c.Dir)
	}
	return client, nil
}

// allowNodes writes the bootstrap kubeconfig and allows what a cluster's installer allows.
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

// CreateBare makes a cluster of machines that run nothing, with the hub's own API as the cluster's: only its power can be
// observed. Benchmarks use it to count Torpor's own time, without the boot of a cluster.
func CreateBare(ctx context.Context, c Config, machines int) error {
	if err := c.validate(); err != nil {
		return err
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("resolve folder: %w", err)
	}
	if err := os.MkdirAll(c.controlPlaneDir(), 0o700); err != nil {
		return fmt.Errorf("make cluster folder: %w", err)
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
		if err := cloud.runMachine(ctx, machineSpec{name: fmt.Sprintf("%s-%d", c.infraID(), i), infraID: c.infraID()}); err != nil {
			return err
		}
	}
	_, err = c.applyToHub(ctx)
	return err
}
