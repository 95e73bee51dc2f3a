// SPDX-License-Identifier: Apache-2.0

// Package targetcluster makes a target cluster out of machines of the simulated cloud:
// one control-plane machine and some nodes, and what the hub needs to know of them.
package targetcluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"
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
