// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"reflect"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// TestManifestCanBePushedAgain checks the source fields in an app's manifest. An app built from code has no image
// field, because a manifest with an image would be refused.
func TestManifestCanBePushedAgain(t *testing.T) {
	const image = "registry.example.com/shop:1"
	for name, row := range map[string]struct {
		lifecycle korifiv1alpha1.Lifecycle
		want      map[string]any
	}{
		"an app with an image has the image": {
			korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
			map[string]any{"docker": map[string]any{"image": image}},
		},
		"an app built from code has no image": {korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle}, map[string]any{}},
		"an app built from code has its buildpacks and stack": {
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
