// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSlumberTargetListsTheBuiltInKinds compares the kinds that a Slumber may name without an API group with the
// registry: in the validation rule, in its message, and in the description of the field.
func TestSlumberTargetListsTheBuiltInKinds(t *testing.T) {
	var names []string
	for _, k := range ListBuiltIn() {
		names = append(names, k.GVK().Kind)
	}
	all, last := strings.Join(names[:len(names)-1], ", "), names[len(names)-1]
	found, err := os.ReadFile(filepath.Join(repositoryRoot, "api", "torpor", "v1alpha1", "slumber.go"))
	if err != nil {
		t.Fatal(err)
	}
	// A description may have line breaks anywhere.
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(found), "\n\t//", "\n")), " ")
	for what, want := range map[string]string{
		"rule":        "self.kind in ['" + strings.Join(names, "', '") + "']",
		"message":     "message=`expected " + all + " or " + last + ", or an apiGroup;",
		"description": "optional for " + all + " and " + last + ".",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the %s of SlumberTarget in api/torpor/v1alpha1/slumber.go: expected %q, found another text; correct it and run .ci/generate", what, want)
		}
	}
}
