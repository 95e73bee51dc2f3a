// SPDX-License-Identifier: Apache-2.0

package env

import (
	"io"
	"net/http"
	"path"
	"sync"
)

// WatchCounter counts watch requests that pass through it, by resource and label selector.
type WatchCounter struct {
	mu         sync.Mutex
	open, most map[string]int
}

// CountWatches returns the environment with a counter in front of its API server.
func (e *Environment) CountWatches() (*Environment, *WatchCounter) {
	c := &WatchCounter{open: map[string]int{}, most: map[string]int{}}
	return e.WithTransport(func(next http.RoundTripper) http.RoundTripper { return countingTransport{c, next} }), c
}

// Open returns how many watches of a resource with a label selector are open.
func (c *WatchCounter) Open(resource, selector string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[resource+"?"+selector]
}

// Most returns the maximum number of watches of a resource with a label selector that were open at the same time.
func (c *WatchCounter) Most(resource, selector string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[resource+"?"+selector]
}

func (c *WatchCounter) add(watched string, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[watched] += change
	c.most[watched] = max(c.most[watched], c.open[watched])
}

type countingTransport struct {
	counter *WatchCounter
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	q := r.URL.Query()
	if err != nil || answer.StatusCode != http.StatusOK || q.Get("watch") == "" {
		return answer, err
	}
	watched := path.Base(r.URL.Path) + "?" + q.Get("labelSelector")
	t.counter.add(watched, 1)
	answer.Body = &watchBody{ReadCloser: answer.Body, closed: sync.OnceFunc(func() { t.counter.add(watched, -1) })}
	return answer, nil
}

type watchBody struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}
