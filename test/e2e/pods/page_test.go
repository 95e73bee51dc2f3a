// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var pageLink = regexp.MustCompile(`http://127\.0\.0\.1:\d+/enter\?key=\w+`)

// testPage opens the page of a manager in a Pod by kubectl torpor page, and again after the Pod has been replaced.
func (a *appSuite) testPage(t *testing.T) {
	a.apply(t, "page.yaml")
	a.kubectl(t, "rollout", "status", "deployment/torpor-manager", "--namespace=torpor-system", "--timeout=3m")
	output := &testenv.LogBuffer{}
	testenv.RunInBackground(t, "kubectl torpor page", func(ctx context.Context) error {
		for {
			code := torpor.Run(ctx, torpor.Streams{Out: output, Err: output}, []string{"page", "--no-browser", "--port=0", "--kubeconfig", a.kubeconfigOf(t, "alice")})
			if code == int(exit.Done) {
				return nil
			}
			if ctx.Err() != nil || pageLink.MatchString(output.String()) {
				return fmt.Errorf("expected exit code 0, found %d: %s", code, output)
			}
			// The Pod may lose its readiness after the rollout. A user would try again.
			pods, err := a.tryRun(t, "", filepath.Join(a.programs, "kubectl"), "describe", "pods", "--namespace=torpor-system")
			t.Logf("no page: %s\n%s %v", output, pods, err)
		}
	})
	link := ""
	eventually(t, "the address is printed", func() error {
		if link = pageLink.FindString(output.String()); link == "" {
			return fmt.Errorf("found %q", output)
		}
		return nil
	})
	jar, err := cookiejar.New(nil)
	testenv.ExpectNoError(t, err)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	testenv.ExpectNoError(t, expectPage(t, browser, link, "Open the page"))
	board, _, _ := strings.Cut(link, "enter")
	eventually(t, "alice sees the page", func() error {
		return expectPage(t, browser, board, "system:serviceaccount:torpor-system:alice")
	})
	a.kubectl(t, "delete", "pods", "--namespace=torpor-system", "--selector=app.kubernetes.io/name=torpor")
	eventually(t, "the command has connected to another Pod", func() error {
		return expectPage(t, browser, board, "system:serviceaccount:torpor-system:alice")
	})
	if found := output.String(); !strings.Contains(found, "connecting again") {
		t.Errorf("expected a message about the lost connection, found %q", found)
	}
	a.kubectl(t, "delete", "deployment/torpor-manager", "--namespace=torpor-system")
}

func expectPage(t *testing.T, browser *http.Client, address, text string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := browser.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), text) {
		return fmt.Errorf("expected %q, found %d: %s, %w", text, answer.StatusCode, body, err)
	}
	return nil
}
