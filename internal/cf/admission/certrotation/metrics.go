// SPDX-License-Identifier: Apache-2.0

package certrotation

import "github.com/prometheus/client_golang/prometheus"

// Metrics exports the expiry of the webhook's certificate and the number of failed checks.
type Metrics struct {
	expiry   prometheus.Gauge
	failures prometheus.Counter
}

// NewMetrics returns metrics that the caller must register.
func NewMetrics() *Metrics {
	return &Metrics{
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "torpor_webhook_certificate_expiry_timestamp_seconds", Help: "Expiry of the webhook's certificate, in Unix time; 0 if there is none.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "torpor_webhook_certificate_failures_total", Help: "Number of checks that found the webhook without a certificate, without a configuration, or not trusted by the API server.",
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
