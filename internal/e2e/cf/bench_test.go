// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

const (
	singleRuns, countedRuns, drainRuns = 30, 20, 5
	crowd, crowdRounds                 = 100, 5
	refusals                           = 200
	manyApps, manySpaces, listRounds   = 5000, 10, 300
	writers                            = 8
	p50, p99                           = 0.5, 0.99
)

// TestBenchRestart measures restarts of Pods that take 10 ms to be ready and to go. Figures are not judged here.
func TestBenchRestart(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected 1, to measure restarts; run with `make bench-restart`")
	}
	figures := map[string]float64{}
	for _, part := range []struct {
		name string
		run  func(*testing.T, map[string]float64)
	}{{"requests", benchRequests}, {"times", benchTimes}, {"lists", benchLists}} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, figures) }) {
			t.FailNow()
		}
		t.Logf("so far: %v", figures)
	}
	saveFigures(t, figures)
}

// benchRequests counts in an environment of its own, because counting slows requests down.
func benchRequests(t *testing.T, figures map[string]float64) {
	through := &requestCounter{}
	w := newEnv(t, through)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app, seen := alice.createApp(t, space, "shop", 1, started), w.look(t, space)
	seen.when(t, app, settled("0", korifiv1alpha1.StartedState))
	through.waitUntilQuiet(t)
	for i := range countedRuns {
		alice.restarted(t, seen, app, strconv.Itoa(i+1), &times{})
	}
	kinds, total := through.waitUntilQuiet(t)
	t.Logf("requests of %d restarts by the manager, the API and its caller: %v", countedRuns, kinds)
	figures["requests_per_restart"] = float64(total) / countedRuns
}

// waitUntilQuiet waits until no more requests come, and returns what has come.
func (c *requestCounter) waitUntilQuiet(t *testing.T) (kinds map[string]int, total int) {
	t.Helper()
	const quiet = 2 * time.Second
	last, since := -1, time.Now()
	testenv.Eventually(t, "no more requests come", func() error {
		c.mu.Lock()
		n := 0
		for _, of := range c.counts {
			n += of
		}
		c.mu.Unlock()
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("they still come")
		}
		return nil
	})
	return c.takeCounts()
}

// times are those of one kind of request: until what was asked for is so, and until the app's status says that.
type times struct{ done, settled []time.Duration }

// act sends one request for an app that is alone in its space, and measures.
func (c caller) act(t *testing.T, seen *sight, app, action string, done func(map[string]client.Object) bool, wanted func(*korifiv1alpha1.CFApp) bool, into *times) {
	t.Helper()
	isDone, isSettled := seen.await(t, action, done), seen.await(t, "the report of "+action, of(app, wanted))
	begin := time.Now()
	c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/"+action, "")
	into.done, into.settled = append(into.done, isDone().Sub(begin)), append(into.settled, isSettled().Sub(begin))
}

func (c caller) restarted(t *testing.T, seen *sight, app, revision string, into *times) {
	t.Helper()
	c.act(t, seen, app, "restart", runs(revision), settled(revision, korifiv1alpha1.StartedState), into)
}

func (of times) into(figures map[string]float64, name string) {
	figures[name+"_p50_seconds"], figures[name+"_settled_p50_seconds"] = quantile(of.done, p50), quantile(of.settled, p50)
}

func benchTimes(t *testing.T, figures map[string]float64) {
	w := newEnv(t, nil)
	for _, part := range []func(*testing.T, map[string]float64){w.benchOne, w.benchDrain, w.benchRefusals, w.benchCrowd} {
		part(t, figures)
		t.Logf("so far: %v", figures)
	}
}

// benchOne measures one app of one instance whose Pods take 10 ms to be ready and to go, as watches see it. Upstream's figures are
// how long its API takes to answer, which it does when the StatefulSet's object is gone, or one instance is ready. Ours answers
// at once, so the figures beside upstream's are from the request until no StatefulSet and no Pod is left (stop), until an
// instance of the revision is ready (start), and until that is so and nothing older is left (restart). For a stop that is more
// than upstream waits for. The settled figures are until the app's status says that all of it is so.
func (w *env) benchOne(t *testing.T, figures map[string]float64) {
	t.Helper()
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app, seen := alice.hollow(t, space, 1, "HOLLOW_START=10ms HOLLOW_STOP=10ms ./app"), w.look(t, space)
	seen.when(t, app, settled("0", korifiv1alpha1.StartedState))
	var stops, starts, restarts times
	for i := range singleRuns {
		revision := strconv.Itoa(2*i + 1)
		alice.act(t, seen, app, "stop", nothingRuns, settled(revision, korifiv1alpha1.StoppedState), &stops)
		alice.act(t, seen, app, "start", runs(revision), settled(revision, korifiv1alpha1.StartedState), &starts)
		alice.restarted(t, seen, app, strconv.Itoa(2*i+2), &restarts)
	}
	stops.into(figures, "stop")
	starts.into(figures, "start")
	restarts.into(figures, "restart")
}

