// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// environment is a hub that serves ClusterDeployments, a cloud that runs machines, and the manager's traffic to both.
type environment struct {
	hub     *testenv.Environment
	cloud   *testenv.CloudServer
	traffic *managerTraffic

	hubProxy, cloudProxy *interceptingProxy
	// startedPIDs are the process IDs of all started processes, by name.
	startedPIDs map[string]int
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	testenv.TorporPath(t)
	w := newEnvironmentWithoutCRDs(t)
	w.hub.InstallCRDs(t)
	w.cloud = testenv.StartCloud(t, "--allow-commands", "--start-latency", "200ms", "--stop-latency", "200ms")
	w.startedPIDs["cloud"] = w.cloud.PID()
	w.cloudProxy = w.traffic.startProxy(t, toCloud, &rest.Config{Host: w.cloud.URL})
	t.Cleanup(func() {
		for _, i := range w.cloud.ListInstances(t, "") {
			w.startedPIDs["machine "+i.Name] = i.PID
		}
	})
	return w
}

// newEnvironmentWithoutCRDs starts a hub without CRDs, and no cloud.
func newEnvironmentWithoutCRDs(t *testing.T) *environment {
	t.Helper()
	return newEnvironmentOn(t, testenv.StartAPIServer)
}

// newEnvironmentOn starts an environment on the hub that start returns.
func newEnvironmentOn(t *testing.T, start func(testing.TB) *testenv.Environment) *environment {
	t.Helper()
	w := &environment{traffic: newManagerTraffic(), startedPIDs: map[string]int{}}
	t.Cleanup(func() { w.checkProcessesEnded(t) }) // The cleanup registered first runs last, when all processes should have ended.
	w.hub = start(t)
	w.startedPIDs["hub"] = w.hub.PID()
	w.hubProxy = w.traffic.startProxy(t, toHub, w.hub.Config)
	return w
}

func (w *environment) checkProcessesEnded(t *testing.T) {
	t.Helper()
	for name, pid := range w.startedPIDs {
		if pid == 0 {
			continue // A stopped machine has no process.
		}
		testenv.Eventually(t, fmt.Sprintf("%s (pid %d) has ended", name, pid), func() error {
			err := syscall.Kill(pid, 0)
			return testenv.ErrorIf(!errors.Is(err, syscall.ESRCH), "expected no such process, found it alive (%w)", err)
		})
	}
}

// startManager runs the manager's own binary with the proxies as its servers. Kill points kill this process.
func (w *environment) startManager(t *testing.T, flags ...string) *testenv.Process {
	t.Helper()
	return w.startManagerIn(t, nil, flags...)
}

// startManagerIn is startManager with additional environment variables.
func (w *environment) startManagerIn(t *testing.T, env []string, flags ...string) *testenv.Process {
	t.Helper()
	args := append([]string{
		"manager", "--verbose", "--kubeconfig", writeKubeconfig(t, w.hubProxy), "--metrics-address", "0", "--probe-address", "0",
		"--allow-insecure-target-clusters", // The proxies serve plain HTTP.
	}, flags...)
	p := testenv.StartProcess(t, testenv.TorporPath(t), args, env)
	w.startedPIDs[fmt.Sprintf("manager %d", len(w.startedPIDs))] = p.PID()
	w.traffic.setKill(func() { p.KillAtOnce(t) })
	return p
}

// buildKubeconfig returns a kubeconfig for a proxy, without credentials because the proxy has its own.
func buildKubeconfig(tp *interceptingProxy) clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: tp.url}
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	c.CurrentContext = "proxy"
	return *c
}

func writeKubeconfig(t *testing.T, tp *interceptingProxy) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(buildKubeconfig(tp), path))
	return path
}

// nodeCount is the number of nodes of each cluster.
const nodeCount = 2

// powerCycledCluster is a cluster that hibernates and resumes, with a proxy between it and the manager.
type powerCycledCluster struct {
	*environment
	*testenv.TargetCluster
	proxy *interceptingProxy
	// holdFile is a file that delays the start of nodes on running machines while it exists.
	holdFile string
}

// createCluster creates a cluster. A duration of zero means certificates that are valid for an hour, so that they do
// not expire during the test.
func (w *environment) createCluster(t *testing.T, name string, certificates time.Duration) *powerCycledCluster {
	t.Helper()
	s := &powerCycledCluster{environment: w, holdFile: filepath.Join(t.TempDir(), "hold")}
	s.TargetCluster = testenv.CreateTargetCluster(t, w.hub, w.cloud, testenv.ClusterOptions{
		Name: name, Nodes: nodeCount, Certificates: certificates, Flags: []string{"--hold-file", s.holdFile, "--heartbeat", "1s"},
	})
	s.proxy = w.traffic.startProxy(t, toCluster, s.Config)
	through, err := clientcmd.Write(buildKubeconfig(s.proxy))
	testenv.ExpectNoError(t, err)
	s.rerouteSecret(t, name+"-admin-kubeconfig", "kubeconfig", string(through))
	s.rerouteSecret(t, name+"-aws-creds", "endpoint_url", w.cloudProxy.url)
	return s
}

func (s *powerCycledCluster) rerouteSecret(t *testing.T, name, key, value string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	testenv.ExpectPatched(t, s.hub, secret, func(secret *corev1.Secret) { secret.Data[key] = []byte(value) })
}

func (s *powerCycledCluster) getClusterDeployment(t *testing.T) *hivev1.ClusterDeployment {
	t.Helper()
	cd := &hivev1.ClusterDeployment{}
	testenv.ExpectNoError(t, s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, cd))
	return cd
}

