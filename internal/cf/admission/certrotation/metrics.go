// SPDX-License-Identifier: Apache-2.0

package certrotation

import "github.com/prometheus/client_golang/prometheus"

// Metrics tell of the webhook's certificate.
type Metrics struct {
	expiry   prometheus.Gauge
	failures prometheus.Counter
}

// NewMetrics makes metrics that are yet to be registered.
func NewMetrics() *Metrics {
	return &Metrics{
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "torpor_webhook_certificate_expiry_timestamp_seconds", Help: "When the certificate of the webhook ends, in Unix time; 0 before there is one.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "torpor_webhook_certificate_failures_total", Help: "Looks that found the webhook without a certificate, a configuration, or the API server's trust.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	m.expiry.Describe(out)
	m.failures.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.expiry.Collect(out)
	m.failures.Collect(out)
}
