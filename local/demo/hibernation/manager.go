// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/torpor-dev/torpor/local/demo/output"
)

const gateRunning = `torpor_gate_state{group="hibernation",state="Running"} 1`

// startDormantManager starts torpor while none of its kinds exists, and looks that it stays up.
func (r *run) startDormantManager() error {
	r.step("torpor manager, started before any CRD exists")
	var err error
	if r.metrics, r.probes, err = freeAddresses(r.ctx); err != nil {
		return err
	}
	manager, err := r.start("manager", r.Torpor, "manager", "--kubeconfig", r.hubKubeconfig(),
		"--metrics-address", r.metrics, "--probe-address", r.probes)
	if err != nil {
		return err
	}
	crds, err := r.kubectl("get", "crd", "-o", "name")
	if err != nil {
		return err
	}
	if crds != "" {
		return fmt.Errorf("expected a hub without CRDs, found %q", crds)
	}
	if err := r.poll("the manager", readyTimeout, r.managerReady(manager)); err != nil {
		return err
	}
	r.saw("the manager is ready, with no CRD in the hub")
	if err := r.gate(false); err != nil {
		return err
	}
	r.saw("its hibernation controller is dormant")
	return nil
}

// installCRD brings the kind, and looks that the controller starts by itself.
func (r *run) installCRD() error {
	r.step("Install the CRD: the controller starts")
	if _, err := r.kubectl("apply", "--server-side", "-k", r.CRDs); err != nil {
		return err
	}
	if err := r.poll("the controller", readyTimeout, func(context.Context) error { return r.gate(true) }); err != nil {
		return err
	}
	r.saw("the hibernation controller runs")
	if _, err := r.kubectl("apply", "-f", filepath.Join(r.clusterDir(), "clusterdeployment.yaml")); err != nil {
		return err
	}
	if err := r.awaitPowerState("Running"); err != nil {
		return err
	}
	return r.showClusters()
}

func (r *run) managerReady(manager *child) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-manager.Exited():
			return output.NoMore(fmt.Errorf("the manager ended; its log is %s", manager.log))
		default:
			_, err := get(ctx, "http://"+r.probes+"/readyz")
			return err
		}
	}
}

// gate looks at the manager's own metric of whether the controller runs.
func (r *run) gate(want bool) error {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	body, err := get(ctx, "http://"+r.metrics+"/metrics")
	if err != nil {
		return err
	}
	running := false
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		running = running || lines.Text() == gateRunning
	}
	if running != want {
		return fmt.Errorf("expected the controller's running to be %t, found %t", want, running)
	}
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: expected 200, found %s", url, resp.Status)
	}
	return string(body), nil
}

// freeAddresses finds two free ports, for programs that cannot tell which port they took.
func freeAddresses(ctx context.Context) (first, second string, err error) {
	var listen net.ListenConfig
	a, errA := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	b, errB := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err := errors.Join(errA, errB); err != nil {
		return "", "", fmt.Errorf("find free ports: %w", err)
	}
	first, second = a.Addr().String(), b.Addr().String()
	return first, second, errors.Join(a.Close(), b.Close())
}

func (r *run) awaitPowerState(want string) error {
	err := r.poll("power state "+want, powerLimit, func(context.Context) error { return r.powerState(clusterName, want) })
	if err != nil {
		return err
	}
	r.saw("status.powerState is %s", want)
	return nil
}
