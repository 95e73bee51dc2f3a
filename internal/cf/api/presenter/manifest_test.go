// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"reflect"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// TestManifestCanBePushedAgain reads the source of an app in its manifest: an app whose code is built has no image,
// because a manifest with one would be refused.
func TestManifestCanBePushedAgain(t *testing.T) {
	const image = "registry.example.com/shop:1"
	for name, row := range map[string]struct {
		lifecycle korifiv1alpha1.Lifecycle
		want      map[string]any
	}{
		"an image": {
			korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
			map[string]any{"docker": map[string]any{"image": image}},
		},
		"code": {korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle}, map[string]any{}},
		"code with buildpacks and a stack": {
			korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle, Data: korifiv1alpha1.LifecycleData{Buildpacks: []string{"go"}, Stack: "full"}},
			map[string]any{"buildpacks": []string{"go"}, "stack": "full"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			app := &korifiv1alpha1.CFApp{Spec: korifiv1alpha1.CFAppSpec{DisplayName: "shop", Lifecycle: row.lifecycle}}
			applications, _ := ForAppManifest(AppState{App: app}, image, nil, nil)["applications"].([]any)
			row.want["name"], row.want["processes"] = "shop", []map[string]any{}
			if len(applications) != 1 || !reflect.DeepEqual(applications[0], row.want) {
				t.Errorf("found %v, want %v", applications, row.want)
			}
		})
	}
}
