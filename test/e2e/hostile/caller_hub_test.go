// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func startCallerHub(t *testing.T, e *testenv.Environment) *callerHub {
	t.Helper()
	h := &callerHub{}
	h.setCutOff(false)
	target, err := url.Parse(e.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Each request has its own credentials.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(e.Config))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case strings.HasPrefix(token, "bad-"):
			h.refused.Add(1)
			answerJSON(w, http.StatusUnauthorized, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
		case strings.HasPrefix(token, "honest-") && strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			answerJSON(w, http.StatusCreated, fmt.Sprintf(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q}}}`, token))
		case strings.HasPrefix(token, "honest-"):
			answerJSON(w, http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":true}}`)
		case r.URL.Query().Has("watch"):
			h.proxyWatch(w, r, proxy)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	// Watches end with their callers, at the latest with the test.
	t.Cleanup(func() {
		h.setCutOff(true)
		server.CloseClientConnections()
		server.Close()
	})
	h.url, h.ca = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return h
}

func (h *callerHub) proxyWatch(w http.ResponseWriter, r *http.Request, proxy http.Handler) {
	connected := h.connection()
	if connected == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-connected:
			cancel()
		case <-ctx.Done():
		}
	}()
	// An interrupted stream panics, so that its reader sees no proper end.
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
