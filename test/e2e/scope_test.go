// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/lease"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestManagerWithAnotherScopeIsNotReady runs managers of two Deployments in the namespace of one installation.
func TestManagerWithAnotherScopeIsNotReady(t *testing.T) {
	t.Parallel()
	binary := testenv.TorporPath(t)
	hub := testenv.StartAPIServer(t)
	start := func(pod string, args ...string) (*testenv.Process, string) {
		t.Helper()
		probes := testenv.FreeAddress(t)
		args = append([]string{"manager", "--kubeconfig", hub.KubeconfigPath(t), "--leader-elect", "--namespace", metav1.NamespaceDefault, "--metrics-address", "0", "--probe-address", probes}, args...)
		return testenv.StartProcess(t, binary, args, []string{"POD_NAME=" + pod}), probes
	}
	leader, leaderProbes := start("torpor-manager-7d4b9c8f6d-x2k9z", "--controllers", "hibernation,sync")
	held := &coordinationv1.Lease{}
	testenv.Eventually(t, "the first one leads", func() error {
		if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: lease.Namespace, Name: lease.Name}, held); err != nil {
			return err
		}
		return checkReadiness(t, leaderProbes, http.StatusOK)
	})
	_, rollout := start("torpor-manager-66b8d4f9c7-bcdfg", "--controllers", "hibernation,sync,workloads")
	_, split := start("torpor-workloads-5f7d8b9c4d-zzzzz", "--controllers", "workloads,adapters", "--watch-namespaces", "team-a,team-b")
	_, unknown := start("laptop", "--controllers", "workloads")
	testenv.Eventually(t, "the manager of another Deployment is not ready", func() error {
		return checkReadiness(t, split, http.StatusInternalServerError,
			"torpor-manager leads with the controllers hibernation,sync in all namespaces",
			"this replica of torpor-workloads waits with the controllers adapters,workloads in the namespaces team-a,team-b and handles nothing")
	})
	testenv.Eventually(t, "a rollout of the same Deployment is ready", func() error { return checkReadiness(t, rollout, http.StatusOK) })
	testenv.Eventually(t, "a manager of no known Deployment is ready", func() error { return checkReadiness(t, unknown, http.StatusOK) })

	t.Log("The rollout continues: the old Pod ends, and one of the others leads. Its scope replaces that of the first one.")
	leader.Stop(t)
	testenv.Eventually(t, "another scope is recorded", func() error {
		before := held.Annotations
		if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
			return err
		}
		found := held.Annotations["torpor.dev/controllers"]
		return testenv.ErrorIf(found == "hibernation,sync" || !strings.Contains(found, "workloads"), "expected other controllers than %v, found %v", before, held.Annotations)
	})
}

// checkReadiness checks the status of a manager's /readyz, and expects words in the output of the check of its
// scope, which /readyz does not print.
func checkReadiness(t *testing.T, probes string, status int, words ...string) error {
	t.Helper()
	paths := []string{"/readyz"}
	if len(words) > 0 {
		paths = append(paths, "/readyz/scope")
	}
	for _, path := range paths {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+probes+path, http.NoBody)
		if err != nil {
			return err
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != status {
			return fmt.Errorf("%s: expected %d, found %s: %s (%w)", path, status, answer.Status, text, err)
		}
		for _, one := range words {
			if path == "/readyz/scope" && !strings.Contains(string(text), one) {
				return fmt.Errorf("expected %q, found %s", one, text)
			}
		}
	}
	return nil
}
