// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

const widgetList = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
{"name":"widgets/status","kind":"Widget","namespaced":true,"verbs":["get"]},
{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]},
{"name":"clocks","kind":"Clock","verbs":["create"]}]}`

// fake starts an API server with the responses of a handler.
func fake(t *testing.T, handler http.HandlerFunc) (*rest.Config, *http.Client) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, server.Client()
}

func TestDiscoverAndProbeSendOneRequest(t *testing.T) {
	widget := lookResult{outcome: outcomePresent, version: "v1", scope: "Namespaced", plural: "widgets", watchable: true}
	clock := lookResult{outcome: outcomePresent, version: "v1", scope: "Cluster", plural: "clocks"}
	type result struct {
		Kinds map[string]lookResult
		Ready bool
		Error bool
	}
	probe := func(s *restServer) (r result) {
		ready, err := s.probeWatch(t.Context(), schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
		return result{Ready: ready, Error: err != nil}
	}
	discover := func(s *restServer) (r result) {
		kinds, err := s.discoverKinds(t.Context(), schema.GroupVersion{Group: "example.com", Version: "v1"})
		return result{Kinds: kinds, Error: err != nil}
	}
	cases := map[string]struct {
		ask  func(*restServer) result
		code int
		body string
		want result
	}{
		"discovery returns 200: the kinds are read": {discover, 200, widgetList, result{Kinds: map[string]lookResult{"Widget": widget, "Clock": clock}}},
		"discovery returns 404: no kinds":           {discover, 404, "404 page not found", result{}},
		"discovery returns invalid JSON: an error":  {discover, 200, "<html>", result{Error: true}},
		"discovery returns 403: an error":           {discover, 403, "{}", result{Error: true}},
		"discovery returns 401: an error":           {discover, 401, "{}", result{Error: true}},
		"discovery returns 429: an error":           {discover, 429, "{}", result{Error: true}},
		"discovery returns 503: an error":           {discover, 503, "{}", result{Error: true}},
		"a watch starts: ready":                     {probe, 200, "", result{Ready: true}},
		"a watch is forbidden: ready":               {probe, 403, "{}", result{Ready: true}},
		"a watch returns 429: not ready":            {probe, 429, "{}", result{}},
		"a watch returns 404: not ready":            {probe, 404, "{}", result{}},
		"a watch returns 500: an error":             {probe, 500, "{}", result{Error: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			cfg, hc := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Retry-After", "1") // client-go would obey this header.
				w.WriteHeader(c.code)
				_, _ = fmt.Fprint(w, c.body)
			})
			s, err := newRESTServer(cfg, hc)
			testenv.Must(t, err)
			if diff := cmp.Diff(c.want, c.ask(s), cmp.AllowUnexported(lookResult{})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

func TestAServerWithoutCRDsIsPolled(t *testing.T) {
	var attempts atomic.Int64
	cfg, hc := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, crdResource):
			attempts.Add(1)
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
		default:
			_, _ = fmt.Fprint(w, widgetList)
		}
	})
	log := make(chan string, 10)
	d, err := New(cfg, hc, funcr.New(func(_, args string) { log <- args }, funcr.Options{}))
	testenv.Must(t, err)
	verdicts, cancel := d.Subscribe(widgets(), nil)
	for v := range verdicts {
		if v[0].Presence == Served {
			break
		}
	}
	line := <-log
	cancel()
	if n := attempts.Load(); !strings.Contains(line, "discovery is polled") || len(log) != 0 || n > 2 {
		t.Errorf("%d attempts to watch, log %q and %d more, want one line and at most 2 attempts", n, line, len(log))
	}
}

// When an API server is replaced with another one, the watch ends early, and the other server may serve other kinds.
func TestBrokenWatchIsFollowedByAQuery(t *testing.T) {
	var isUpgraded atomic.Bool
	var watches atomic.Int64
	cut := make(chan struct{})
	cfg, hc := fake(t, func(w http.ResponseWriter, r *http.Request) {
		isWatch := r.URL.Query().Get("watch") == "true"
		switch {
		case strings.Contains(r.URL.Path, crdResource) && isWatch:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
				"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			_ = http.NewResponseController(w).Flush()
			if watches.Add(1) == 1 {
				<-cut
				return
			}
			<-r.Context().Done()
		case strings.Contains(r.URL.Path, crdResource):
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		case isWatch:
			w.WriteHeader(http.StatusOK)
		case r.URL.Path == "/apis":
			w.Header().Set("ETag", `"same"`)
		case isUpgraded.Load():
			_, _ = fmt.Fprint(w, widgetList)
		default:
			http.NotFound(w, r)
		}
	})
	d, err := New(cfg, hc, funcr.New(func(string, string) {}, funcr.Options{}))
	testenv.Must(t, err)
	verdicts, cancel := d.Subscribe(widgets(), nil)
	defer cancel()
	for v := range verdicts {
		switch v[0].Presence {
		case Absent:
			isUpgraded.Store(true)
			close(cut)
		case Served:
			return
		case Unclear:
		}
	}
}

func TestDiscoverySendsTheETag(t *testing.T) {
	etag := `"one"`
	cfg, hc := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
		}
	})
	s, err := newRESTServer(cfg, hc)
	testenv.Must(t, err)
	first, err := s.discoveryVersion(t.Context(), "")
	testenv.Must(t, err)
	again, err := s.discoveryVersion(t.Context(), first)
	testenv.Must(t, err)
	etag = `"two"`
	changed, err := s.discoveryVersion(t.Context(), first)
	testenv.Must(t, err)
	if first == "" || again != first || changed == first {
		t.Errorf("versions are %q, %q and %q, want the first one twice", first, again, changed)
	}
}
