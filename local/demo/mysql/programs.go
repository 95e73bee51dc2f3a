// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (p *play) kubeconfig() string {
	if p.Kubeconfig != "" {
		return p.Kubeconfig
	}
	return filepath.Join(p.Dir, "admin.kubeconfig")
}

// run runs a program as a person does who has all of them on the PATH.
func (p *play) run(stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	path := filepath.Dir(p.Torpor) + ":" + filepath.Dir(p.Local) + ":" + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig(), "PATH="+path)
	// An interrupt at the terminal reaches this program only, which then ends the others in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (p *play) kubectl(args ...string) (string, error) {
	return p.run("", filepath.Join(filepath.Dir(p.Local), "kubectl"), append([]string{"--namespace", p.namespace}, args...)...)
}

// moco is kubectl moco, whose flags follow its name.
func (p *play) moco(args ...string) (string, error) {
	return p.run("", filepath.Join(filepath.Dir(p.Torpor), "kubectl-moco"), append([]string{"--namespace", p.namespace}, args...)...)
}

// show runs kubectl moco and prints the command and what it said.
func (p *play) show(args ...string) error {
	out, err := p.moco(args...)
	if err != nil {
		return err
	}
	p.story.Saw("kubectl moco %s", shell(args))
	p.story.Quote(out)
	return nil
}

// shell is a command line as somebody types it.
func shell(args []string) string {
	typed := make([]string, len(args))
	for i, arg := range args {
		typed[i] = arg
		if strings.ContainsAny(arg, " '") {
			typed[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(typed, " ")
}

// table shows what kubectl says of the cluster.
func (p *play) table() error {
	out, err := p.kubectl("get", "mysqlcluster", clusterName)
	if err != nil {
		return err
	}
	p.story.Saw("kubectl get mysqlcluster")
	p.story.Quote(out)
	return nil
}

// sql runs statements in an instance, by its ordinal.
func (p *play) sql(index int, statements ...string) (string, error) {
	return p.moco("mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), clusterName, "--", "-Nr", "-e", strings.Join(statements, "; "))
}

// condition is the status of a condition of the cluster.
func (p *play) condition(kind string) (string, error) {
	return p.kubectl("get", "mysqlcluster", clusterName, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].status}`)
}

// primary is the ordinal of the primary.
func (p *play) primary() (int, error) {
	out, err := p.kubectl("get", "mysqlcluster", clusterName, "-o", "jsonpath={.status.currentPrimaryIndex}")
	if err != nil {
		return 0, err
	}
	if out == "" {
		return 0, errors.New("expected a primary in the status, found none")
	}
	index, err := strconv.Atoi(out)
	if err != nil {
		return 0, fmt.Errorf("read primary: %w", err)
	}
	return index, nil
}

// healthy waits until clustering vouches for every instance.
func (p *play) healthy() error {
	return p.story.Poll(p.ctx, "the cluster to be healthy", commandLimit, func(context.Context) error {
		status, err := p.condition("Healthy")
		if err == nil && status != "True" {
			err = fmt.Errorf("expected Healthy to be True, found %q", status)
		}
		return err
	})
}

// stays looks again and again for a while, up to the first error.
func (p *play) stays(f func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(quiet); time.Now().Before(end); {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-tick.C:
		}
	}
	return nil
}
