// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/version"
)

// maxVersionMessage is the length of the fixed text plus the quoted part of the version that is shown.
const maxVersionMessage = 200 + 10*maxShownVersion

func TestIncompatibilityReason(t *testing.T) {
	for name, row := range map[string]struct {
		sources []string
		// want is a part of the message; empty if the version is compatible.
		want string
	}{
		"minimum version is compatible":                                          {[]string{"4.4.8"}, ""},
		"patch below the minimum is refused as too old":                          {[]string{"4.4.7"}, "found 4.4.7; upgrade"},
		"patch above the minimum is compatible":                                  {[]string{"4.4.9"}, ""},
		"minor version of two digits is compatible":                              {[]string{"4.10.0"}, ""},
		"old minor version is refused as too old":                                {[]string{"4.3.99"}, "found 4.3.99"},
		"old major version is refused as too old":                                {[]string{"3.11.524"}, "found 3.11.524"},
		"new major version is compatible":                                        {[]string{"5.0.0"}, ""},
		"pre-release of the minimum is refused as too old":                       {[]string{"4.4.8-rc.1"}, "found 4.4.8-rc.1"},
		"pre-release of the patch after the minimum is compatible":               {[]string{"4.4.9-rc.1"}, ""},
		"build of the minimum is compatible":                                     {[]string{"4.4.8+build.7"}, ""},
		"nightly release is compatible":                                          {[]string{"4.15.0-0.nightly-2024-01-05-061046"}, ""},
		"OKD release is compatible":                                              {[]string{"4.15.0-0.okd-2024-03-10-010116"}, ""},
		"leading v is compatible":                                                {[]string{"v4.4.8"}, ""},
		"missing sources are reported as an unknown version":                     {nil, "No version of the cluster is known"},
		"empty sources are reported as an unknown version":                       {[]string{"", ""}, "No version of the cluster is known"},
		"version below the minimum in the first source is refused as too old":    {[]string{"4.4.7", "4.15.0"}, "found 4.4.7"},
		"version below the minimum in a later source is compatible":              {[]string{"4.15.0", "4.4.7"}, ""},
		"empty first source is skipped":                                          {[]string{"", "4.4.8", "4.4.7"}, ""},
		"malformed first source is refused":                                      {[]string{"latest", "4.15.0"}, `found "latest"; correct`},
		"version of one blank is refused as malformed":                           {[]string{" ", "4.15.0"}, `found " "`},
		"version of two components is refused as malformed":                      {[]string{"4.15"}, `found "4.15"`},
		"version of four components is refused as malformed":                     {[]string{"4.15.0.1"}, `found "4.15.0.1"`},
		"negative number is refused as malformed":                                {[]string{"4.-4.8"}, `found "4.-4.8"`},
		"very large number is refused as malformed":                              {[]string{"4.99999999999999999999.0"}, `found "4.99999999999999999999.0"`},
		"line break is refused as malformed and quoted":                          {[]string{"4.4.8\nforged"}, `found "4.4.8\nforged"`},
		"letters beyond ASCII are refused as malformed":                          {[]string{"４.15.0"}, `found "４.15.0"`},
		"long malformed version is refused, and is shortened":                    {[]string{strings.Repeat("x", 1<<16)}, `found "` + strings.Repeat("x", maxShownVersion) + `"; correct`},
		"long pre-release of an old version is refused as too old and shortened": {[]string{"4.4.7-" + strings.Repeat("x", 1<<16)}, "found 4.4.7-" + strings.Repeat("x", maxShownVersion-6) + "; upgrade"},
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
