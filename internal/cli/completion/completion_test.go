// SPDX-License-Identifier: Apache-2.0

package completion

import (
	"slices"
	"testing"
)

func TestPluginArguments(t *testing.T) {
	for name, row := range map[string]struct{ argv, want []string }{
		"a plugin gets its arguments":                       {[]string{"/usr/bin/kubectl-torpor", "why", "cfapp/shop"}, []string{"why", "cfapp/shop"}},
		"by the name of its completer it is asked":          {[]string{"/usr/bin/kubectl_complete-torpor", "why", "cf"}, []string{"__complete", "why", "cf"}},
		"an empty word is completed":                        {[]string{"kubectl_complete-moco", ""}, []string{"__complete", ""}},
		"a folder of such a name makes no completer of one": {[]string{"/kubectl_complete-x/kubectl-torpor"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if found := PluginArguments(row.argv); !slices.Equal(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
