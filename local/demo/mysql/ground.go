// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mysql

import (
	"bytes"
	"context"
	_ "embed" // The manifest is a file, as a user's is.
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed cluster.yaml
var manifest string

const (
	stopLimit = 40 * time.Second
	// probes is where the manager of the story says that it is ready.
	probes = "127.77.250.1:8081"
)

var errEnded = errors.New("expected torpor manager to run, found it ended")

// ownPods starts a cluster with real pods on this machine, and torpor beside it.
func (p *play) ownPods() error {
	p.story.Step("A cluster with real pods on this machine: containerd, the kubelet, Services, DNS, volumes")
	if os.Geteuid() != 0 {
		return errors.New("expected to be root on Debian, since real pods need namespaces and mounts; " +
			"or use a cluster of yours with Torpor in it: make demo NAME=mysql DEMO=--kubeconfig=FILE")
	}
	p.undo = append(p.undo, func() error {
		_, err := p.run("", p.Local, "pods", "down", "--dir", p.Dir)
		if err == nil {
			p.story.Saw("every process that was started has ended, and nothing is left on the machine")
		}
		return err
	})
	if _, err := p.run("", p.Local, "pods", "up", "--dir", p.Dir, "--parts", p.Parts, "--mysql", p.MySQL); err != nil {
		return err
	}
	nodes, err := p.kubectl("get", "nodes")
	if err != nil {
		return err
	}
	p.story.Saw("kubectl get nodes")
	p.story.Quote(nodes)
	if err := p.install(); err != nil {
		return err
	}
	return p.manager()
}

func (p *play) install() error {
	for _, args := range [][]string{
		{"create", "namespace", p.namespace},
		{"apply", "--server-side", "-k", filepath.Join(p.ConfigDir, "crd")},
	} {
		if _, err := p.kubectl(args...); err != nil {
			return err
		}
	}
	p.story.Saw("kubectl apply --server-side -k config/crd")
	return nil
}

// manager runs torpor on this machine; from here the pods can be reached by their addresses.
func (p *play) manager() error {
	log, err := os.Create(p.Dir + ".manager.log")
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(p.ctx), p.Torpor, "manager", "--kubeconfig", p.kubeconfig(),
		"--metrics-address", "0", "--probe-address", probes)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start torpor: %w", err), log.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(cmd.Wait(), log.Close()) }()
	p.undo = append(p.undo, func() error { return stop(cmd.Process, ended) })
	err = p.story.Poll(p.ctx, "torpor manager", commandLimit, func(ctx context.Context) error {
		return ready(ctx, "http://"+probes+"/readyz")
	})
	if err != nil {
		return fmt.Errorf("%w; its log is %s", err, log.Name())
	}
	p.story.Saw("torpor manager is ready")
	return nil
}

func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask torpor: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("expected torpor to be ready, found %s", resp.Status)
	}
	return nil
}

func stop(process *os.Process, ended chan error) error {
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errors.Join(fmt.Errorf("expected torpor to end within %s, had to kill it", stopLimit), process.Kill(), <-ended)
	}
}

// somebodys is a cluster in which Torpor runs already: its pods may not be in reach from here.
func (p *play) somebodys() error {
	p.story.Step("The cluster of " + p.Kubeconfig)
	out, err := p.kubectl("get", "pods", "--all-namespaces", "-l", "app.kubernetes.io/name=torpor", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	if out == "" {
		return errors.New("expected Torpor to run there, found none: install it as the README says, with config/crd")
	}
	if _, err := p.kubectl("create", "namespace", p.namespace); err != nil {
		return err
	}
	p.undo = append(p.undo, func() error {
		_, err := p.kubectl("delete", "namespace", p.namespace)
		return err
	})
	p.story.Saw("Torpor runs there: %s", out)
	return nil
}

func (p *play) create() error {
	p.story.Step("A MySQLCluster of three instances")
	text := strings.ReplaceAll(manifest, "IMAGE", p.Image)
	if _, err := p.run(text, filepath.Join(filepath.Dir(p.Local), "kubectl"), "--namespace", p.namespace, "apply", "-f", "-"); err != nil {
		return err
	}
	p.story.Saw("kubectl apply -f local/demo/mysql/cluster.yaml")
	p.undo = append(p.undo, p.remove)
	if err := p.healthy(); err != nil {
		return err
	}
	p.story.Saw("it is healthy")
	pods, err := p.kubectl("get", "pods")
	if err != nil {
		return err
	}
	p.story.Saw("kubectl get pods")
	p.story.Quote(pods)
	return p.table()
}

func (p *play) remove() error {
	if _, err := p.kubectl("delete", "mysqlcluster", clusterName, "--timeout="+commandLimit.String()); err != nil {
		return err
	}
	err := p.story.Poll(p.ctx, "the pods and volumes to go", commandLimit, func(context.Context) error {
		left, err := p.kubectl("get", "pods,pvc,services,statefulsets", "-o", "name")
		if err == nil && len(bytes.TrimSpace([]byte(left))) > 0 {
			err = fmt.Errorf("expected nothing in namespace %s, found %s", p.namespace, left)
		}
		return err
	})
	if err == nil {
		p.story.Saw("kubectl delete mysqlcluster %s: its pods, volumes and Services are gone", clusterName)
	}
	return err
}
