// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// sumMetric adds up the values of the manager's metric whose labels match; a metric without values is zero.
func (d *clusterDemo) sumMetric(name string, match func(labels map[string]string) bool) (float64, error) {
	ctx, cancel := context.WithTimeout(d.Context, attemptLimit)
	defer cancel()
	body, err := runner.FetchURL(ctx, "http://"+d.metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	sum := 0.0
	for _, metric := range families[name].GetMetric() {
		if match(readLabels(metric)) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
		}
	}
	return sum, nil
}

func readLabels(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// verifyControllerRuns reads from the manager's own metric whether its hibernation controller runs.
func (d *clusterDemo) verifyControllerRuns(want bool) error {
	sum, err := d.sumMetric("torpor_gate_state", func(labels map[string]string) bool {
		return labels["group"] == "hibernation" && labels["state"] == "Running"
	})
	if running := sum == 1; err == nil && running != want {
		err = fmt.Errorf("expected the controller's running to be %t, found %t", want, running)
	}
	return err
}

// countManagerWrites counts the manager's writing requests to the hub, by the manager's own client metrics.
func (d *clusterDemo) countManagerWrites() (float64, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", d.config.hubKubeconfig())
	if err != nil {
		return 0, fmt.Errorf("read hub kubeconfig: %w", err)
	}
	hub, err := url.Parse(cfg.Host)
	if err != nil {
		return 0, fmt.Errorf("read hub address: %w", err)
	}
	return d.sumMetric("rest_client_requests_total", func(labels map[string]string) bool {
		return labels["host"] == hub.Host && slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, labels["method"])
	})
}

func (d *clusterDemo) managerMemoryMiB() (float64, error) {
	bytes, err := d.sumMetric("process_resident_memory_bytes", func(map[string]string) bool { return true })
	if err == nil && bytes == 0 {
		err = fmt.Errorf("expected the metric process_resident_memory_bytes, found none")
	}
	return bytes / mebibyte, err
}
