// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// watchMonitor measures, for each kind, how long the cache has had no open watch. If a watch fails, the informer
// retries it without a limit. Until a retry succeeds, the informer serves stale objects without an error.
type watchMonitor struct {
	clock  clock.PassiveClock
	maxAge time.Duration

	mu    sync.Mutex
	kinds map[string]*watchedKind
}

// watchedKind counts the open watches of a kind. endedAt is the time at which the last watch ended, or the time of the
// first request.
type watchedKind struct {
	open    int
	endedAt time.Time
}

func newWatchMonitor(now clock.PassiveClock, maxAge time.Duration) *watchMonitor {
	return &watchMonitor{clock: now, maxAge: maxAge, kinds: map[string]*watchedKind{}}
}

// check returns an error if a kind has had no watch for too long.
func (m *watchMonitor) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, kind := range m.kinds {
		if age := m.clock.Since(kind.endedAt); kind.open == 0 && age > m.maxAge {
			return apierrors.NewServiceUnavailable(fmt.Sprintf("expected a cache of Kubernetes objects at most %s old, found an older one because a watch has failed; try again, and if the error persists, ask the platform team", m.maxAge),
				fmt.Errorf("%s has not been watched for %s", path, age))
		}
	}
	return nil
}

// wrap returns a transport that monitors watches.
func (m *watchMonitor) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(request *http.Request) (*http.Response, error) {
		if !request.URL.Query().Has("watch") {
			return next.RoundTrip(request)
		}
		path := request.URL.Path
		m.note(path, 0)
		answer, err := next.RoundTrip(request)
		if err != nil || answer.StatusCode != http.StatusOK {
			return answer, err
		}
		m.note(path, 1)
		answer.Body = &watchBody{ReadCloser: answer.Body, ended: sync.OnceFunc(func() { m.note(path, -1) })}
		return answer, nil
	})
}

func (m *watchMonitor) note(path string, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := m.kinds[path]
	if kind == nil {
		kind = &watchedKind{endedAt: m.clock.Now()}
		m.kinds[path] = kind
	}
	if kind.open += change; change < 0 {
		kind.endedAt = m.clock.Now()
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watchBody calls ended when the client or the server ends a watch.
type watchBody struct {
	io.ReadCloser
	ended func()
}

// Read implements io.Reader.
func (b *watchBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil {
		b.ended()
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}
