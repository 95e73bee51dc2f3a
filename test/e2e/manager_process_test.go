// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMetricsAreForReaders requests metrics without a token, with a token without permission, and with a reader's
// token.
func TestMetricsAreForReaders(t *testing.T) {
	t.Parallel()
	testenv.TorporPath(t)
	w := newEnvironmentWithoutCRDs(t)
	w.hub.ApplyManagerRoles(t, metav1.NamespaceDefault)
	address := testenv.FreeAddress(t)
	w.hubProxy = w.traffic.startProxy(t, toHub, w.hub.ImpersonateUser("system:serviceaccount:default:torpor-manager"))
	m := w.startManager(t, "--metrics-address", address)
	w.hub.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "reader"}},
	})
	for _, path := range []string{"/metrics", "/debug/conditional"} {
		for token, want := range map[string]int{
			"": http.StatusUnauthorized, "nonsense": http.StatusUnauthorized,
			w.createToken(t, "stranger"): http.StatusForbidden, w.createToken(t, "reader"): http.StatusOK,
		} {
			testenv.Eventually(t, fmt.Sprintf("%s answers %d", path, want), func() error { return expectStatus(t, "https://"+address+path, token, want) })
		}
	}
	if _, err := readMetrics(t, address); err == nil {
		if text, _ := readMetrics(t, address); strings.Contains(text, "torpor_gate_state") {
			t.Error("expected no metrics by plain http, found some")
		}
	}
	expectJSONLines(t, m)
}

// createToken creates a service account and returns a token for it.
func (w *environment) createToken(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := w.hub.Client.Create(t.Context(), account); err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := w.hub.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func expectStatus(t *testing.T, address, token string, want int) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // The manager creates a new self-signed certificate at each start.
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != want {
		return fmt.Errorf("expected %d, found %s", want, answer.Status)
	}
	return nil
}

// expectJSONLines expects every line of the manager's log to be JSON.
func expectJSONLines(t *testing.T, m *testenv.Process) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(m.LastOutput()) {
		lines++
		if strings.HasSuffix(line, "\n") && !json.Valid([]byte(line)) {
			t.Errorf("expected JSON, found the line %s", line)
		}
	}
	if lines == 0 {
		t.Error("expected a log, found none")
	}
}

func TestProgramReportsVersionAndHasPublicAuthorities(t *testing.T) {
	binary := testenv.TorporPath(t)
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "golang.org/x/crypto/x509roots/fallback" }) {
		t.Error("expected the public authorities in the program, found none: the image has no others")
	}
	out, err := exec.CommandContext(t.Context(), binary, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(errors.Join(err, fmt.Errorf("%s", out)))
	}
	var version map[string]string
	if err := json.Unmarshal(out, &version); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "commit", "date", "go"} {
		if version[key] == "" {
			t.Errorf("expected %s, found %s", key, out)
		}
	}
}
