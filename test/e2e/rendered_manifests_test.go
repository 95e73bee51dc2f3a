// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/config"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const renderedImage = "registry.example/torpor:v0.1.0"

func renderManifests(t *testing.T, o config.ManifestOptions) string {
	t.Helper()
	o.Image = renderedImage
	data, err := config.RenderManifests(o)
	testenv.ExpectNoError(t, err)
	return string(data)
}

// readObjects returns the objects of a stream of YAML by kind, namespace and name.
func readObjects(t *testing.T, stream string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		var u unstructured.Unstructured
		testenv.ExpectNoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		if len(u.Object) == 0 {
			continue
		}
		key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if found[key] != nil {
			t.Errorf("expected each object once, found %s twice", key)
		}
		found[key] = u.Object
	}
	return found
}

// TestRenderedManifestsAreThoseOfKustomize compares the output of torpor install --image with the output of kubectl
// kustomize for the same folders.
func TestRenderedManifestsAreThoseOfKustomize(t *testing.T) {
	t.Parallel()
	kubectl := testenv.KubectlPath(t)
	want := map[string]map[string]any{}
	for _, folder := range []string{"default", "record", "webhook"} {
		out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", filepath.Join("..", "..", "config", folder)).Output()
		testenv.ExpectNoError(t, err)
		maps.Copy(want, readObjects(t, strings.ReplaceAll(string(out), "torpor:latest", renderedImage)))
	}
	got := readObjects(t, renderManifests(t, config.ManifestOptions{Record: config.RecordPolicy}))
	for key := range got {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			if !strings.HasSuffix(key, ".torpor.dev") {
				t.Errorf("expected only Torpor's own definitions, found %s", key)
			}
			delete(got, key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rendered manifests (-kustomize +found):\n%s", diff)
	}
}

// TestRenderedManifestsCanBeApplied applies the output of torpor install --image twice with kubectl.
func TestRenderedManifestsCanBeApplied(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]config.ManifestOptions{
		"all features with the webhook: applied":                    {Record: config.RecordWebhook},
		"the features slumber and workloads with policies: applied": {Features: []string{"slumber", "workloads"}, Record: config.RecordPolicy},
		"the feature mysql without a record of requesters: applied": {Features: []string{"mysql"}, Record: config.RecordOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := testenv.StartAPIServer(t)
			apply := func() string {
				line := exec.CommandContext(t.Context(), testenv.KubectlPath(t), "apply", "--kubeconfig", hub.KubeconfigPath(t), "-f", "-")
				line.Stdin = strings.NewReader(renderManifests(t, o))
				out, err := line.CombinedOutput()
				if err != nil {
					t.Fatalf("kubectl apply: %v\n%s", err, out)
				}
				return string(out)
			}
			if out := apply(); !strings.Contains(out, "deployment.apps/torpor-manager created") {
				t.Errorf("expected the manager to be created, found:\n%s", out)
			}
			if out := apply(); strings.Contains(out, " created") {
				t.Errorf("expected the second apply to create nothing, found:\n%s", out)
			}
		})
	}
}
