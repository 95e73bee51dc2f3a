// SPDX-License-Identifier: Apache-2.0

package authorization

import "github.com/prometheus/client_golang/prometheus"

// The limits that refuse a request.
const (
	callerLimit        = "caller"
	newCredentialLimit = "newcomer"
)

// CallerMetrics count refusals and credentials. They have no label of a caller, because the metrics are not protected.
type CallerMetrics struct {
	refused, credentials *prometheus.CounterVec
}

// NewCallerMetrics counts from 0.
func NewCallerMetrics() *CallerMetrics {
	m := &CallerMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cf_api_refused_total", Help: "Requests to the CF API that were refused with 429, by limit: caller, of one caller; newcomer, of new credentials from where too many were invalid.",
		}, []string{"limit"}),
		credentials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cf_api_credentials_total", Help: "Credentials that were shown to the CF API, by whether Kubernetes had to be asked whose they are: known or asked.",
		}, []string{"result"}),
	}
	for _, limit := range []string{callerLimit, newCredentialLimit} {
		m.refused.WithLabelValues(limit)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *CallerMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.refused.Describe(ch)
	m.credentials.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *CallerMetrics) Collect(ch chan<- prometheus.Metric) {
	m.refused.Collect(ch)
	m.credentials.Collect(ch)
}

func (m *CallerMetrics) countRefusal(limit string) { m.refused.WithLabelValues(limit).Inc() }

func (m *CallerMetrics) countCredential(known bool) {
	result := "asked"
	if known {
		result = "known"
	}
	m.credentials.WithLabelValues(result).Inc()
}