// hollow is a started app whose Pods behave as its command says.
func (c caller) hollow(t *testing.T, space string, instances int32, command string) string {
	t.Helper()
	app := c.createApp(t, space, "shop", instances, "STOPPED")
	c.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/processes/web", `{"command":"`+command+`"}`)
	c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	return app
}

// benchDrain restarts an app whose Pods take a second to end.
func (w *env) benchDrain(t *testing.T, figures map[string]float64) {
	t.Helper()
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app, seen := alice.hollow(t, space, 2, "HOLLOW_STOP=1s ./app"), w.look(t, space)
	seen.when(t, app, settled("0", korifiv1alpha1.StartedState))
	for i := range drainRuns {
		alice.restarted(t, seen, app, strconv.Itoa(i+1), &times{})
	}
	total, pods := seen.seen()
	if want := 2 * (drainRuns + 1); pods != want {
		t.Errorf("found %d Pods, want %d", pods, want)
	}
	figures["overlap_seconds_strict"] = total.Seconds()
}

// benchCrowd restarts a hundred apps at the same moment.
func (w *env) benchCrowd(t *testing.T, figures map[string]float64) {
	t.Helper()
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	apps := make([]string, crowd)
	for i := range apps {
		apps[i] = alice.createApp(t, space, "shop-"+strconv.Itoa(i), 1, "STOPPED")
		alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+apps[i]+"/actions/start", "")
	}
	seen := w.look(t, space)
	for _, app := range apps {
		seen.when(t, app, settled("0", korifiv1alpha1.StartedState))
	}
	rounds := make([]time.Duration, crowdRounds)
	for i := range rounds {
		var all []func() time.Time
		for _, app := range apps {
			all = append(all, seen.await(t, app, of(app, settled(strconv.Itoa(i+1), korifiv1alpha1.StartedState))))
		}
		begin := time.Now()
		var group sync.WaitGroup
		for _, app := range apps {
			group.Go(func() { alice.insists(t, "/v3/apps/"+app+"/actions/restart") })
		}
		group.Wait()
		for _, isSettled := range all {
			rounds[i] = max(rounds[i], isSettled().Sub(begin))
		}
	}
	figures["restart_100_apps_seconds"] = quantile(rounds, p50)
}

// insists sends a request again while the answer is that nothing was done and that one may try again: on a machine with more
// work than it can do, the API server does not wait for the admission.
func (c caller) insists(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		a, err := c.send(t.Context(), http.MethodPost, path, "")
		switch {
		case err == nil && a.Status == http.StatusOK:
			return
		case err != nil || a.Status != http.StatusServiceUnavailable || time.Now().After(deadline):
			t.Errorf("found %d %s (%v), want it restarted", a.Status, a.Body, err)
			return
		}
		t.Logf("told to try again: %s", a.Body)
	}
}

// benchRefusals asks for what somebody may not do, who may see it and who may not.
func (w *env) benchRefusals(t *testing.T, figures map[string]float64) {
	t.Helper()
	space, alice, bob, mallory := w.createSpace(t), w.newCaller(t, "alice"), w.newCaller(t, "bob"), w.newCaller(t, "mallory")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	var took []time.Duration
	for range refusals {
		for _, by := range []struct {
			caller
			want int
		}{{bob, http.StatusForbidden}, {mallory, http.StatusNotFound}} {
			begin := time.Now()
			by.expectStatus(t, by.want, "POST", "/v3/apps/"+app+"/actions/restart", "")
			took = append(took, time.Since(begin))
		}
	}
	figures["refusal_p99_seconds"] = quantile(took, p99)
}

