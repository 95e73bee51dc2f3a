// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestManagerRunsWithoutCRDs starts the manager on a hub without any of its kinds, which are installed and removed
// while it runs. A ClusterDeployment with a missing Secret shows whether a controller handles it.
func TestManagerRunsWithoutCRDs(t *testing.T) {
	t.Parallel()
	w := newEnvironmentWithoutCRDs(t)
	probes := testenv.FreeAddress(t)
	// Workloads are built-in kinds of Kubernetes, which are served without CRDs.
	m := w.startManager(t, "--probe-address", probes, "--controllers=*,-workloads")
	ready := func(what string) {
		t.Helper()
		testenv.Eventually(t, what, func() error { return answersOK(t, "http://"+probes+"/readyz") })
		select {
		case <-m.ExitChannel():
			t.Fatalf("%s: expected the manager alive, found that it ended with %d", what, m.ExitCode())
		default:
		}
	}
	ready("ready without any CRD")
	for _, round := range []string{"first", "second"} {
		w.hub.InstallCRDs(t)
		cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: round}, "missing", "missing")
		w.hub.ExpectCreated(t, cd)
		testenv.Eventually(t, "handled after the "+round+" installation", func() error { return w.checkHandled(t, cd) })
		ready("ready after the " + round + " installation")
		w.hub.RemoveCRDs(t)
		testenv.Eventually(t, "dormant after the "+round+" removal", func() error { return w.checkDormant(t) })
		ready("ready after the " + round + " removal")
	}
}

func (w *environment) checkHandled(t *testing.T, cd *hivev1.ClusterDeployment) error {
	t.Helper()
	if err := w.hub.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
		return fmt.Errorf("read ClusterDeployment: %w", err)
	}
	return checkCondition(cd, hivev1.ClusterHibernatingCondition, metav1.ConditionUnknown, hivev1.CredentialsMissingReason)
}

// checkDormant returns an error until the manager watches only CRDs.
func (w *environment) checkDormant(t *testing.T) error {
	t.Helper()
	w.traffic.mu.Lock()
	defer w.traffic.mu.Unlock()
	for path, open := range w.traffic.openRequests {
		if open > 0 && path != "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions" {
			return fmt.Errorf("expected a watch of CRDs only, found %d of %s", open, path)
		}
	}
	return nil
}

func answersOK(t *testing.T, url string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	_ = answer.Body.Close()
	return testenv.ErrorIf(answer.StatusCode != http.StatusOK, "expected %s to answer 200, found %s", url, answer.Status)
}

// recordVersions starts to record all versions of the ClusterDeployment. The returned function returns the versions
// so far.
func (s *powerCycledCluster) recordVersions(t *testing.T) func() []hivev1.ClusterDeployment {
	t.Helper()
	watcher, err := client.NewWithWatch(s.hub.Config, client.Options{Scheme: s.hub.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	watch, err := watcher.Watch(t.Context(), &hivev1.ClusterDeploymentList{}, client.InNamespace(s.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", s.Name)})
	testenv.ExpectNoError(t, err)
	var mu sync.Mutex
	var versions []hivev1.ClusterDeployment
	var work sync.WaitGroup
	work.Go(func() {
		for e := range watch.ResultChan() {
			if cd, ok := e.Object.(*hivev1.ClusterDeployment); ok {
				mu.Lock()
				versions = append(versions, *cd)
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		watch.Stop()
		work.Wait()
	})
	return func() []hivev1.ClusterDeployment {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(versions)
	}
}

// TestEveryKindHasAnExampleThatApplies verifies that a real API server accepts each manifest in examples/ without a
// warning.
func TestEveryKindHasAnExampleThatApplies(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	var crds apiextensionsv1.CustomResourceDefinitionList
	testenv.ExpectNoError(t, env.Client.List(t.Context(), &crds))
	withoutExample := map[string]bool{}
	for i := range crds.Items {
		withoutExample[crds.Items[i].Spec.Names.Kind] = true
	}
	manifests, err := filepath.Glob(filepath.Join("..", "..", "examples", "*.yaml"))
	testenv.ExpectNoError(t, err)
	for _, manifest := range manifests {
		data, err := os.ReadFile(manifest)
		testenv.ExpectNoError(t, err)
		example := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &example.Object); err != nil {
			t.Fatalf("%s: expected one object as YAML, found %v", manifest, err)
		}
		example.SetNamespace("default")
		delete(withoutExample, example.GetKind())
		err = env.Client.Create(t.Context(), example, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if err != nil {
			t.Errorf("%s: expected the API server to take it, found %v", manifest, err)
		}
	}
	for kind := range withoutExample {
		t.Errorf("expected an example of the kind %s in examples/, found none", kind)
	}
}
