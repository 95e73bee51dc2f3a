// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// requestCounter counts the manager's requests to the hub, by method and by the path from the resource on.
type requestCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

// countRequests counts the requests of the manager that is started next.
func (e *env) countRequests() *requestCounter {
	c := &requestCounter{counts: map[string]int{}}
	e.Environment = e.WithTransport(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, c} })
	return c
}

type countingTransport struct {
	http.RoundTripper
	counter *requestCounter
}

// RoundTrip implements http.RoundTripper.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, namespaced, isNamespaced := strings.Cut(r.URL.Path, "/namespaces/"); isNamespaced {
		_, what, _ := strings.Cut(namespaced, "/")
		c.counter.mu.Lock()
		c.counter.counts[r.Method+" "+what]++
		c.counter.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// take returns the counts, and resets them.
func (c *requestCounter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := maps.Clone(c.counts)
	clear(c.counts)
	return taken
}

func (c *requestCounter) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[what]
}

// TestRequestsOfTransitions counts the requests of one transition, because a fleet makes them a thousand times. The
// annotation with the record is written once a cluster hibernates, but not while it resumes. The kubeconfig is read
// before the first machine runs.
func TestRequestsOfTransitions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	hub := e.countRequests()
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	annotation, kubeconfig := "PATCH "+path.Join("clusterdeployments", s.key.Name), "GET "+path.Join("secrets", adminSecret)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	hub.take()
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.awaitEvents(t, "Stopping", "Hibernating")
	if seen := hub.take(); seen[annotation] == 0 {
		t.Errorf("expected the annotation to be written once the cluster hibernates, found %v", seen)
	}
	e.cloud.InjectFault(t, testenv.CloudFault{Action: "StartInstances", Code: "InsufficientInstanceCapacity", Message: "No room.", InstanceIDs: s.ids})
	s.setPowerState(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the kubeconfig is read while no machine runs", func() error {
		return testenv.ErrorIf(hub.of(kubeconfig) == 0, "it was not")
	})
	e.cloud.ClearFaults(t)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitEvents(t, "Stopping", "Hibernating", "Resuming", hivev1.FailedToStartMachinesReason, "Running")
	// A resume that takes longer than a minute writes the annotation once.
	if seen := hub.take(); seen[annotation] > 1 {
		t.Errorf("expected at most one write of the annotation until the cluster runs, found %v", seen)
	}
}
