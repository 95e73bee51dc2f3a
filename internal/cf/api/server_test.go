// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// testBodies sends what no client should: the answer is an error of CF, never a fault of the server's.
func (w *testEnv) testBodies(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StoppedState)
	alice := w.callerNamed(t, "alice")
	big := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		title, says        string
	}{
		"no JSON":              {"POST", "/v3/apps", "name=shop", http.StatusBadRequest, "CF-MessageParseError", "parse error"},
		"half of it":           {"POST", "/v3/apps", `{"name":`, http.StatusBadRequest, "CF-MessageParseError", "parse error"},
		"too much":             {"POST", "/v3/apps", big, http.StatusBadRequest, "CF-MessageParseError", "at most 1 MiB"},
		"too much of YAML":     {"POST", "/v3/spaces/" + space + "/actions/apply_manifest", big, http.StatusBadRequest, "CF-MessageParseError", "at most 1 MiB"},
		"a list":               {"POST", "/v3/packages", `[1]`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "expected an object"},
		"a wrong type":         {"POST", "/v3/apps", `{"name":7}`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "expected name to be a string, found a number"},
		"a wrong type within":  {"POST", "/v3/builds", `{"package":{"guid":[]}}`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "expected package.guid to be a string"},
		"too large a number":   {"POST", "/v3/apps/" + app + "/processes/web/actions/scale", `{"instances":99999999999}`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "expected instances to be a whole number"},
		"a part of a number":   {"POST", "/v3/apps/" + app + "/processes/web/actions/scale", `{"instances":1.5}`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "whole number"},
		"nothing where needed": {"POST", "/v3/apps", ``, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "Invalid space"},
		"only nulls":           {"POST", "/v3/deployments", `{"relationships":null,"options":null,"droplet":null,"strategy":null}`, http.StatusNotFound, "CF-ResourceNotFound", "App not found"},
		"a name that is none":  {"POST", "/v3/apps", `{"name":"","relationships":{"space":{"data":{"guid":"` + space + `"}}}}`, http.StatusUnprocessableEntity, "CF-UnprocessableEntity", "displayName"},
		"an odd index":         {"DELETE", "/v3/apps/" + app + "/processes/web/instances/one%20two", ``, http.StatusNotFound, "CF-ResourceNotFound", "Instance not found"},
		"an odd GUID":          {"GET", "/v3/apps/..%2f..%2fapi", ``, http.StatusNotFound, "CF-ResourceNotFound", "App not found"},
		"an odd revision":      {"GET", "/v3/revisions/-", ``, http.StatusNotFound, "CF-ResourceNotFound", "Revision not found"},
	} {
		t.Run(name, func(t *testing.T) {
			a := alice.send(t, test.method, test.path, test.body)
			if a.status != test.status || jsonField(t, a.body, "errors.0.title") != test.title || !strings.Contains(jsonField(t, a.body, "errors.0.detail"), test.says) {
				t.Errorf("found %d %s, want %d %s with %q", a.status, a.body, test.status, test.title, test.says)
			}
		})
	}
	unknown := `{"name":"new","something":{"new":[1]},"lifecycle":null,"metadata":{"labels":{"a":"b"}},"relationships":{"space":{"data":{"guid":"` + space + `"}}}}`
	if a := alice.send(t, "POST", "/v3/apps", unknown); a.status != http.StatusCreated {
		t.Errorf("found %d %s, want unknown and null fields read over", a.status, a.body)
	}
	if a := alice.send(t, "PUT", "/v3/apps", ""); a.header.Get("Allow") != "GET, POST" {
		t.Errorf("found the methods %q, want GET, POST", a.header.Get("Allow"))
	}
	manifest := `{"applications":[{"name":"shop","routes":[{"route":"a.example.com"}],"services":["db"],"random-route":false}]}`
	if a := alice.send(t, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest); len(a.header.Values("X-Cf-Warnings")) != 2 {
		t.Errorf("found %d and the warnings %q, want one of routes and one of services", a.status, a.header.Values("X-Cf-Warnings"))
	}
}

// testPages goes through a list page by page.
func (w *testEnv) testPages(t *testing.T) {
	const apps, perPage = 5, "2"
	space := w.createSpace(t)
	alice := w.callerNamed(t, "alice")
	for i := range apps {
		body := fmt.Sprintf(`{"name":"app-%d","relationships":{"space":{"data":{"guid":"%s"}}}}`, i, space)
		if a := alice.send(t, "POST", "/v3/apps", body); a.status != http.StatusCreated {
			t.Fatalf("found %d %s", a.status, a.body)
		}
	}
	var names []string
	for next := w.url + "/v3/apps?space_guids=" + space + "&order_by=-name&per_page=" + perPage; next != ""; {
		a := alice.get(t, strings.TrimPrefix(next, w.url))
		if jsonField(t, a.body, "pagination.total_results") != "5" || jsonField(t, a.body, "pagination.total_pages") != "3" {
			t.Fatalf("found %s, want 5 on 3 pages", a.body)
		}
		for i := range 2 {
			if name := jsonField(t, a.body, fmt.Sprintf("resources.%d.name", i)); name != "" {
				names = append(names, name)
			}
		}
		next = jsonField(t, a.body, "pagination.next.href")
	}
	if got := strings.Join(names, " "); got != "app-4 app-3 app-2 app-1 app-0" {
		t.Errorf("found %s, want all five, the last first", got)
	}
	if a := alice.get(t, "/v3/apps?page=99&space_guids="+space); jsonField(t, a.body, "resources#") != "0" {
		t.Errorf("found %s, want a page of nothing", a.body)
	}
}

