// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func get(t *testing.T, c *http.Client, address string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := c.Do(request)
	testenv.ExpectNoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	testenv.ExpectNoError(t, err)
	return answer.StatusCode, string(body)
}

// The page receives the user's token only with requests of the browser that has opened the printed address.
func TestPageProxyServesOneBrowser(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s by %q at %s with cookies %q", r.URL.Path, r.Header.Get("Authorization"), r.Host, r.Header.Get("Cookie"))
	}))
	t.Cleanup(page.Close)
	proxy := newPageProxy("the-key", func(context.Context) (string, error) { return "Bearer of-alice", nil })
	local := httptest.NewServer(proxy)
	t.Cleanup(local.Close)
	jar, err := cookiejar.New(nil)
	testenv.ExpectNoError(t, err)
	browser := &http.Client{Jar: jar}
	link := proxy.link(local.Listener.Addr())
	host := local.Listener.Addr().String()
	target, err := url.Parse(page.URL)
	testenv.ExpectNoError(t, err)
	expect := func(what, path string, status int, text string) {
		t.Helper()
		if found, body := get(t, browser, local.URL+path); found != status || !strings.Contains(body, text) {
			t.Errorf("%s: expected %d and %q, found %d: %s", what, status, text, found, body)
		}
	}
	if !proxy.setTarget(target) || proxy.setTarget(target) {
		t.Error("expected the first target to be the first one only")
	}
	expect("no session", "/events", http.StatusUnauthorized, "has printed")
	expect("another key", "/enter?key=guessed", http.StatusUnauthorized, "has printed")
	if status, body := get(t, browser, link); status != http.StatusOK || strings.Contains(body, "of-alice") {
		t.Errorf("expected the login without the token, found %d: %s", status, body)
	}
	expect("a session", "/events?q=a", http.StatusOK, `/events by "Bearer of-alice" at `+host+` with cookies ""`)
	if other, _ := get(t, http.DefaultClient, local.URL); other != http.StatusUnauthorized {
		t.Errorf("another browser: expected 401, found %d", other)
	}
	proxy.clearTarget()
	expect("a lost connection", "/", http.StatusServiceUnavailable, "connecting")
	expect("a logout", "/logout", http.StatusOK, "logged out")
	proxy.setTarget(target)
	expect("after the logout", "/", http.StatusUnauthorized, "has printed")
}

func TestPageNeedsAToken(t *testing.T) {
	for name, row := range map[string]struct {
		config  rest.Config
		header  string
		problem string
	}{
		"a token: accepted":                                {config: rest.Config{BearerToken: "abc"}, header: "Bearer abc"},
		"a client certificate: refused with a hint":        {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("cert"), KeyData: []byte("key")}}, problem: "--service-account"},
		"a user name with a password: refused with a hint": {config: rest.Config{Username: "alice", Password: "secret"}, problem: "--service-account"},
		"a token and the flag --as: refused":               {config: rest.Config{BearerToken: "abc", Impersonate: rest.ImpersonationConfig{UserName: "bob"}}, problem: "--as"},
	} {
		t.Run(name, func(t *testing.T) {
			row.config.Host = "https://127.0.0.1:1"
			read, err := readBearerToken(t.Context(), &row.config)
			if row.problem != "" {
				if err == nil || !strings.Contains(err.Error(), row.problem) || exit.CodeOf(err) == exit.Done {
					t.Errorf("expected an error with %q, found %v", row.problem, err)
				}
				return
			}
			testenv.ExpectNoError(t, err)
			if header, err := read(t.Context()); header != row.header || err != nil {
				t.Errorf("expected %q, found %q, %v", row.header, header, err)
			}
		})
	}
}

func TestReadPagePort(t *testing.T) {
	for name, row := range map[string]struct {
		args          []string
		port, problem string
	}{
		"an address in the argument of the flag: its port": {args: []string{"manager", "--page-address=127.0.0.1:8088"}, port: "8088"},
		"an address in a separate argument: its port":      {args: []string{"manager", "--page-address", "127.0.0.1:9000", "--leader-elect"}, port: "9000"},
		"a disabled page: refused":                         {args: []string{"manager", "--page-address=0"}, problem: "page.enabled"},
		"a manager without the flag: refused":              {args: []string{"manager"}, problem: "page.enabled"},
		"a flag without a value: refused":                  {args: []string{"manager", "--page-address"}, problem: "page.enabled"},
		"a page that is served with TLS: refused":          {args: []string{"manager", "--page-address=:8443", "--page-cert-dir=/page-tls"}, problem: "torpor-page"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: row.args}}}}
			port, err := readPagePort(pod)
			if port != row.port || (err == nil) != (row.problem == "") || err != nil && !strings.Contains(err.Error(), row.problem) {
				t.Errorf("expected port %q and error %q, found %q and %v", row.port, row.problem, port, err)
			}
		})
	}
}
