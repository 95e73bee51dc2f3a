// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// forgetApprovals returns a cluster that accepts each approval, but still shows the certificate request as pending. It
// counts calls to its cloud.
func (h *clusterHub) forgetApprovals(t *testing.T) hostileCluster {
	t.Helper()
	const maxApprovals, maxCallsPerMinute = 5, 20
	var approvals, calls atomic.Int64
	cloud, err := url.Parse(h.cloud.URL)
	testenv.ExpectNoError(t, err)
	front := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(cloud) }}
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		front.ServeHTTP(w, r)
	}))
	t.Cleanup(counting.Close)
	request, began := encodeRequest(t, "n"), time.Now()
	items := func(list ...any) map[string]any { return map[string]any{"items": list} }
	return hostileCluster{
		endpoint: counting.URL, hibernates: true, resumeSays: "Waiting for nodes to be ready and to report after the start of the machines: n",
		api: func(w http.ResponseWriter, r *http.Request) {
			pending := map[string]any{
				"metadata": map[string]any{"name": "pending", "uid": "request", "resourceVersion": "1", "creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
				"spec": map[string]any{
					"request": request, "signerName": certificatesv1.KubeAPIServerClientKubeletSignerName, "usages": []string{"digital signature", "client auth"},
					"username": "system:bootstrap:abcdef", "groups": []string{"system:bootstrappers", "system:authenticated"},
				},
			}
			var answer any
			switch {
			case r.Method == http.MethodPatch:
				approvals.Add(1)
				answer = pending
			case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
				answer = items(pending)
			case strings.HasSuffix(r.URL.Path, "/nodes"):
				answer = items(map[string]any{
					"metadata": map[string]any{"name": "n", "uid": "node"},
					"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
				})
			case strings.HasSuffix(r.URL.Path, "/leases"):
				answer = items()
			case r.URL.Path != "/readyz":
				w.WriteHeader(http.StatusNotFound)
				return
			}
			text, err := json.Marshal(answer)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(text)
		},
		check: func(t *testing.T) {
			most := int64(maxCallsPerMinute * (1 + time.Since(began).Minutes()))
			t.Logf("%d approvals and %d calls to the cloud in %s", approvals.Load(), calls.Load(), time.Since(began).Round(time.Second))
			if n := approvals.Load(); n < 1 || n > maxApprovals {
				t.Errorf("expected 1 to %d approvals, found %d", maxApprovals, n)
			}
			if n := calls.Load(); n > most {
				t.Errorf("expected at most %d calls of the cloud, found %d", most, n)
			}
		},
	}
}

// encodeRequest returns the certificate request that a kubelet creates with a bootstrap token.
func encodeRequest(t *testing.T, node string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.ExpectNoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	testenv.ExpectNoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