// testSlow is about clients that are in no hurry, or send without end.
func (w *testEnv) testSlow(t *testing.T) {
	dial := func() *tls.Conn {
		transport, ok := w.http.Transport.(*http.Transport)
		if !ok {
			t.Fatalf("found %T", w.http.Transport)
		}
		own := transport.TLSClientConfig.Clone()
		own.ServerName, own.NextProtos = "localhost", []string{"http/1.1"}
		c, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Run("who never ends the headers is sent away", func(t *testing.T) {
		t.Parallel()
		c := dial()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(10 * headerTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("found %v, want the connection closed", err)
		}
	})
	t.Run("who sends headers without end is sent away", func(t *testing.T) {
		t.Parallel()
		c := dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+strings.Repeat("x", 2*maxHeaderBytes)+"\r\n\r\n")
		if line, _ := bufio.NewReader(c).ReadString('\n'); line != "" && !strings.Contains(line, "431") {
			t.Errorf("found %q, want 431 or nothing", line)
		}
	})
	t.Run("who does not speak TLS is not served", func(t *testing.T) {
		t.Parallel()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(w.url, "https", "http", 1), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := http.DefaultClient.Do(r); err == nil {
			_ = a.Body.Close()
			if a.StatusCode != http.StatusBadRequest {
				t.Errorf("found %d, want it refused", a.StatusCode)
			}
		}
	})
}

// testShutdown stops a replica while it holds an answer, and while requests come in.
func (w *testEnv) testShutdown(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StartedState)
	r := w.startReplica(t, 1000)
	alice := w.callerNamed(t, "alice").atReplica(r)
	w.controllers.setFlag(w.controllers.idle, app, true)
	if a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/restart", ""); a.status != http.StatusOK {
		t.Fatalf("found %d %s", a.status, a.body)
	}
	answers := make(chan response, 1)
	ctx := t.Context()
	begin := time.Now()
	go func() {
		a, err := alice.try(ctx, "GET", "/v3/apps/"+app+"/processes/web/stats", "")
		if err != nil {
			a.body = err.Error()
		}
		answers <- a
	}()
	testenv.Eventually(t, "the request is under way", func() error {
		if !strings.Contains(w.scrapeMetrics(t, r), `torpor_cf_api_credentials_total{result="known"} 1`) {
			return errors.New("not yet")
		}
		return nil
	})
	if err := r.stop(); err != nil {
		t.Errorf("found %v, want a clean end", err)
	}
	if a := <-answers; a.status != http.StatusOK || strings.Contains(a.body, "RUNNING") || jsonField(t, a.body, "resources#") != "1" {
		t.Errorf("found %d %s, want the answer as things stand", a.status, a.body)
	}
	t.Logf("the end took %s", time.Since(begin))
	if _, err := alice.try(ctx, "GET", "/healthz", ""); err == nil {
		t.Error("found an answer after the end, want none")
	}
}

// scrapeMetrics is what a replica's metrics say.
func (w *testEnv) scrapeMetrics(t *testing.T, r *replica) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	a, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// testMetrics sends a few requests to a replica of its own, and more than one caller may.
func (w *testEnv) testMetrics(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StoppedState)
	r := w.startReplica(t, 1)
	bob := w.callerNamed(t, "bob").atReplica(r)
	for _, path := range []string{"/v3/apps/" + app, "/v3/apps/" + app, "/v3/apps/nobody", "/v3/nothing"} {
		bob.get(t, path)
	}
	refused := 0
	for range 5 {
		if a := bob.get(t, "/whoami"); a.status == http.StatusTooManyRequests {
			refused++
			if jsonField(t, a.body, "errors.0.title") != "CF-RateLimitExceeded" || a.header.Get("Retry-After") == "" {
				t.Errorf("found %s, want the words of CF and when to try again", a.body)
			}
		}
	}
	if refused == 0 {
		t.Error("expected one of nine requests refused at one a second, found none")
	}
	text := w.scrapeMetrics(t, r)
	for _, line := range []string{
		`torpor_cf_api_requests_total{code="200",route="GET /v3/apps/{guid}"} 2`,
		`torpor_cf_api_requests_total{code="404",route="GET /v3/apps/{guid}"} 1`,
		`torpor_cf_api_requests_total{code="404",route="unknown"} 1`,
		`torpor_cf_api_request_duration_seconds_count{route="GET /v3/apps/{guid}"} 3`,
		fmt.Sprintf(`torpor_cf_api_refused_total{limit="caller"} %d`, refused),
		`torpor_cf_api_refused_total{limit="newcomer"} 0`,
		`torpor_cf_api_credentials_total{result="asked"} 1`,
		`torpor_cf_api_credentials_total{result="known"} 7`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("expected %s, found:\n%s", line, text)
		}
	}
	for _, never := range []string{app, space, "nobody", "bob"} {
		if strings.Contains(text, never) {
			t.Errorf("found %q in the metrics, want nothing of who asked for what", never)
		}
	}
	if a := w.callerNamed(t, "alice").atReplica(r).get(t, "/whoami"); a.status != http.StatusOK {
		t.Errorf("found alice refused for what bob did: %d", a.status)
	}
}
