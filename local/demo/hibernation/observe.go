// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

type cloudInstance struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	AskedAt   time.Time `json:"askedAt"`
	ChangedAt time.Time `json:"changedAt"`
	ListedAt  time.Time `json:"listedAt"`
	PID       int       `json:"pid"`

	Tags map[string]string `json:"tags"`
}

func (d *clusterDemo) askCloud(what string, into any) {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body, err := runner.FetchURL(ctx, d.cloudURL+"/_local/"+what)
	runner.ExpectNoError(err)
	runner.ExpectNoError(json.Unmarshal([]byte(body), into))
}

func (d *clusterDemo) listInstances() (list []cloudInstance) {
	d.askCloud("instances", &list)
	if len(list) == 0 {
		runner.FailStep("expected machines at %s, found none", d.cloudURL)
	}
	return list
}

func (d *clusterDemo) verifyInstancesAre(want string) {
	for _, i := range d.listInstances() {
		if i.State != want {
			runner.FailStep("expected machine %s to be %s, found %s", i.Name, want, i.State)
		}
	}
}

func (d *clusterDemo) lastStateChange(cluster string) (last time.Time) {
	for _, i := range d.listInstances() {
		if strings.HasPrefix(i.Name, cluster+"-") && i.ChangedAt.After(last) {
			last = i.ChangedAt
		}
	}
	return last
}

// countCloudCalls returns the number of calls to the cloud. During a measurement, only Torpor calls the cloud.
func (d *clusterDemo) countCloudCalls() float64 {
	var calls map[string]float64
	d.askCloud("calls", &calls)
	sum := 0.0
	for name, n := range calls {
		if !strings.HasSuffix(name, ".errors") { // The total includes failed calls.
			sum += n
		}
	}
	return sum
}

func (d *clusterDemo) setCloudLatency(latency time.Duration) {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body := fmt.Appendf(nil, `{"start":%q,"stop":%q}`, latency, latency)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.cloudURL+"/_local/latency", bytes.NewReader(body))
	runner.ExpectNoError(err)
	resp, err := http.DefaultClient.Do(req)
	runner.ExpectNoError(err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		runner.FailStep("set latency: expected success, found %s", resp.Status)
	}
}

// sumMetric sums the values of a metric of the manager with matching labels; a metric without values counts as zero.
func (d *clusterDemo) sumMetric(name string, match func(labels map[string]string) bool) float64 {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body, err := runner.FetchURL(ctx, "http://"+d.metrics+"/metrics")
	runner.ExpectNoError(err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	runner.ExpectNoError(err)
	sum := 0.0
	for _, metric := range families[name].GetMetric() {
		if match(readLabels(metric)) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
		}
	}
	return sum
}

func readLabels(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// verifyControllerRuns checks in the manager's metrics whether its hibernation controller runs.
func (d *clusterDemo) verifyControllerRuns(want bool) {
	sum := d.sumMetric("torpor_gate_state", func(labels map[string]string) bool {
		return labels["group"] == "hibernation" && labels["state"] == "Running"
	})
	if running := sum == 1; running != want {
		runner.FailStep("expected that the controller runs: %t, found %t", want, running)
	}
}

// countManagerWrites returns the number of the manager's write requests to the hub, from its client metrics.
func (d *clusterDemo) countManagerWrites() float64 {
	cfg, err := clientcmd.BuildConfigFromFlags("", d.config.hubKubeconfig())
	runner.ExpectNoError(err)
	hub, err := url.Parse(cfg.Host)
	runner.ExpectNoError(err)
	return d.sumMetric("rest_client_requests_total", func(labels map[string]string) bool {
		return labels["host"] == hub.Host && slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, labels["method"])
	})
}

func (d *clusterDemo) managerMemoryMiB() float64 {
	bytes := d.sumMetric("process_resident_memory_bytes", func(map[string]string) bool { return true })
	if bytes == 0 {
		runner.FailStep("expected the metric process_resident_memory_bytes, found none")
	}
	return bytes / mebibyte
}

const (
	memoryInterval = 500 * time.Millisecond
	mebibyte       = 1 << 20
)

// memoryWatch records the peak resident memory of this process and its descendants.
type memoryWatch struct{ peak atomic.Int64 }

func watchMemory(ctx context.Context) *memoryWatch {
	w := &memoryWatch{}
	go func() {
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for {
			var sum int64
			for _, p := range listDescendants() {
				sum += int64(p.ResidentMemory())
			}
			w.peak.Store(max(w.peak.Load(), sum))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

func (w *memoryWatch) peakMiB() int64 { return w.peak.Load() / mebibyte }

func verifyNoProcesses() error {
	var left []error
	for _, p := range listDescendants() {
		if p.PID != os.Getpid() {
			left = append(left, fmt.Errorf("expected every process to have ended, found %d (%s)", p.PID, p.Comm))
		}
	}
	return errors.Join(left...)
}

// listDescendants lists this process and its descendants. The list is empty on a system without /proc.
func listDescendants() []procfs.ProcStat {
	list, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	all := map[int]procfs.ProcStat{}
	for _, p := range list {
		// A process may end while the list is read. Kernel threads and zombies have no memory.
		if stat, err := p.Stat(); err == nil && stat.RSS > 0 {
			all[stat.PID] = stat
		}
	}
	var found []procfs.ProcStat
	for _, p := range all {
		for up, ok := p, true; ok; up, ok = all[up.PPID] {
			if up.PID == os.Getpid() {
				found = append(found, p)
				break
			}
		}
	}
	return found
}
