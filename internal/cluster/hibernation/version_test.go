// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/version"
)

// maxVersionMessage holds the words around a version and the shown part of it, quoted.
const maxVersionMessage = 200 + 10*maxShownVersion

func TestIncompatibilityReason(t *testing.T) {
	for name, row := range map[string]struct {
		sources []string
		// want is a part of the message; empty where the version is good.
		want string
	}{
		"the minimum: compatible":                                         {[]string{"4.4.8"}, ""},
		"a patch below the minimum: refused as too old":                   {[]string{"4.4.7"}, "found 4.4.7; upgrade"},
		"a patch above the minimum: compatible":                           {[]string{"4.4.9"}, ""},
		"a minor version of two digits: compatible":                       {[]string{"4.10.0"}, ""},
		"an old minor: refused as too old":                                {[]string{"4.3.99"}, "found 4.3.99"},
		"an old major: refused as too old":                                {[]string{"3.11.524"}, "found 3.11.524"},
		"a new major: compatible":                                         {[]string{"5.0.0"}, ""},
		"a pre-release of the minimum: refused as too old":                {[]string{"4.4.8-rc.1"}, "found 4.4.8-rc.1"},
		"a pre-release of the next: compatible":                           {[]string{"4.4.9-rc.1"}, ""},
		"a build of the minimum: compatible":                              {[]string{"4.4.8+build.7"}, ""},
		"a nightly: compatible":                                           {[]string{"4.15.0-0.nightly-2024-01-05-061046"}, ""},
		"an OKD release: compatible":                                      {[]string{"4.15.0-0.okd-2024-03-10-010116"}, ""},
		"a leading v: compatible":                                         {[]string{"v4.4.8"}, ""},
		"nothing known: unknown":                                          {nil, "No version of the cluster is known"},
		"only empty sources: unknown":                                     {[]string{"", ""}, "No version of the cluster is known"},
		"an older version in the first source: refused as too old":        {[]string{"4.4.7", "4.15.0"}, "found 4.4.7"},
		"an older version in a later source: compatible":                  {[]string{"4.15.0", "4.4.7"}, ""},
		"an empty source is passed over: compatible":                      {[]string{"", "4.4.8", "4.4.7"}, ""},
		"an unparsable first source: refused as malformed":                {[]string{"latest", "4.15.0"}, `found "latest"; correct`},
		"a blank: refused as malformed":                                   {[]string{" ", "4.15.0"}, `found " "`},
		"two components: refused as malformed":                            {[]string{"4.15"}, `found "4.15"`},
		"four components: refused as malformed":                           {[]string{"4.15.0.1"}, `found "4.15.0.1"`},
		"a negative number: refused as malformed":                         {[]string{"4.-4.8"}, `found "4.-4.8"`},
		"a number beyond all bounds: refused as malformed":                {[]string{"4.99999999999999999999.0"}, `found "4.99999999999999999999.0"`},
		"a new line cannot break the message: refused as malformed":       {[]string{"4.4.8\nforged"}, `found "4.4.8\nforged"`},
		"letters beyond ASCII: refused as malformed":                      {[]string{"４.15.0"}, `found "４.15.0"`},
		"a long unparsable version is cut: refused as malformed":          {[]string{strings.Repeat("x", 1<<16)}, `found "` + strings.Repeat("x", maxShownVersion) + `"; correct`},
		"a long pre-release of an old version is cut: refused as too old": {[]string{"4.4.7-" + strings.Repeat("x", 1<<16)}, "found 4.4.7-" + strings.Repeat("x", maxShownVersion-6) + "; upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			got := IncompatibilityReason(row.sources...)
			if (got == "") != (row.want == "") || !strings.Contains(got, row.want) || len(got) > maxVersionMessage {
				t.Errorf("expected a short message with %q, found %.300q", row.want, got)
			}
		})
	}
}

func FuzzIncompatibilityReason(f *testing.F) {
	for _, seed := range []string{"", "4.4.8", "4.4.8-rc.1", "v4.15.0+x", " ", "4.4", "x\x00\xff", "4.4.7-" + strings.Repeat("9", 100)} {
		f.Add(seed, "4.15.0")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		got := IncompatibilityReason(first, second)
		if len(got) > maxVersionMessage || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("expected a short line, found %.300q", got)
		}
		counts := first
		if first == "" {
			counts = second
		}
		parsed, err := version.ParseSemantic(counts)
		if good := err == nil && parsed.AtLeast(version.MustParseSemantic(minimumVersion)); good != (got == "") {
			t.Errorf("%q: expected good to be %v, found %q", counts, good, got)
		}
		if got != IncompatibilityReason(counts) {
			t.Errorf("%q: expected no other source to count, found %q", counts, got)
		}
	})
}
