// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterOptions describe a target cluster. What is left empty is as `local cluster create` has it.
type ClusterOptions struct {
	// Name of the cluster and its ClusterDeployment, at most 32 lower-case letters, digits and dashes.
	Name string
	// Namespace of the ClusterDeployment.
	Namespace string
	// Nodes is how many.
	Nodes int
	// Certificates is how long the nodes' certificates are valid, at least 20 s.
	Certificates time.Duration
	// Flags of `local cluster create` come on top.
	Flags []string
}

// TargetCluster is a cluster whose machines are processes of the simulated cloud.
type TargetCluster struct {
	Name, Namespace, InfraID string
	// Kubeconfig is the path of the administrator's kubeconfig; Manifest the path of the objects for the hub.
	Kubeconfig, Manifest string
	// Config and Client let in as an administrator while the cluster is awake.
	Config *rest.Config
	Client client.Client
}

// CreateTargetCluster makes a target cluster and returns when its nodes are ready. The cloud must have been started with
// --allow-commands. If the hub serves no ClusterDeployments yet, apply Manifest later.
func CreateTargetCluster(t testing.TB, hub *Environment, cloud *CloudServer, o ClusterOptions) *TargetCluster {
	t.Helper()
	dir := t.TempDir()
	args := []string{"cluster", "create", o.Name, "--hub", hub.KubeconfigPath(t), "--cloud", cloud.URL, "--region", Region, "--access-key", AccessKey, "--dir", dir}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	args = append(args, "--namespace", o.Namespace)
	if o.Nodes > 0 {
		args = append(args, "--nodes", strconv.Itoa(o.Nodes))
	}
	if o.Certificates > 0 {
		args = append(args, "--certificates", o.Certificates.String())
	}
	p := StartProcess(t, localBinary(t), append(args, o.Flags...), nil)
	c := &TargetCluster{
		Name: o.Name, Namespace: o.Namespace, Kubeconfig: p.WaitForLine(t, "kubeconfig: "), Manifest: filepath.Join(dir, "clusterdeployment.yaml"),
	}
	if code := p.ExitCode(); code != 0 {
		t.Fatalf("make cluster %s: exit code %d", o.Name, code)
	}
	_, c.InfraID, _ = strings.Cut(strings.TrimSuffix(p.WaitForLine(t, "ready: cluster "), ")"), "(infraID ")
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		t.Fatalf("read the cluster's kubeconfig: %v", err)
	}
	c.Config.QPS = -1
	c.Client = newClient(t, c.Config)
	return c
}
