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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestSlowAndEndlessClientsAreDisconnected(t *testing.T) {
	e := shared.Get(t)
	dial := func(t *testing.T) *tls.Conn {
		t.Helper()
		transport, ok := e.client.Transport.(*http.Transport)
		if !ok {
			t.Fatalf("found %T", e.client.Transport)
		}
		own := transport.TLSClientConfig.Clone()
		own.ServerName, own.NextProtos = "localhost", []string{"http/1.1"}
		c, err := tls.Dial("tcp", strings.TrimPrefix(e.url, "https://"), own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Run("a client that does not complete its headers is disconnected", func(t *testing.T) {
		t.Parallel()
		c := dial(t)
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
	t.Run("a client that sends endless headers is disconnected", func(t *testing.T) {
		t.Parallel()
		c := dial(t)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+strings.Repeat("x", 2*maxHeaderBytes)+"\r\n\r\n")
		if line, _ := bufio.NewReader(c).ReadString('\n'); line != "" && !strings.Contains(line, "431") {
			t.Errorf("found %q, want 431 or nothing", line)
		}
	})
	t.Run("a client that does not speak TLS is not served", func(t *testing.T) {
		t.Parallel()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(e.url, "https", "http", 1), http.NoBody)
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

// TestShutdownFinishesRequests stops a replica while it holds a response.
func TestShutdownFinishesRequests(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 1, started)
	r := e.startReplica(t, 1000)
	alice := e.callerNamed(t, "alice").at(r)
	e.controllers.setIdle(app, true)
	if a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/restart", ""); a.status != http.StatusOK {
		t.Fatalf("found %d %s", a.status, a.body)
	}
	begin := time.Now()
	answers := alice.getLater(t, "/v3/apps/"+app+"/processes/web/stats")
	testenv.Eventually(t, "the request is under way", func() error {
		if asked, known := r.countCredentials(t); asked+known < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	r.stop()
	if a := <-answers; a.status != http.StatusOK || strings.Contains(a.body, "RUNNING") || a.field(t, "resources#") != "1" {
		t.Errorf("found %d %s, want the response with the current state", a.status, a.body)
	}
	t.Logf("the end took %s", time.Since(begin))
	if _, err := alice.try(t.Context(), "GET", "/healthz", ""); err == nil {
		t.Error("found a response after the end, want none")
	}
}

// scrapeMetrics returns the metrics of a replica.
func (r *replica) scrapeMetrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.metricsAddress+"/metrics", http.NoBody)
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

// countCredentials returns how many credentials a replica has reviewed, and how many it found in its cache.
func (r *replica) countCredentials(t *testing.T) (asked, known int) {
	t.Helper()
	for line := range strings.Lines(r.scrapeMetrics(t)) {
		value, _ := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]))
		switch {
		case strings.HasPrefix(line, `torpor_cf_api_credentials_total{result="asked"}`):
			asked = value
		case strings.HasPrefix(line, `torpor_cf_api_credentials_total{result="known"}`):
			known = value
		}
	}
	return asked, known
}

// TestMetricsCountAndCallersAreLimited sends a few requests to a new replica, and then more requests than one caller
// may send.
func TestMetricsCountAndCallersAreLimited(t *testing.T) {
	e := shared.Get(t)
	// This many concurrent requests exceed the burst of five requests per caller, even on a slow machine.
	const atOnce = 40
	space, app := e.createShop(t, 1, stopped)
	r := e.startReplica(t, 1)
	bob := e.callerNamed(t, "bob").at(r)
	begin := time.Now()
	for _, path := range []string{"/v3/apps/" + app, "/v3/apps/" + app, "/v3/apps/nobody", "/v3/nothing"} {
		bob.get(t, path)
	}
	var group sync.WaitGroup
	answers := make([]response, atOnce)
	for i := range answers {
		group.Go(func() { answers[i], _ = bob.try(t.Context(), "GET", "/whoami", "") })
	}
	group.Wait()
	took, refused := time.Since(begin), 0
	for _, a := range answers {
		if a.status == http.StatusTooManyRequests {
			refused++
			if a.field(t, "errors.0.title") != "CF-RateLimitExceeded" || a.header.Get("Retry-After") == "" {
				t.Errorf("found %s, want the text of CF and the time of the next attempt", a.body)
			}
		}
	}
	if refused == 0 {
		t.Errorf("expected some of %d requests refused at one a second, found none", atOnce)
	}
	text := r.scrapeMetrics(t)
	for _, line := range []string{
		`torpor_cf_api_requests_total{code="200",route="GET /v3/apps/{guid}"} 2`,
		`torpor_cf_api_requests_total{code="404",route="GET /v3/apps/{guid}"} 1`,
		`torpor_cf_api_requests_total{code="404",route="unknown"} 1`,
		`torpor_cf_api_request_duration_seconds_count{route="GET /v3/apps/{guid}"} 3`,
		fmt.Sprintf(`torpor_cf_api_refused_total{limit="caller"} %d`, refused),
		`torpor_cf_api_refused_total{limit="newcomer"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("expected %s, found:\n%s", line, text)
		}
	}
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "torpor_build_info{commit="} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("expected %s of the program itself, found none", name)
		}
	}
	// A credential is cached for 10 s, so on a busy machine it may be reviewed a second time.
	asked, known := r.countCredentials(t)
	if asked+known != 3+atOnce || asked < 1 || asked > 1 && took < 10*time.Second {
		t.Errorf("found %d credentials asked about and %d known, want 1 and %d", asked, known, 2+atOnce)
	}
	for _, never := range []string{app, space, "nobody", "bob"} {
		if strings.Contains(text, never) {
			t.Errorf("found %q in the metrics, want no data of callers", never)
		}
	}
	e.callerNamed(t, "alice").at(r).expect(t, http.StatusOK, "GET /whoami", "")
}
