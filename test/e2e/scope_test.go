// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// scopedHub is a hub with managers of several Deployments in the namespace of one installation.
type scopedHub struct {
	*testenv.Environment

	binary string
}

// newScopedHub returns a hub with the kinds of Torpor, and a ClusterDeployment in each of the namespaces.
func newScopedHub(t *testing.T, namespaces ...string) scopedHub {
	t.Helper()
	hub := scopedHub{testenv.Start(t), testenv.TorporPath(t)}
	for _, namespace := range namespaces {
		hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, buildUninstalledCluster(namespace))
	}
	return hub
}

func buildUninstalledCluster(namespace string) *hivev1.ClusterDeployment {
	return &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster"},
		Spec:       hivev1.ClusterDeploymentSpec{ClusterName: "cluster", BaseDomain: "example.com"},
	}
}

// scopedManager is the process of a manager.
type scopedManager struct {
	*testenv.Process

	probes, metrics string
}

func (h scopedHub) start(t *testing.T, pod string, args ...string) scopedManager {
	t.Helper()
	m := scopedManager{probes: testenv.FreeAddress(t), metrics: testenv.FreeAddress(t)}
	args = append([]string{
		"manager", "--kubeconfig", h.KubeconfigPath(t), "--leader-elect", "--namespace", metav1.NamespaceDefault,
		"--metrics-address", m.metrics, "--metrics-insecure", "--probe-address", m.probes,
	}, args...)
	m.Process = testenv.StartProcess(t, h.binary, args, []string{"POD_NAME=" + pod})
	return m
}

// waitForState waits for the state of a group of controllers in a manager.
func (m scopedManager) waitForState(t *testing.T, group, state string) {
	t.Helper()
	line := fmt.Sprintf("torpor_gate_state{group=%q,state=%q} 1\n", group, state)
	testenv.Eventually(t, line, func() error {
		text, err := readAddress(t, m.metrics, "/metrics", http.StatusOK)
		return testenv.ErrorIf(err != nil || !strings.Contains(text, line), "expected %q, found none (%v)", line, err)
	})
}

// waitUntilReady waits until a manager is ready.
func (m scopedManager) waitUntilReady(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "a ready manager", func() error {
		_, err := readAddress(t, m.probes, "/readyz", http.StatusOK)
		return err
	})
}

// waitUntilUnready waits until a manager's readiness check scope fails with a message that contains the words.
func (m scopedManager) waitUntilUnready(t *testing.T, words ...string) {
	t.Helper()
	testenv.Eventually(t, "a manager that is not ready", func() error {
		_, err := readAddress(t, m.probes, "/readyz", http.StatusInternalServerError)
		if err != nil {
			return err
		}
		text, err := readAddress(t, m.probes, "/readyz/scope", http.StatusInternalServerError)
		for _, one := range words {
			if err == nil && !strings.Contains(text, one) {
				err = fmt.Errorf("expected %q, found %s", one, text)
			}
		}
		return err
	})
}

// waitUntilHandled waits until a manager has written the status of the ClusterDeployment in a namespace.
func (h scopedHub) waitUntilHandled(t *testing.T, namespace string) {
	t.Helper()
	h.WaitForCondition(t, buildUninstalledCluster(namespace), hivev1.ClusterHibernatingCondition, metav1.ConditionUnknown, hivev1.NotInstalledReason)
}

