// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

// shippingStatus serves the status to the manager and to the kubelet. It contains no secrets.
type shippingStatus struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last backup.ShippingReport
}

func (s *shippingStatus) setProblem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Problem = err.Error()
}

func (s *shippingStatus) setSource(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.SourceIndex = index
}

// setShipped records the state in the bucket. It clears the problem only if all transactions of the primary were
// shipped.
func (s *shippingStatus) setShipped(state backup.ShippedState, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Until, s.last.Since = state.Until, state.Since
	if complete {
		s.last.Problem = ""
	}
}

const (
	statusTimeout = 5 * time.Second
	// readyAge is the maximum age of the state in the bucket for the Pod to be ready.
	readyAge = time.Minute
)

// ServeHTTP implements http.Handler.
func (s *shippingStatus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	report := s.last
	s.mu.Unlock()
	if r.URL.Path == backup.ReadyPath && s.clock.Since(report.Until) > readyAge {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report) // Encode fails only if the client has disconnected.
}

// serve starts the server, and returns a function that stops it.
func (s *shippingStatus) serve(ctx context.Context, address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--address: %w", err)
	}
	server := &http.Server{Handler: s, ReadTimeout: statusTimeout, WriteTimeout: statusTimeout, MaxHeaderBytes: 1 << 14}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // Serve returns when the server is closed.
	return func() {
		_ = server.Close() // The program exits, so an error of Close has no effect.
		serving.Wait()
	}, nil
}
