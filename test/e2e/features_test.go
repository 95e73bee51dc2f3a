// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestDisabledFeatureSendsNoRequests runs the manager without hibernation on a hub that serves every
// kind.
func TestDisabledFeatureSendsNoRequests(t *testing.T) {
	t.Parallel()
	testenv.TorporPath(t)
	w := newEnvironmentWithoutCRDs(t)
	w.hub.InstallCRDs(t)
	w.hub.ExpectCreated(t, testenv.BuildClusterDeployment(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "foreign"}, "missing", "missing"))
	metrics := testenv.FreeAddress(t)
	w.startManager(t, "--controllers=*,-hibernation,-sync,-machinepools,-slumber", "--metrics-insecure", "--metrics-address", metrics)
	expectGateStates(t, metrics, map[string]string{"hibernation": "Disabled", "sync": "Disabled", "machinepools": "Disabled", "slumber": "Disabled", "clustering": "Running", "lrp": "Running"})
	seen := 0
	for _, r := range w.traffic.listRequests() {
		if strings.Contains(r.name, "hive.openshift.io") || strings.HasPrefix(r.name, "save ") {
			t.Errorf("expected no request of a disabled feature, found %s", r.name)
		}
		if strings.Contains(r.name, "moco.cybozu.com") {
			seen++
		}
	}
	if seen == 0 {
		t.Error("expected requests of enabled features, found none")
	}
}

// TestHibernationAlone hibernates and resumes a cluster with only the permissions in config/features/hibernation, while
// the manager tries to run all features. Then the manager gets the permissions of the feature mysql.
func TestHibernationAlone(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	const namespace = "torpor-system"
	w.hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	user := w.hub.ApplyManagerRoles(t, namespace, "hibernation")
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "delete", Resource: "namespaces"},
		{Verb: "create", Group: "apps", Resource: "statefulsets"},
		{Verb: "patch", Group: "apps", Resource: "statefulsets"},
		{Verb: "list", Resource: "secrets"},
		{Verb: "watch", Resource: "secrets"},
		{Verb: "create", Resource: "secrets"},
		{Verb: "delete", Resource: "pods"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right}}
		w.hub.ExpectCreated(t, review)
		if review.Status.Allowed {
			t.Errorf("expected no permission to %s %s, found one", right.Verb, right.Resource)
		}
	}
	w.hubProxy = w.traffic.startProxy(t, toHub, w.hub.ImpersonateUser(user))
	cluster, metrics := w.createCluster(t, "alone", time.Hour), testenv.FreeAddress(t)
	m := w.startManager(t, "--metrics-insecure", "--metrics-address", metrics, "--leader-elect", "--namespace", namespace)
	expectGateStates(t, metrics, map[string]string{
		"hibernation": "Running", "sync": "Running", "machinepools": "Running", "slumber": "Forbidden", "workloads": "Forbidden", "adapters": "Forbidden", "clustering": "Forbidden", "provisioning": "Forbidden", "backup": "Forbidden", "restart": "Forbidden",
		"spaces": "Forbidden", "deployments": "Forbidden", "routes": "Forbidden", "tasks": "Forbidden", "lrp": "Forbidden",
	})
	cluster.reachPowerState(t, hivev1.PowerStateHibernating)
	cluster.reachPowerState(t, hivev1.PowerStateRunning)
	waits, refused := 0, 0
	for line := range strings.Lines(m.LastOutput()) {
		if strings.Contains(line, "the group waits until it is granted the missing permission") {
			waits++
		} else if strings.Contains(line, "forbidden") {
			refused++
			t.Logf("refused: %s", line)
		}
	}
	if waits != 12 || refused != 0 {
		t.Errorf("expected one line for each of 12 groups without permissions and none about a refusal, found %d and %d", waits, refused)
	}
	expectJSONLines(t, m)
	w.hub.ApplyFeatureRoles(t, namespace, "mysql")
	expectGateStates(t, metrics, map[string]string{"clustering": "Running", "provisioning": "Running", "backup": "Running", "lrp": "Forbidden"})
}

// TestOtherNamespacesAreLeftAlone restricts the manager to one of two namespaces.
func TestOtherNamespacesAreLeftAlone(t *testing.T) {
	t.Parallel()
	testenv.TorporPath(t)
	w := newEnvironmentWithoutCRDs(t)
	w.hub.InstallCRDs(t)
	watched, other := w.hub.CreateNamespace(t), w.hub.CreateNamespace(t)
	mine := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: watched, Name: "mine"}, "missing", "missing")
	w.hub.ExpectCreated(t, testenv.BuildClusterDeployment(types.NamespacedName{Namespace: other, Name: "other"}, "missing", "missing"), mine)
	metrics := testenv.FreeAddress(t)
	w.startManager(t, "--watch-namespaces", watched, "--metrics-insecure", "--metrics-address", metrics)
	testenv.Eventually(t, "the cluster of the namespace is handled", func() error { return w.checkHandled(t, mine) })
	expectGateStates(t, metrics, map[string]string{"clustering": "Running", "provisioning": "Running", "backup": "Running", "restart": "Running", "lrp": "Running"})
	// Requests other than watches end soon, for example those for discovery while other groups start.
	testenv.Eventually(t, "only that namespace is watched", func() error { return w.checkWatchesOf(watched) })
}

// checkWatchesOf returns an error if watches of namespaced objects are open outside a namespace, or if too few are open
// in the namespace.
func (w *environment) checkWatchesOf(namespace string) error {
	w.traffic.mu.Lock()
	defer w.traffic.mu.Unlock()
	watches := 0
	for path, open := range w.traffic.openRequests {
		switch {
		case open == 0 || strings.HasPrefix(path, "GET /apis/apiextensions.k8s.io/"):
		case path == "GET /api/v1/namespaces" || path == "GET /apis/torpor.dev/v1alpha1/stopadapters": // Both are cluster-scoped.
		case strings.Contains(path, "/namespaces/"+namespace+"/"):
			watches++
		default:
			return fmt.Errorf("expected watches of the namespace only, found %s", path)
		}
	}
	if watches < 10 {
		return fmt.Errorf("expected watches of the namespace, found %d", watches)
	}
	return nil
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
		return "", fmt.Errorf("request metrics: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("read metrics: %w", err)
	}
	return string(text), nil
}
