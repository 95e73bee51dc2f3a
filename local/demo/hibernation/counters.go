// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	bareName  = "bare"
	bareNode  = "bare-node"
	beatEvery = time.Second
)

// managerWrites counts the manager's writing requests to the hub, by the manager's own client metrics.
func (r *run) managerWrites() (float64, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.hubKubeconfig())
	if err != nil {
		return 0, fmt.Errorf("read hub kubeconfig: %w", err)
	}
	hub, err := url.Parse(cfg.Host)
	if err != nil {
		return 0, fmt.Errorf("read hub address: %w", err)
	}
	return r.metricSum("rest_client_requests_total", func(labels string) bool {
		writing := slices.ContainsFunc([]string{"POST", "PUT", "PATCH", "DELETE"}, func(m string) bool {
			return strings.Contains(labels, `method="`+m+`"`)
		})
		return writing && strings.Contains(labels, `host="`+hub.Host+`"`)
	})
}

func (r *run) managerMemory() (float64, error) {
	bytes, err := r.metricSum("process_resident_memory_bytes", func(string) bool { return true })
	return bytes / (kibPerMiB * kibPerMiB), err
}

func (r *run) metricSum(name string, match func(labels string) bool) (float64, error) {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	body, err := get(ctx, "http://"+r.metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		at := strings.LastIndexByte(rest, ' ')
		if !ok || at < 0 || !match(rest[:at]) {
			continue
		}
		value, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum, found = sum+value, true
	}
	if !found && name != "rest_client_requests_total" {
		return 0, fmt.Errorf("expected the metric %s, found none", name)
	}
	return sum, nil
}

// cloudCalls counts the calls to the cloud; only Torpor makes any while it is measured.
func (r *run) cloudCalls() (float64, error) {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	body, err := get(ctx, r.cloudURL+"/_local/calls")
	if err != nil {
		return 0, err
	}
	var calls map[string]float64
	if err := json.Unmarshal([]byte(body), &calls); err != nil {
		return 0, fmt.Errorf("decode calls: %w", err)
	}
	sum := 0.0
	for name, n := range calls {
		if !strings.HasSuffix(name, ".errors") {
			sum += n
		}
	}
	return sum, nil
}

func (r *run) setLatency(d time.Duration) error {
	ctx, cancel := context.WithTimeout(r.ctx, attemptLimit)
	defer cancel()
	body := fmt.Appendf(nil, `{"start":%q,"stop":%q}`, d, d)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.cloudURL+"/_local/latency", bytes.NewReader(body))
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

// keepNodesAlive stands for the kubelet of the bare cluster: a node whose lease is renewed as long as ctx lives.
func (r *run) keepNodesAlive(ctx context.Context) error {
	hub, err := clientOf(r.hubKubeconfig())
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Bench", LastHeartbeatTime: metav1.Now()},
	}}}
	if _, err := hub.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: bareNode}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new(bareNode), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
	}}
	leases := hub.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	go func() {
		for pause(ctx, beatEvery) == nil {
			if current, err := leases.Get(ctx, bareNode, metav1.GetOptions{}); err == nil {
				current.Spec.RenewTime = new(metav1.NowMicro())
				// A lost beat is made up for by the next.
				_, _ = leases.Update(ctx, current, metav1.UpdateOptions{})
			}
		}
	}()
	return nil
}
