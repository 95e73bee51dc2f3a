// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

const scrapeTimeout = 5 * time.Second

// Metrics shows the power state of every cluster straight from the cache, so that it is right after a restart and gone
// with the object, and counts what was done. One lives as long as the process; register it once.
type Metrics struct {
	reader      atomic.Pointer[client.Reader]
	state       *prometheus.Desc
	transitions *prometheus.CounterVec
	requests    *prometheus.CounterVec
	decisions   *prometheus.CounterVec
}

// NewMetrics makes the metrics of this feature.
func NewMetrics() *Metrics {
	return &Metrics{
		state: prometheus.NewDesc("torpor_cluster_power_state",
			"1 for the power state that a ClusterDeployment is in.", []string{"namespace", "name", "power_state"}, nil),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cluster_transitions_total", Help: "Changes of a cluster that were told by an event, approvals left out, by reason.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_approved_total", Help: "Certificate requests of nodes approved at a resume, by kind.",
		}, []string{"kind"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_certificate_requests_total", Help: "Certificate requests judged at a resume, by decision and the rule that decided.",
		}, []string{"decision", "rule"}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.state
	m.transitions.Describe(ch)
	m.requests.Describe(ch)
	m.decisions.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.transitions.Collect(ch)
	m.requests.Collect(ch)
	m.decisions.Collect(ch)
	reader := m.reader.Load()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var list hivev1.ClusterDeploymentList
	if err := (*reader).List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range list.Items {
		cd := &list.Items[i]
		if cd.Status.PowerState != "" {
			ch <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, 1, cd.Namespace, cd.Name, cd.Status.PowerState)
		}
	}
}

func (m *Metrics) useReader(r client.Reader) { m.reader.Store(&r) }

func (m *Metrics) countTransitions(events []decision.Event, decided []csr.Verdict) {
	for _, e := range events {
		if e.Reason != hibernation.CertificatesApproved && e.Reason != hibernation.CertificateRequestsLeft {
			m.transitions.WithLabelValues(e.Reason).Inc()
		}
	}
	for _, v := range decided {
		m.decisions.WithLabelValues(string(v.Decision), v.Rule).Inc()
		if v.Decision == csr.Approve {
			m.requests.WithLabelValues(string(v.Kind)).Inc()
		}
	}
}
