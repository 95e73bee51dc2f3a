// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const commandLimit = 30 * time.Second

// instance is a machine as the cloud's operator sees it.
type instance struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	ChangedAt time.Time `json:"changedAt"`
	PID       int       `json:"pid"`
}

func (r *run) instances() ([]instance, error) {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	body, err := get(ctx, r.cloudURL+"/_local/instances")
	if err != nil {
		return nil, err
	}
	var list []instance
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("decode instances: %w", err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("expected machines at %s, found none", r.cloudURL)
	}
	return list, nil
}

func (r *run) onlyState(want string) error {
	list, err := r.instances()
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.State != want {
			return fmt.Errorf("expected machine %s to be %s, found %s", i.Name, want, i.State)
		}
	}
	return nil
}

// lastChange is when the last machine of a cluster changed its state at the cloud.
func (r *run) lastChange(cluster string) (time.Time, error) {
	list, err := r.instances()
	var last time.Time
	for _, i := range list {
		if strings.HasPrefix(i.Name, cluster+"-") && i.ChangedAt.After(last) {
			last = i.ChangedAt
		}
	}
	return last, err
}

// kubectl runs the bundled kubectl against the hub.
func (r *run) kubectl(args ...string) (string, error) { return r.kubectlFor(commandLimit, args...) }

func (r *run) kubectlFor(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Kubectl, append([]string{"--kubeconfig", r.hubKubeconfig()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (r *run) powerState(name, want string) error {
	state, err := r.kubectl("get", "cd", name, "-o", "jsonpath={.status.powerState}")
	if err == nil && state != want {
		err = fmt.Errorf("expected power state %s, found %q", want, state)
	}
	return err
}

// awaitReport watches, as kubectl does, until the power state is reported, and returns when that was.
func (r *run) awaitReport(name, want string) (time.Time, error) {
	_, err := r.kubectlFor(powerLimit, "wait", "cd", name, "--for=jsonpath={.status.powerState}="+want, "--timeout="+powerLimit.String())
	return time.Now(), err
}

func (r *run) patchPowerState(state string) error {
	_, err := r.kubectl("patch", "cd", clusterName, "--type=merge", "-p", "spec:\n powerState: "+state)
	return err
}

func (r *run) showClusters() error {
	table, err := r.kubectl("get", "cd")
	if err != nil {
		return err
	}
	r.saw("kubectl get cd:")
	for line := range strings.Lines(table) {
		fmt.Fprintf(r.Out, "          %s\n", strings.TrimRight(line, "\n"))
	}
	return nil
}
