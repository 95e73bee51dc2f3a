// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// environment is a hub that serves ClusterDeployments, a cloud that runs machines, and the manager's traffic to both.
type environment struct {
	hub     *testenv.Environment
	cloud   *testenv.CloudServer
	traffic *managerTraffic

	hubProxy, cloudProxy *interceptingProxy
	// startedPIDs are the process IDs of everything that was started, by name.
	startedPIDs map[string]int
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	managerBinary(t)
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

// newEnvironmentWithoutCRDs starts a hub that serves no CRD, and no cloud.
func newEnvironmentWithoutCRDs(t *testing.T) *environment {
	t.Helper()
	w := &environment{traffic: newManagerTraffic(), startedPIDs: map[string]int{}}
	t.Cleanup(func() { w.checkProcessesEnded(t) }) // The first cleanup runs last, when everything should have ended.
	w.hub = testenv.StartAPIServer(t)
	w.startedPIDs["hub"] = w.hub.PID()
	w.hubProxy = w.traffic.startProxy(t, toHub, w.hub.Config)
	return w
}

func (w *environment) checkProcessesEnded(t *testing.T) {
	t.Helper()
	for name, pid := range w.startedPIDs {
		if pid == 0 {
			continue // A machine that is stopped has no process.
		}
		testenv.Eventually(t, fmt.Sprintf("%s (pid %d) has ended", name, pid), func() error {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("expected no such process, found it alive (%w)", err)
			}
			return nil
		})
	}
}

func managerBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TORPOR_BINARY")
	if path == "" {
		t.Skip("TORPOR_BINARY is not set: expected the path of the binary torpor; run with `make test`")
	}
	return path
}

// startManager runs the manager's own binary against the proxies. A kill point that is reached kills this process.
func (w *environment) startManager(t *testing.T, flags ...string) *testenv.Process {
	t.Helper()
	args := append([]string{
		"manager", "--verbose", "--kubeconfig", writeKubeconfig(t, w.hubProxy), "--metrics-address", "0", "--probe-address", "0",
	}, flags...)
	p := testenv.StartProcess(t, managerBinary(t), args, nil)
	w.startedPIDs[fmt.Sprintf("manager %d", len(w.startedPIDs))] = p.PID()
	w.traffic.setKill(func() { p.KillAtOnce(t) })
	return p
}

// buildKubeconfig leads to a proxy, which brings its own credentials.
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
	if err := clientcmd.WriteToFile(buildKubeconfig(tp), path); err != nil {
		t.Fatal(err)
	}
	return path
}
