// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strings"
	"testing"
)

func TestRenderManifestsRefusesWrongOptions(t *testing.T) {
	for name, row := range map[string]struct {
		options ManifestOptions
		want    string
	}{
		"missing image is refused":                        {ManifestOptions{Record: RecordOff}, "expected the image of the manager"},
		"unknown feature is refused":                      {ManifestOptions{Image: "torpor:dev", Record: RecordOff, Features: []string{"sleep"}}, `found "sleep"`},
		"unknown mode of recording requesters is refused": {ManifestOptions{Image: "torpor:dev", Record: "audit"}, `found "audit"`},
		"missing mode of recording requesters is refused": {ManifestOptions{Image: "torpor:dev"}, `found ""`},
		"empty feature name is refused":                   {ManifestOptions{Image: "torpor:dev", Record: RecordOff, Features: []string{""}}, `found ""`},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := RenderManifests(row.options)
			if !errors.Is(err, ErrManifests) || !strings.Contains(err.Error(), row.want) || data != nil {
				t.Errorf("expected an error with %q, found %v and %d bytes", row.want, err, len(data))
			}
		})
	}
}

func TestRenderManifestsOfOneFeature(t *testing.T) {
	data, err := RenderManifests(ManifestOptions{Image: "torpor:dev", Record: RecordWebhook, Features: []string{"slumber"}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"- --controllers=slumber\n", "- --webhook-address=:9443\n", "image: torpor:dev\n", "value: torpor:dev\n",
		"name: slumbers.torpor.dev\n", "name: clusterslumbers.torpor.dev\n", "name: torpor-slumber-record\n", "name: torpor-webhook\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("expected %q, found none", want)
		}
	}
	for _, foreign := range []string{"hibernation,sync", "name: torpor-hibernation-record", "torpor:latest"} {
		if strings.Contains(text, foreign) {
			t.Errorf("expected the manifests of one feature, found %q", foreign)
		}
	}
}
