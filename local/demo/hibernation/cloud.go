// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// cloudInstance is a machine as the cloud's operator sees it.
type cloudInstance struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	ChangedAt time.Time `json:"changedAt"`
	PID       int       `json:"pid"`
}

// askCloud reads what the cloud shows to its operator.
func (d *clusterDemo) askCloud(what string, into any) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body, err := runner.FetchURL(ctx, d.cloudURL+"/_local/"+what)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

func (d *clusterDemo) listInstances() ([]cloudInstance, error) {
	var list []cloudInstance
	err := d.askCloud("instances", &list)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("expected machines at %s, found none", d.cloudURL)
	}
	return list, err
}

func (d *clusterDemo) verifyInstancesAre(want string) error {
	list, err := d.listInstances()
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

// lastStateChange is when the last machine of a cluster changed its state at the cloud.
func (d *clusterDemo) lastStateChange(cluster string) (time.Time, error) {
	list, err := d.listInstances()
	var last time.Time
	for _, i := range list {
		if strings.HasPrefix(i.Name, cluster+"-") && i.ChangedAt.After(last) {
			last = i.ChangedAt
		}
	}
	return last, err
}

// countCloudCalls counts the calls to the cloud; only Torpor makes any while it is measured.
func (d *clusterDemo) countCloudCalls() (float64, error) {
	var calls map[string]float64
	err := d.askCloud("calls", &calls)
	sum := 0.0
	for name, n := range calls {
		if !strings.HasSuffix(name, ".errors") { // Calls that failed are in the other figure as well.
			sum += n
		}
	}
	return sum, err
}

func (d *clusterDemo) setCloudLatency(latency time.Duration) error {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body := fmt.Appendf(nil, `{"start":%q,"stop":%q}`, latency, latency)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.cloudURL+"/_local/latency", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("set latency: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("set latency: expected success, found %s", resp.Status)
	}
	return nil
}
