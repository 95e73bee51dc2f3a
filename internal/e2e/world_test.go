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

// world is a hub that serves ClusterDeployments, a cloud that runs machines, and the wire to both.
type world struct {
	hub   *testenv.Environment
	cloud *testenv.CloudServer
	wire  *wire

	hubTap, cloudTap *tap
	// started are the pids of everything that was started.
	started map[string]int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	managerBinary(t)
	w := newHubWorld(t)
	w.hub.InstallCRDs(t)
	w.cloud = testenv.StartCloud(t, "--allow-commands", "--start-latency", "200ms", "--stop-latency", "200ms")
	w.started["cloud"] = w.cloud.PID()
	w.cloudTap = w.wire.newTap(t, viaCloud, &rest.Config{Host: w.cloud.URL})
	t.Cleanup(func() {
		for _, i := range w.cloud.ListInstances(t, "") {
			w.started["machine "+i.Name] = i.PID
		}
	})
	return w
}

// newHubWorld has a hub only, and no CRD.
func newHubWorld(t *testing.T) *world {
	t.Helper()
	w := &world{wire: newWire(), started: map[string]int{}}
	t.Cleanup(func() { w.nothingIsLeft(t) }) // The first cleanup runs last.
	w.hub = testenv.StartAPIServer(t)
	w.started["hub"] = w.hub.PID()
	w.hubTap = w.wire.newTap(t, viaHub, w.hub.Config)
	return w
}

func (w *world) nothingIsLeft(t *testing.T) {
	t.Helper()
	for name, pid := range w.started {
		if pid == 0 {
			continue // A machine that is switched off.
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

// startManager runs the manager's own binary over the wire; a kill on the wire is a kill -9 of this one.
func (w *world) startManager(t *testing.T, flags ...string) *testenv.Process {
	t.Helper()
	args := append([]string{
		"manager", "--verbose", "--kubeconfig", kubeconfigFile(t, w.hubTap), "--metrics-address", "0", "--probe-address", "0",
	}, flags...)
	p := testenv.StartProcess(t, managerBinary(t), args, nil)
	w.started[fmt.Sprintf("manager %d", len(w.started))] = p.PID()
	w.wire.onKill(func() { p.Kill9(t) })
	return p
}

// kubeconfig leads to a tap, which brings its own credentials.
func kubeconfig(tp *tap) clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters["tap"] = &clientcmdapi.Cluster{Server: tp.url}
	c.Contexts["tap"] = &clientcmdapi.Context{Cluster: "tap"}
	c.CurrentContext = "tap"
	return *c
}

func kubeconfigFile(t *testing.T, tp *tap) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfig(tp), path); err != nil {
		t.Fatal(err)
	}
	return path
}
