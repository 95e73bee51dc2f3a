// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAFeatureThatIsLeftOffAsksForNothing runs the manager without hibernation on a hub that serves every kind.
func TestAFeatureThatIsLeftOffAsksForNothing(t *testing.T) {
	t.Parallel()
	managerBinary(t)
	w := newEnvironmentWithoutCRDs(t)
	w.hub.InstallCRDs(t)
	w.hub.ExpectCreated(t, testenv.BuildClusterDeployment(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "foreign"}, "missing", "missing"))
	metrics := testenv.FreeAddress(t)
	w.startManager(t, "--controllers=*,-hibernation", "--metrics-address", metrics)
	expectGateStates(t, metrics, map[string]string{"hibernation": "Disabled", "clustering": "Running", "lrp": "Running"})
	seen := 0
	for _, r := range w.traffic.listRequests() {
		if strings.Contains(r.name, "hive.openshift.io") || strings.HasPrefix(r.name, "save ") {
			t.Errorf("expected no request for what is left off, found %s", r.name)
		}
		if strings.Contains(r.name, "moco.cybozu.com") {
			seen++
		}
	}
	if seen == 0 {
		t.Error("expected requests for what is not left off, found none")
	}
}

// expectGateStates waits until the metrics show each group in a state and in no other.
func expectGateStates(t *testing.T, address string, want map[string]string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the groups are %v", want), func() error {
		text, err := readMetrics(t, address)
		if err != nil {
			return err
		}
		for group, state := range want {
			prefix := `torpor_gate_state{group="` + group + `",state="`
			for line := range strings.Lines(text) {
				if rest, ok := strings.CutPrefix(line, prefix); ok && strings.HasSuffix(rest, " 1\n") && rest != state+"\"} 1\n" {
					err = errors.Join(err, fmt.Errorf("expected %s to be %s, found %s", group, state, rest))
				}
			}
			if !strings.Contains(text, prefix+state+"\"} 1\n") {
				err = errors.Join(err, fmt.Errorf("expected %s to be %s", group, state))
			}
		}
		return err
	})
}

func readMetrics(t *testing.T, address string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("read metrics: %w", err)
	}
	return string(text), nil
}
