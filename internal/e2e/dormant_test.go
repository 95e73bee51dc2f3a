// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestManagerRunsWithoutCRDs: the manager is started on a hub without any of its kinds, and outlives their comings and
// goings. A ClusterDeployment whose Secret is missing is enough to see whether anybody handles it.
func TestManagerRunsWithoutCRDs(t *testing.T) {
	t.Parallel()
	w := newHubWorld(t)
	probes := testenv.FreeAddress(t)
	m := w.startManager(t, "--probe-address", probes)
	ready := func(what string) {
		t.Helper()
		testenv.Eventually(t, what, func() error { return answersOK(t, "http://"+probes+"/readyz") })
		select {
		case <-m.Done():
			t.Fatalf("%s: expected the manager alive, found that it ended with %d", what, m.ExitCode())
		default:
		}
	}
	ready("ready without any CRD")
	for _, round := range []string{"first", "second"} {
		w.hub.InstallCRDs(t)
		cd := deployment(round)
		if err := w.hub.Client.Create(t.Context(), cd); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "handled after the "+round+" installation", func() error { return w.handled(t, cd) })
		ready("ready after the " + round + " installation")
		w.hub.RemoveCRDs(t)
		testenv.Eventually(t, "dormant after the "+round+" removal", func() error { return w.dormant(t) })
		ready("ready after the " + round + " removal")
	}
}

func deployment(name string) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: metav1.NamespaceDefault, Labels: map[string]string{hivev1.VersionLabel: "4.16.3"},
	}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Installed = name, "local.test", true
	cd.Spec.Platform.AWS = &hivev1.AWSPlatform{Region: testenv.Region}
	cd.Spec.Platform.AWS.CredentialsSecretRef.Name = "missing"
	cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: name, InfraID: name}
	cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = "missing"
	return cd
}

func (w *world) handled(t *testing.T, cd *hivev1.ClusterDeployment) error {
	t.Helper()
	if err := w.hub.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
		return fmt.Errorf("read ClusterDeployment: %w", err)
	}
	return reports(cd, hivev1.ClusterHibernatingCondition, metav1.ConditionUnknown, hivev1.CredentialsMissingReason)
}

// dormant says nil once the manager watches CRDs only.
func (w *world) dormant(t *testing.T) error {
	t.Helper()
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	for path, open := range w.wire.open {
		if open > 0 && path != "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions" {
			return fmt.Errorf("expected no watch but that of CRDs, found %d of %s", open, path)
		}
	}
	return nil
}

func answersOK(t *testing.T, url string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("expected %s to answer 200, found %s", url, answer.Status)
	}
	return nil
}
