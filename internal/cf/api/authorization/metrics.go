// SPDX-License-Identifier: Apache-2.0

package authorization

import "github.com/prometheus/client_golang/prometheus"

// These are the values of the metric label limit.
const (
	callerLimit        = "caller"
	newCredentialLimit = "newcomer"
)

// CallerMetrics counts refused requests and checked credentials. It has no label for the caller, because access to the
// metrics is not restricted.
type CallerMetrics struct {
	refused, credentials *prometheus.CounterVec
}

// NewCallerMetrics returns metrics with all counters at 0.
func NewCallerMetrics() *CallerMetrics {
	m := &CallerMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cf_api_refused_total", Help: "Number of requests to the CF API that were rejected with 429, by limit: caller for the limit of one caller, newcomer for new credentials from an address that has sent too many invalid credentials.",
		}, []string{"limit"}),
		credentials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cf_api_credentials_total", Help: "Number of checks of credentials by the CF API, by result: known if the user was cached, asked if Kubernetes was asked to authenticate the user.",
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
