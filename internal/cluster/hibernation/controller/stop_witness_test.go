// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// stopWitness is a proxy between the manager and its clouds that compares each stop with the current specs. No cloud
// can refuse a stop that was requested just before the spec changed. A stop is therefore wrong only if the user's
// change was confirmed before the manager read the spec.
type stopWitness struct {
	mu sync.Mutex
	// clusters maps machines to namespaces.
	clusters map[string]string
	// runningSince contains the times at which changes of clusters to Running were confirmed. It has no entries for
	// clusters that should hibernate.
	runningSince map[string]time.Time
	// confirmedAt contains the times at which the manager began to read a current spec. A stop needs an entry and
	// removes it. A repetition with fewer machines needs no entry. lastStop is the number of machines in the last
	// confirmed stop.
	confirmedAt map[string]time.Time
	lastStop    map[string]int
	// stops counts the clusters of StopInstances calls. raced counts those clusters that should run when the call
	// arrives. wrong describes violations.
	stops, raced int
	wrong        []string
}

// newStopWitness observes the manager's requests to the hub.
func newStopWitness(t *testing.T, e *env) *stopWitness {
	t.Helper()
	w := &stopWitness{clusters: map[string]string{}, runningSince: map[string]time.Time{}, confirmedAt: map[string]time.Time{}, lastStop: map[string]int{}}
	watched := *e.Environment
	watched.Config = rest.CopyConfig(e.Config)
	watched.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return witnessedTransport{next, w} })
	e.Environment = &watched
	return w
}

type witnessedTransport struct {
	http.RoundTripper
	witness *stopWitness
}

// RoundTrip implements http.RoundTripper. Reads of a single ClusterDeployment bypass the cache.
func (w witnessedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	if parts := strings.Split(path, "/"); r.Method == http.MethodGet && len(parts) == 3 && parts[1] == "clusterdeployments" {
		w.witness.mu.Lock()
		w.witness.confirmedAt[parts[0]] = time.Now()
		w.witness.mu.Unlock()
	}
	return w.RoundTripper.RoundTrip(r)
}

// request changes a power state as a user. The change is confirmed once the hub has responded.
func (w *stopWitness) request(t *testing.T, s *testCluster, state hivev1.PowerState) {
	t.Helper()
	if state == hivev1.PowerStateHibernating {
		w.mu.Lock()
		delete(w.runningSince, s.key.Namespace)
		w.mu.Unlock()
		s.setPowerState(t, state)
		return
	}
	s.setPowerState(t, state)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runningSince[s.key.Namespace] = time.Now()
}

func (w *stopWitness) addMachines(s *testCluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range s.ids {
		w.clusters[id] = s.key.Namespace
	}
}

func (w *stopWitness) counts() (stops, raced int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stops, w.raced
}

// noteCall records a StopInstances call of the manager, and ignores other calls.
func (w *stopWitness) noteCall(form url.Values) {
	if form.Get("Action") != "StopInstances" || form.Get("DryRun") == "true" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stopped := map[string]int{}
	for name, values := range form {
		if strings.HasPrefix(name, "InstanceId.") {
			stopped[w.clusters[values[0]]]++
		}
	}
	for cluster, machines := range stopped {
		w.stops++
		since, isToRun := w.runningSince[cluster]
		confirmed, isConfirmed := w.confirmedAt[cluster]
		isPart := machines < w.lastStop[cluster]
		if isConfirmed {
			w.lastStop[cluster] = machines
		}
		delete(w.confirmedAt, cluster)
		if isToRun {
			w.raced++
		}
		switch {
		case !isConfirmed && !isPart:
			w.wrong = append(w.wrong, fmt.Sprintf("%q was stopped without reading its spec after the last stop; it was to run: %t", cluster, isToRun))
		case isConfirmed && isToRun && since.Before(confirmed):
			w.wrong = append(w.wrong, fmt.Sprintf("%q was stopped %s after the request to run", cluster, time.Since(since)))
		}
	}
}

// serve returns the endpoint at which the manager must call a cloud.
func (w *stopWitness) serve(t *testing.T, cloud string) string {
	t.Helper()
	target, err := url.Parse(cloud)
	testenv.ExpectNoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// By default, the proxy would respond for a cloud that is down.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		form, _ := url.ParseQuery(string(body))
		w.noteCall(form)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(out, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// newWitnessedClusters creates running clusters in a separate cloud. The flags of that cloud take effect once the
// clusters run.
func (e *env) newWitnessedClusters(t *testing.T, count int, cloudFlags []string) []*testCluster {
	t.Helper()
	dir := t.TempDir()
	cloud := testenv.StartCloud(t, "--dir", dir)
	endpoint := e.witness.serve(t, cloud.URL)
	var all []*testCluster
	for range count {
		s := e.newCluster(t, func(r *clusterSetup) { r.cloud, r.endpoint = cloud, endpoint })
		s.cloudDir = dir
		e.witness.addMachines(s)
		all = append(all, s)
	}
	for _, s := range all {
		s.awaitSettled(t, hivev1.PowerStateRunning)
	}
	if len(cloudFlags) > 0 {
		cloud.KillAtOnce(t)
		cloud = startCloudAgain(t, cloud, dir, cloudFlags)
	}
	for _, s := range all {
		s.cloud = cloud
	}
	return all
}
