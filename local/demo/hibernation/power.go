// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// hibernate asks for sleep and looks that the machines' processes are really gone.
func (r *run) hibernate() error {
	r.step("kubectl patch cd " + clusterName + " … powerState: Hibernating")
	before, err := r.instances()
	if err != nil {
		return err
	}
	pids := make([]int, 0, len(before))
	for _, i := range before {
		pids = append(pids, i.PID)
	}
	if err := allAlive(pids); err != nil {
		return err
	}
	r.note("the machines are the processes %v", pids)
	if err := r.patchPowerState("Hibernating"); err != nil {
		return err
	}
	if err := r.awaitPowerState("Hibernating"); err != nil {
		return err
	}
	if err := r.onlyState("stopped"); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("expected process %d of a stopped machine to be gone, found it alive", pid)
		}
	}
	r.saw("the machines are stopped at the cloud, and their processes are gone")
	target, err := r.target()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	if _, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
		return errors.New("expected the cluster's API to be gone, found it answers")
	}
	r.saw("the cluster's API does not answer any more")
	return r.showClusters()
}

// resume asks for the cluster back and tells every moment of its way.
func (r *run) resume() error {
	r.step("kubectl patch cd " + clusterName + " … powerState: Running")
	asked := time.Now()
	if err := r.patchPowerState("Running"); err != nil {
		return err
	}
	if err := r.poll("the machines", powerLimit, func(context.Context) error { return r.onlyState("running") }); err != nil {
		return err
	}
	on, err := r.lastChange(clusterName)
	if err != nil {
		return err
	}
	r.saw("the machines run again, as new processes")
	target, err := r.target()
	if err != nil {
		return err
	}
	if err := r.poll("the cluster's API", readyTimeout, answers(target)); err != nil {
		return err
	}
	r.saw("the cluster's API answers")
	if err := r.awaitPowerState("Running"); err != nil {
		return err
	}
	running := time.Now()
	if err := r.certificatesApproved(target, asked); err != nil {
		return err
	}
	if err := r.nodesBack(target, on); err != nil {
		return err
	}
	r.saw("from the last machine's start to Running: %.1f s", running.Sub(on).Seconds())
	if err := r.showClusters(); err != nil {
		return err
	}
	events, err := r.kubectl("get", "events", "--sort-by=.metadata.creationTimestamp", "-o",
		`jsonpath={range .items[?(@.regarding.kind=="ClusterDeployment")]}{.reason}{": "}{.note}{"\n"}{end}{range .items[?(@.involvedObject.kind=="ClusterDeployment")]}{.reason}{": "}{.message}{"\n"}{end}`)
	if err != nil {
		return err
	}
	r.saw("its events:")
	for line := range strings.Lines(events) {
		fmt.Fprintf(r.Out, "          %s\n", strings.TrimRight(line, "\n"))
	}
	return nil
}

func answers(target kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := target.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
}

func (r *run) target() (kubernetes.Interface, error) { return clientOf(r.targetKubeconfig()) }

func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

func allAlive(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("expected machine process %d to be alive: %w", pid, err)
		}
	}
	return nil
}
