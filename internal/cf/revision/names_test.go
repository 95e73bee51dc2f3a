// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

const guid = "8d1b1d4c-2f4a-4d3e-9c55-0a1b2c3d4e5f"

// Race h of docs/adr/0010-revisions-of-apps.md: the names of consecutive revisions, and of revisions that are a million
// apart, are unique. The part of the name that depends on the revision is the same for every process, so one process is
// enough.
func TestNamesOfRevisionsNeverRepeat(t *testing.T) {
	const revisions = 1_000_000
	seen := make(map[string]struct{}, revisions)
	for revision := range int64(revisions) {
		suffix := hashDigits(FormatRevision(revision), revisionDigits)
		if _, ok := seen[suffix]; ok {
			t.Fatalf("revision %d has the name of an earlier one: %s", revision, suffix)
		}
		seen[suffix] = struct{}{}
	}
}

func TestLRPName(t *testing.T) {
	for name, row := range map[string]struct{ process, prefix string }{
		"a GUID is not changed":                            {guid, guid + "-"},
		"a short name is not changed":                      {"web", "web-"},
		"a long name is truncated":                         {strings.Repeat("x", 63), strings.Repeat("x", 30) + "-"},
		"a dot is replaced by a dash":                      {"a.b", "a-b-"},
		"a long name truncated after a dot has two dashes": {strings.Repeat("x", 29) + "." + strings.Repeat("y", 30), strings.Repeat("x", 29) + "--"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, revision := range []int64{0, 1, MaxRevision} {
				got := LRPName(row.process, revision)
				if !strings.HasPrefix(got, row.prefix) {
					t.Errorf("found %s, want it to begin with %s", got, row.prefix)
				}
				if wrong := validation.IsDNS1035Label("a" + got); len(got) > 52 || len(wrong) > 0 {
					t.Errorf("found %s of %d characters, want at most 52 of a label: %v", got, len(got), wrong)
				}
			}
			if LRPName(row.process, 1) == LRPName(row.process, 2) || LRPName(row.process, 1) == LRPName(row.process+"x", 1) {
				t.Error("found the same name twice")
			}
		})
	}
	if LRPName("a.b", 1) == LRPName("a-b", 1) {
		t.Error("a dot and a dash have the same name")
	}
	long := strings.Repeat("x", 60)
	if LRPName(long+"a", 1) == LRPName(long+"b", 1) {
		t.Error("two processes whose names differ at the end have the same name")
	}
}

func TestStatefulSetName(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 53), strings.Repeat("x", 253), "a.b"} {
		if got := StatefulSetName(name); len(got) > 52 || strings.Contains(got, ".") || got == strings.ReplaceAll(name, ".", "-") {
			t.Errorf("%s: found %s", name, got)
		}
	}
}

func TestAppNameLabel(t *testing.T) {
	for name, want := range map[string]string{
		"shop": "shop", "My Shop!": "My-Shop", "a/b_c.d": "a-b_c.d", "--": "", "": "", "ü": "", "läden": "l-den",
		strings.Repeat("x", 62) + "-y": strings.Repeat("x", 62), strings.Repeat("y", 70): strings.Repeat("y", 63),
	} {
		got := AppNameLabel(name)
		if wrong := validation.IsValidLabelValue(got); got != want || len(wrong) > 0 {
			t.Errorf("%q: expected %q, found %q: %v", name, want, got, wrong)
		}
	}
}
