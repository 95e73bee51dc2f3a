// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// TestReadinessIsReadFromPods serves a handler like the manager's at the path of the API server's Pod proxy.
func TestReadinessIsReadFromPods(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "torpor-system", Name: "a"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "probes", ContainerPort: 8081}}}}},
	}
	fail := func(text string) healthz.Checker { return func(*http.Request) error { return fmt.Errorf("%s", text) } }
	failing := map[string]healthz.Checker{"ping": healthz.Ping, "webhook-trust": fail("expected a webhook,\nfound none")}
	many := map[string]healthz.Checker{}
	for i := range 9 {
		many[fmt.Sprint("check-", i)] = fail(strings.Repeat("x", 9000))
	}
	for name, row := range map[string]struct {
		checks map[string]healthz.Checker
		status int
		want   string
		most   int
	}{
		"a failing readiness check: the problem has the name and reason of the check": {checks: failing, want: "the readiness check webhook-trust fails: expected a webhook, found none"},
		"a Pod whose readiness checks pass: no problem":                               {checks: map[string]healthz.Checker{"ping": healthz.Ping}},
		"a caller without permission to use the Pod proxy: no problem":                {checks: failing, status: http.StatusForbidden},
		"many failing checks with long reasons: the problem is truncated":             {checks: many, most: maxReasons * (maxReadinessBytes + 100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const proxy = "/api/v1/namespaces/torpor-system/pods/http:a:8081/proxy/readyz"
			handler := http.StripPrefix(proxy, &healthz.Handler{Checks: row.checks})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.status != 0 {
					http.Error(w, "[-]none failed: you may not", row.status)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			defer server.Close()
			kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			found := readReadiness(t.Context(), kube, pod)
			if row.most > 0 {
				if len(found) > row.most || !strings.Contains(found, "check-0") {
					t.Errorf("expected at most %d bytes about the first checks, found %d", row.most, len(found))
				}
				return
			}
			if found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
