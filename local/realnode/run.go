// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/local/kubeclient"
)

const (
	readyTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
	// BootCommand is how the program calls itself for the first process of the node.
	BootCommand = "boot-node"
)

// RunNode runs the node on the bridge that ConnectBridge has made, until ctx ends. It calls ready once the node is Ready.
// Progress goes to out.
func RunNode(ctx context.Context, c Config, out io.Writer, ready func()) error {
	if err := c.validate(); err != nil {
		return err
	}
	release, err := awaitReservation(ctx, "node")
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make node folder: %w", err)
	}
	if err := c.writeSettings(); err != nil {
		return err
	}
	if err := c.makeCgroups(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- c.runInNamespaces(ctx, out) }()
	go func() {
		if c.awaitReady(ctx) == nil {
			ready()
		}
	}()
	err = <-ended
	return errors.Join(err, removeCgroups(context.WithoutCancel(ctx), c.cgroupRoot()))
}

// runInNamespaces starts the first process of the node and returns when it has ended, and with it everything in its namespaces.
func (c Config) runInNamespaces(ctx context.Context, out io.Writer) error {
	// The kernel ends the node with the thread that has started it: this thread must live as long as the process does.
	runtime.LockOSThread()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	settings, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode node settings: %w", err)
	}
	log, err := os.Create(c.path("node.log"))
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, program, BootCommand, string(settings))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	steps, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read the node's steps: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make the node's namespaces: %w", err)
	}
	if err := plugCable(cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	for lines := bufio.NewScanner(steps); lines.Scan(); {
		fmt.Fprintln(out, lines.Text())
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("expected the node to run until it is told to stop, it ended (%w); its logs are in %s", err, c.Dir)
}

// awaitReady waits for a heartbeat of this boot: a Node object from before a power cut is still Ready.
func (c Config) awaitReady(ctx context.Context) error {
	began := time.Now().Truncate(time.Second)
	client, err := kubeclient.NewClient(c.path("kubeconfig"))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Name, metav1.GetOptions{})
		return err == nil && isReady(node, began), nil
	})
	if err != nil {
		return fmt.Errorf("wait for node %s: %w", c.Name, err)
	}
	return nil
}

func isReady(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since)
	})
}
