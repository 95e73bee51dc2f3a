// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// createPodMetrics creates the metrics of an instance whose Pod also has a proxy container.
func (e *testEnv) createPodMetrics(t *testing.T, space, process, version, index, cpu, memory string) {
	t.Helper()
	container := func(name, cpu, memory string) any {
		return map[string]any{"name": name, "usage": map[string]any{"cpu": cpu, "memory": memory}}
	}
	measured := &unstructured.Unstructured{Object: map[string]any{
		"timestamp": "2026-07-01T12:00:00Z", "containers": []any{container("proxy", "7", "7Gi"), container(eiriniv1.ApplicationContainer, cpu, memory)},
	}}
	measured.SetGroupVersionKind(authorization.PodMetricsKind().GroupVersion().WithKind("PodMetrics"))
	measured.SetNamespace(space)
	measured.SetGenerateName("shop-")
	measured.SetLabels(map[string]string{korifiv1alpha1.ProcessGUIDLabel: process, korifiv1alpha1.VersionLabel: version, appsv1.PodIndexLabel: index})
	e.ExpectCreated(t, measured)
}

func TestStatsShowWhatInstancesUse(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	space, app := e.createShop(t, 3, started)
	web, stats := revision.ProcessName(app, korifiv1alpha1.WebProcess), "GET /v3/apps/"+app+"/processes/web/stats"
	e.createPodMetrics(t, space, web, "0", "0", "250m", "64Mi")
	e.createPodMetrics(t, space, web, "0", "2", "1500000n", "1Ki")
	e.createPodMetrics(t, space, web, "1", "1", "1", "1Gi")
	e.createPodMetrics(t, space, "another", "0", "1", "1", "1Gi")
	used := []string{
		"resources.0.usage.cpu=0.25", "resources.0.usage.cpu_entitlement=2.5", "resources.0.usage.mem=67108864", "resources.0.usage.time=2026-07-01T12:00:00Z",
		"resources.2.usage.cpu=0.0015", "resources.2.usage.mem=1024",
	}
	const nothing = `"usage":{}`
	alice := e.callerNamed(t, "alice")
	for _, c := range []caller{alice, e.callerNamed(t, "bob")} {
		if found := c.expect(t, http.StatusOK, stats, "", used...); strings.Count(found.body, nothing) != 1 {
			t.Errorf("expected one instance without usage, found %s", found.body)
		}
	}
	// A caller with access to the app, but not to metrics.k8s.io, receives the stats without usage. Other callers still
	// receive the usage.
	namespace, _ := e.createServiceAccount(t, "looker")
	e.ExpectCreated(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "looker"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{korifiv1alpha1.GroupVersion().Group}, Resources: []string{"cfapps", "cfprocesses"}, Verbs: []string{"get", "list"},
	}}})
	e.ExpectCreated(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "looker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "looker"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "looker"}},
	})
	e.awaitBinding(t, "system:serviceaccount:"+namespace+":looker", nil, space)
	if found := e.callerOf(t, namespace, "looker").expect(t, http.StatusOK, stats, "", "resources.0.state=RUNNING"); strings.Count(found.body, nothing) != 3 {
		t.Errorf("expected no usage of the instances, found %s", found.body)
	}
	alice.expect(t, http.StatusOK, stats, "", used...)
}