func (s *powerCycledCluster) requestPowerState(t *testing.T, want hivev1.PowerState) {
	t.Helper()
	testenv.ExpectPatched(t, s.hub, s.getClusterDeployment(t), func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = want })
}

func (s *powerCycledCluster) touchClusterDeployment(t *testing.T, value int) {
	t.Helper()
	s.hub.ExpectAnnotated(t, s.getClusterDeployment(t), map[string]string{"e2e/touched": strconv.Itoa(value)})
}

// checkCondition returns an error unless the condition was observed for the current spec and has the status
// and the reason.
func checkCondition(cd *hivev1.ClusterDeployment, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(cd.Status.Conditions, kind)
	switch {
	case c == nil:
		return fmt.Errorf("expected a condition %s, found none", kind)
	case c.ObservedGeneration != cd.Generation:
		return fmt.Errorf("expected %s of generation %d, found %d", kind, cd.Generation, c.ObservedGeneration)
	case c.Status != status || c.Reason != reason:
		return fmt.Errorf("expected %s to be %s (%s), found %s (%s): %s", kind, status, reason, c.Status, c.Reason, c.Message)
	}
	return nil
}

// checkHibernating returns an error until the hub reports the cluster Hibernating and every machine is stopped.
func (s *powerCycledCluster) checkHibernating(t *testing.T) error {
	t.Helper()
	if err := checkCondition(s.getClusterDeployment(t), hivev1.ClusterHibernatingCondition, metav1.ConditionTrue, hivev1.HibernatingHibernationReason); err != nil {
		return err
	}
	return s.cloud.ExpectState(t, s.InfraID, "stopped")
}

// checkRunning returns an error until the hub reports the cluster Ready, every machine runs and every node has
// reported since the start of its machine.
func (s *powerCycledCluster) checkRunning(t *testing.T) error {
	t.Helper()
	cd := s.getClusterDeployment(t)
	if err := checkCondition(cd, hivev1.ClusterReadyCondition, metav1.ConditionTrue, hivev1.RunningHibernationReason); err != nil {
		return err
	}
	if err := s.cloud.ExpectState(t, s.InfraID, "running"); err != nil {
		return err
	}
	since := cd.CreationTimestamp.Time
	if r := cd.Status.Hibernation; r != nil {
		if r.ResumeStartedAt == nil || r.ResumedAt == nil {
			return fmt.Errorf("expected the record of a finished resume, found one that began %v and ended %v", r.ResumeStartedAt, r.ResumedAt)
		}
		since = r.ResumeStartedAt.Time
	}
	return s.checkNodesSeen(t.Context(), since)
}

func (s *powerCycledCluster) checkNodesSeen(ctx context.Context, since time.Time) error {
	seen, err := s.observeNodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range seen {
		if !n.ready || !n.lastSeen.After(since) {
			return fmt.Errorf("expected node %s ready with a heartbeat after %s, found ready %t with a heartbeat at %s", n.name, since, n.ready, n.lastSeen)
		}
	}
	return nil
}

type observedNode struct {
	name  string
	ready bool
	// readyChanged is the time at which the cluster's own controller last changed the Ready condition.
	readyChanged time.Time
	lastSeen     time.Time
}

// observeNodes reads the nodes from the cluster itself, bypassing the proxy.
func (s *powerCycledCluster) observeNodes(ctx context.Context) ([]observedNode, error) {
	var list corev1.NodeList
	if err := s.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("expected nodes, found none")
	}
	var seen []observedNode
	for _, n := range list.Items {
		var lease coordinationv1.Lease
		if err := s.Client.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: n.Name}, &lease); err != nil {
			return nil, fmt.Errorf("read lease: %w", err)
		}
		one := observedNode{name: n.Name, lastSeen: lease.Spec.RenewTime.Time}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				one.ready, one.readyChanged = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			}
		}
		seen = append(seen, one)
	}
	return seen, nil
}

// checkRequestsOlderThan returns an error until each node has a request for a client certificate that is at
// least that old and was not approved.
func (s *powerCycledCluster) checkRequestsOlderThan(t *testing.T, age time.Duration) error {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := s.Client.List(t.Context(), &list); err != nil {
		return fmt.Errorf("list certificate requests: %w", err)
	}
	waiting := 0
	for _, r := range list.Items {
		if len(r.Status.Conditions) == 0 && r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && time.Since(r.CreationTimestamp.Time) > age {
			waiting++
		}
	}
	return testenv.ErrorIf(waiting != nodeCount, "expected %d requests that have waited for %s, found %d", nodeCount, age, waiting)
}

func (s *powerCycledCluster) waitForExpiredCertificates(t *testing.T) {
	t.Helper()
	// The link to the current certificate may be missing, if a power cut has interrupted its replacement.
	disks := filepath.Join(filepath.Dir(s.Manifest), s.InfraID+"-worker-*", "pki")
	files, err := filepath.Glob(filepath.Join(disks, "kubelet-client-[0-9]*.pem"))
	if err != nil || len(files) == 0 {
		others, _ := filepath.Glob(filepath.Join(disks, "*"))
		t.Fatalf("expected the nodes' certificates on their disks, found only %v (%v)", others, err)
	}
	for _, file := range files {
		testenv.Eventually(t, "the certificate has expired: "+filepath.Base(filepath.Dir(filepath.Dir(file))), func() error {
			expires, err := readCertificateExpiry(file)
			if err == nil && time.Until(expires) >= 0 {
				err = fmt.Errorf("expected an expired certificate, found one that is valid until %s", expires)
			}
			return err
		})
	}
}

func readCertificateExpiry(file string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, errors.New("expected a PEM block, found none")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse certificate: %w", err)
	}
	return certificate.NotAfter, nil
}

// TestMain sets a logger for controller-runtime, without which its clients log warnings.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
