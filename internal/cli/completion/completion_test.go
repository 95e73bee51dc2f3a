// SPDX-License-Identifier: Apache-2.0

package completion

import (
	"slices"
	"testing"
)

func TestPluginArguments(t *testing.T) {
	for name, row := range map[string]struct{ argv, want []string }{
		"a plugin that is run by its own name keeps its arguments":               {[]string{"/usr/bin/kubectl-torpor", "why", "cfapp/shop"}, []string{"why", "cfapp/shop"}},
		"a plugin run by the name of its completer gets the argument __complete": {[]string{"/usr/bin/kubectl_complete-torpor", "why", "cf"}, []string{"__complete", "why", "cf"}},
		"an empty argument of a completer is kept":                               {[]string{"kubectl_complete-moco", ""}, []string{"__complete", ""}},
		"a plugin in a folder with a completer's name keeps its arguments":       {[]string{"/kubectl_complete-x/kubectl-torpor"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if found := PluginArguments(row.argv); !slices.Equal(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
