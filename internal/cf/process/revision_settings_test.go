// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheEnvironmentOfARevisionIsThatOfItsWebProcess(t *testing.T) {
	with := func(value string) RevisionSettings {
		return RevisionSettings{Environment: map[string][]byte{"A": []byte(value)}}
	}
	for title, row := range map[string]struct {
		settings map[string]RevisionSettings
		want     map[string][]byte
	}{
		"processes with different environments: the environment of web": {map[string]RevisionSettings{"clock": with("1"), "web": with("2"), "worker": with("3")}, with("2").Environment},
		"an app without web: the environment of the first type":         {map[string]RevisionSettings{"worker": with("3"), "clock": with("1")}, with("1").Environment},
		"a web process without variables: an empty environment":         {map[string]RevisionSettings{"worker": with("3"), "web": {}}, nil},
		"a revision without settings: no environment":                   {nil, nil},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(row.want, FindAppEnvironment(row.settings)); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}
