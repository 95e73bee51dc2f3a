// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestUnreadResponseIsBounded uses an API server that sends as fast as it can, and counts the bytes that the client
// accepts. A busy machine only lowers that number.
func TestUnreadResponseIsBounded(t *testing.T) {
	const wait, most = time.Second, 2 * maxUnreadBytes
	taken := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait)) != nil {
			t.Errorf("expected HTTP/2, found %s", r.Proto)
		}
		sent, part := 0, make([]byte, 16<<10)
		for err := error(nil); err == nil; sent += len(part) {
			_, err = w.Write(part)
		}
		taken <- sent
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	a, err := NewAuthenticator(Options{Config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, Scheme: runtime.NewScheme(), Clock: clock.RealClock{}, Metrics: NewCallerMetrics()})
	if err != nil {
		t.Fatal(err)
	}
	tripper, done := a.newTransport(callerCredential{value: "alice"}, nil)
	t.Cleanup(done)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := tripper.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if found := <-taken; found > most {
		t.Errorf("found %d KiB of unread data, want at most %d", found>>10, most>>10)
	}
}
