// SPDX-License-Identifier: Apache-2.0

package completion

import (
	"slices"
	"testing"
)

func TestPluginArguments(t *testing.T) {
	for name, row := range map[string]struct{ argv, want []string }{
		"plugin run by its name: its arguments":                       {[]string{"/usr/bin/kubectl-torpor", "why", "cfapp/shop"}, []string{"why", "cfapp/shop"}},
		"plugin run by its completer's name: a completion":            {[]string{"/usr/bin/kubectl_complete-torpor", "why", "cf"}, []string{"__complete", "why", "cf"}},
		"empty word: completed":                                       {[]string{"kubectl_complete-moco", ""}, []string{"__complete", ""}},
		"plugin in a folder with the completer's name: its arguments": {[]string{"/kubectl_complete-x/kubectl-torpor"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if found := PluginArguments(row.argv); !slices.Equal(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
