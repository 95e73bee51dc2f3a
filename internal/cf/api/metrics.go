// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// statusClientClosed is the status label of requests whose client disconnected before the response. nginx uses the same
// number.
const statusClientClosed = 499

// serverMetrics counts requests by route. Labels contain no part of a request's path, because GUIDs and names are
// unbounded and private.
type serverMetrics struct {
	registry *prometheus.Registry
	callers  *authorization.CallerMetrics
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics() *serverMetrics {
	m := &serverMetrics{
		registry: prometheus.NewRegistry(), callers: authorization.NewCallerMetrics(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "torpor_cf_api_requests_total", Help: "Number of requests to the CF API, by route and status; 499 if the client disconnected.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "torpor_cf_api_request_duration_seconds", Help: "Response time of the CF API, by route, including the time for which responses are delayed.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15},
		}, []string{"route"}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.callers, buildinfo.NewMetric(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *serverMetrics) observeRequest(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// startServer serves the metrics on an address. If the server stops unexpectedly, it sends the reason to ended.
func (m *serverMetrics) startServer(ctx context.Context, address string, ended chan<- error) (io.Closer, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: writeTimeout}
	// The value 0 disables metrics, as in controller-runtime.
	if address == "" || address == "0" {
		return server, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			ended <- err
		}
	}()
	return server, nil
}