// TestDeploymentsLeadDifferentParts runs managers with different --controllers. Each manager becomes the leader for its
// own controllers.
func TestDeploymentsLeadDifferentParts(t *testing.T) {
	t.Parallel()
	hub := newScopedHub(t, "team-a")
	clusters := hub.start(t, "torpor-clusters-7d4b9c8f6d-x2k9z", "--controllers", "hibernation,sync,machinepools")
	clusters.waitForState(t, "hibernation", "Running")
	switches := hub.start(t, "torpor-switches-5f7d8b9c4d-zzzzz", "--controllers", "slumber,workloads,adapters")
	switches.waitForState(t, "workloads", "Running")
	switches.waitForState(t, "hibernation", "Disabled")
	clusters.waitUntilReady(t)
	switches.waitUntilReady(t)
	hub.waitUntilHandled(t, "team-a")

	t.Log("A replica of the first Deployment waits. A Deployment with other controllers of the same part is not ready.")
	replica := hub.start(t, "torpor-clusters-7d4b9c8f6d-bbbbb", "--controllers", "hibernation,sync,machinepools")
	replica.waitForState(t, "hibernation", "Elsewhere")
	replica.waitUntilReady(t)
	split := hub.start(t, "torpor-sync-5f7d8b9c4d-ccccc", "--controllers", "sync")
	split.waitUntilUnready(t,
		"torpor-clusters leads with the controllers hibernation,machinepools,sync in all namespaces",
		"this replica of torpor-sync waits with the controllers sync in all namespaces")
	split.Stop(t)

	t.Log("The leader is killed. The replica leads after the Lease has expired; the other part is not affected.")
	clusters.KillAtOnce(t)
	replica.waitForState(t, "hibernation", "Running")
	switches.waitForState(t, "workloads", "Running")

	t.Log("The leader ends. A Pod of a rollout with other flags leads within seconds.")
	rollout := hub.start(t, "torpor-clusters-66b8d4f9c7-ddddd", "--controllers", "hibernation,sync", "--watch-namespaces", "team-a")
	rollout.waitForState(t, "sync", "Dormant")
	rollout.waitUntilReady(t)
	replica.Stop(t)
	began := time.Now()
	rollout.waitForState(t, "sync", "Running")
	t.Logf("it took %s", time.Since(began))
}

// TestDeploymentsHandleDifferentNamespaces runs two managers with different --watch-namespaces, which both act. A third
// manager that also watches one of these namespaces waits.
func TestDeploymentsHandleDifferentNamespaces(t *testing.T) {
	t.Parallel()
	hub := newScopedHub(t, "team-a", "team-b", "team-c")
	hub.start(t, "torpor-a-7d4b9c8f6d-x2k9z", "--controllers", "hibernation", "--watch-namespaces", "team-a").waitForState(t, "hibernation", "Running")
	b := hub.start(t, "torpor-b-5f7d8b9c4d-zzzzz", "--controllers", "hibernation", "--watch-namespaces", "team-b")
	b.waitForState(t, "hibernation", "Running")
	hub.waitUntilHandled(t, "team-a")
	hub.waitUntilHandled(t, "team-b")
	common := hub.start(t, "torpor-common-5f7d8b9c4d-ccccc", "--controllers", "hibernation", "--watch-namespaces", "team-b,team-c")
	common.waitUntilUnready(t,
		"torpor-b leads with the controllers hibernation in the namespaces team-b",
		"this replica of torpor-common waits with the controllers hibernation in the namespaces team-b,team-c")
	untouched := buildUninstalledCluster("team-c")
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(untouched), untouched))
	if len(untouched.Status.Conditions) > 0 {
		t.Errorf("expected no manager for team-c, found %v", untouched.Status.Conditions)
	}
	acting, err := leasereader.FindActing(t.Context(), hub.Client, time.Now())
	testenv.ExpectNoError(t, err)
	for namespace, words := range map[string]string{"team-a": "", "team-b": "", "team-c": "does not watch the namespace team-c"} {
		if found := acting.DescribeInaction("hibernation", namespace); (found == "") != (words == "") || !strings.Contains(found, words) {
			t.Errorf("%s: expected %q, found %q", namespace, words, found)
		}
	}

	t.Log("The manager with the common namespace ends. The other one acts within seconds.")
	b.Stop(t)
	hub.waitUntilHandled(t, "team-c")
	common.waitUntilReady(t)
}

// readAddress reads a path of a manager, and expects the status.
func readAddress(t *testing.T, address, path string, status int) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != status {
		return "", fmt.Errorf("%s: expected %d, found %s: %s (%w)", path, status, answer.Status, text, err)
	}
	return string(text), nil
}
