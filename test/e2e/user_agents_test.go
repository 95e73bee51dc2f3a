// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestEveryClientSendsItsVersion sends a request with each program and client to a server that does not answer.
func TestEveryClientSendsItsVersion(t *testing.T) {
	t.Parallel()
	binary := testenv.TorporPath(t)
	type server struct{ url, kubeconfig, folder string }
	program := func(args func(s server) []string) func(*testing.T, server) {
		return func(t *testing.T, s server) {
			t.Helper()
			testenv.StartProcess(t, binary, args(s), []string{"AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s", "AWS_EC2_METADATA_DISABLED=true"})
		}
	}
	for name, client := range map[string]struct {
		ask func(t *testing.T, s server)
		// says is a pattern for the beginning of the User-Agent; a version follows.
		says string
	}{
		"torpor manager: identified by torpor": {program(func(s server) []string {
			return []string{"manager", "--kubeconfig", s.kubeconfig, "--metrics-address=0", "--probe-address=0"}
		}), "^torpor/"},
		"torpor install: identified by torpor":   {program(func(s server) []string { return []string{"install", "--kubeconfig", s.kubeconfig} }), "^torpor/"},
		"torpor uninstall: identified by torpor": {program(func(s server) []string { return []string{"uninstall", "--kubeconfig", s.kubeconfig} }), "^torpor/"},
		"torpor cf-api: identified by torpor-cf-api": {program(func(s server) []string {
			return []string{"cf-api", "--kubeconfig", s.kubeconfig, "--metrics-address=0", "--address=127.0.0.1:0", "--tls-folder", s.folder}
		}), "^torpor-cf-api/"},
		"torpor restore in a request to the bucket: identified by torpor": {program(func(s server) []string {
			return []string{"restore", "--source=a/b", "--restore-point=2026-01-01T00:00:00Z", "--host=127.0.0.1", "--bucket=b", "--path-style", "--endpoint", s.url}
		}), " torpor/"},
		"kubectl moco: identified by kubectl-moco": {func(t *testing.T, s server) {
			t.Helper()
			moco.NewPlugin(moco.Streams{Out: io.Discard, Err: io.Discard}).Run(t.Context(), []string{"status", "--kubeconfig", s.kubeconfig})
		}, "^kubectl-moco/"},
		"torpor manager in a request to EC2: identified by torpor": {func(t *testing.T, s server) {
			t.Helper()
			_, _ = aws.New(aws.Options{Endpoint: s.url, Attempts: 1}).Observe(t.Context(), actuator.Target{InfraID: "i", Region: "us-east-1", Credentials: map[string][]byte{
				"aws_access_key_id": []byte("k"), "aws_secret_access_key": []byte("s"),
			}})
		}, " torpor/"},
		"torpor manager in a request to a target cluster: identified by torpor": {func(t *testing.T, s server) {
			t.Helper()
			kubeconfig, err := os.ReadFile(s.kubeconfig)
			testenv.ExpectNoError(t, err)
			c, err := targetcluster.Dialer{AllowInsecure: true}.Dial(kubeconfig, hibernation.ServerOverride{})
			testenv.ExpectNoError(t, err)
			defer c.Close()
			_ = c.Probe(context.WithoutCancel(t.Context()))
		}, "^torpor/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var agent atomic.Value
			asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				agent.Store(r.UserAgent())
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(asked.Close)
			s := server{url: asked.URL, folder: t.TempDir()}
			s.kubeconfig = filepath.Join(s.folder, "kubeconfig")
			testenv.ExpectNoError(t, os.WriteFile(s.kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
				"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"t"}}]}`, s.url), 0o600))
			client.ask(t, s)
			want := regexp.MustCompile(client.says + `\S`)
			testenv.Eventually(t, "the server received a request", func() error {
				found, _ := agent.Load().(string)
				return testenv.ErrorIf(!want.MatchString(found), "expected a User-Agent like %s, found %q", want, found)
			})
		})
	}
}