// benchLists lists 5,000 apps, in a world of their own, as the client does and in pages; the slowest counts.
func benchLists(t *testing.T, figures map[string]float64) {
	w := newEnv(t, nil)
	alice, spaces := w.newCaller(t, "alice"), make([]string, manySpaces)
	for i := range spaces {
		spaces[i] = w.createSpace(t)
	}
	w.fill(t, spaces)
	w.reported(t, spaces)
	in := ""
	for _, s := range spaces {
		in += "," + s
	}
	for path, n := range map[string]string{
		"/v3/apps?order_by=name&per_page=5000": "5000", "/v3/processes?embed=process_instances&per_page=5000": "5000",
		"/v3/apps?order_by=name&per_page=50": "50", "/v3/processes?embed=process_instances&per_page=50": "50",
	} {
		path += "&space_guids=" + in[1:]
		took := make([]time.Duration, listRounds)
		for i := range took {
			begin := time.Now()
			body := alice.expectStatus(t, http.StatusOK, "GET", path, "")
			took[i] = time.Since(begin)
			if i > 0 {
				continue
			}
			if found := conversation.JSONField(t, body, "resources#"); found != n {
				t.Fatalf("%s: found %s, want %s", path, found, n)
			}
		}
		t.Logf("%.60s: median %.3f s, p99 %.3f s", path, quantile(took, p50), quantile(took, p99))
		figures["list_apps_5000_p99_seconds"] = max(figures["list_apps_5000_p99_seconds"], quantile(took, p99))
	}
}

func (w *env) fill(t *testing.T, spaces []string) {
	t.Helper()
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := writer; i < manyApps; i += writers {
				app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: spaces[i%len(spaces)], Name: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)}}
				app.Spec = korifiv1alpha1.CFAppSpec{
					DisplayName: "app-" + strconv.Itoa(i), DesiredState: korifiv1alpha1.StoppedState,
					Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
				}
				if err := w.Client.Create(t.Context(), app); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// reported waits until the manager has made and reported every process.
func (w *env) reported(t *testing.T, spaces []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		done := 0
		for _, space := range spaces {
			var list korifiv1alpha1.CFAppList
			testenv.ExpectNoError(t, w.Client.List(ctx, &list, client.InNamespace(space)))
			for i := range list.Items {
				if settled("0", korifiv1alpha1.StoppedState)(&list.Items[i]) {
					done++
				}
			}
		}
		if done == manyApps {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("found %d apps reported, want %d", done, manyApps)
		}
	}
}

// upstreamFigures returns what Korifi's HEAD took on the same machine with the same kind of Pods, and what the issue asks for.
func upstreamFigures() map[string]string {
	return map[string]string{
		"stop_p50_seconds": "upstream 0.195", "start_p50_seconds": "upstream 0.435", "restart_p50_seconds": "upstream 0.665",
		"overlap_seconds_strict": "target 0", "list_apps_5000_p99_seconds": "target < 0.1", "refusal_p99_seconds": "target < 0.05, upstream 2.6",
	}
}

// saveFigures prints the figures and writes them where TORPOR_BENCH_DIR says.
func saveFigures(t *testing.T, figures map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		t.Logf("%-28s %8.3f   %s", name, figures[name], upstreamFigures()[name])
	}
	dir := os.Getenv("TORPOR_BENCH_DIR")
	if dir == "" {
		return
	}
	raw, err := json.MarshalIndent(figures, "", "  ")
	testenv.ExpectNoError(t, err)
	const folder, file = 0o755, 0o644
	testenv.ExpectNoError(t, os.MkdirAll(dir, folder))
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "restart.json"), append(raw, '\n'), file))
}

// quantile of some runs, in seconds: the smallest that a share of them does not exceed.
func quantile(runs []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(runs))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)].Seconds()
}

// requestCounter stands before the API server and counts what passes, watches and leases left out: watches are opened once, and
// leases are renewed whatever happens.
type requestCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

// serve returns the address, and the authority in PEM that clients have to trust: they send credentials over TLS only.
func (c *requestCounter) serve(t testing.TB, hub *rest.Config) (address string, ca []byte) {
	t.Helper()
	to, err := url.Parse(hub.Host)
	testenv.ExpectNoError(t, err)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(hub))
	testenv.ExpectNoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.countRequest(r)
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func (c *requestCounter) countRequest(r *http.Request) {
	if r.URL.Query().Get("watch") != "" || strings.Contains(r.URL.Path, "/leases") {
		return
	}
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at := len(words) - 1
	for i, word := range words {
		if word == "namespaces" && i+2 < len(words) {
			at = i + 2
		}
	}
	what := words[at]
	if last := words[len(words)-1]; last == "status" {
		what += "/status"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[r.Method+" "+what]++
}

// takeCounts returns what passed since the last time.
func (c *requestCounter) takeCounts() (byKind map[string]int, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byKind, c.counts = maps.Clone(c.counts), nil
	for _, n := range byKind {
		total += n
	}
	return byKind, total
}
