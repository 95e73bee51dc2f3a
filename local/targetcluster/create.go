// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/pki"
)

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
