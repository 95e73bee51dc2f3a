// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
)

// findNewestVersion returns the version of the first section of the changelog that has a version, or "" if no section
// has a version.
func findNewestVersion(changelog []byte) string {
	found := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+\S*)`).FindSubmatch(changelog)
	if found == nil {
		return ""
	}
	return "v" + string(found[1])
}

// extractNotes returns the section of a version in the changelog. Relative links are replaced with links to the
// files of this version, because a release page has no files next to it.
func extractNotes(changelog []byte, tag string, needsDate bool) ([]byte, error) {
	number, hasPrefix := strings.CutPrefix(tag, "v")
	if _, err := version.ParseSemantic(number); err != nil || !hasPrefix {
		return nil, fmt.Errorf("expected a version such as v1.0.0, found %q", tag)
	}
	_, after, isFound := strings.Cut("\n"+string(changelog), "\n## "+number+" - ")
	if !isFound {
		return nil, fmt.Errorf("CHANGELOG.md: expected a section ## %s - DATE, found none", number)
	}
	date, section, _ := strings.Cut(after, "\n")
	if needsDate && !regexp.MustCompile(`^\d{4}-\d\d-\d\d$`).MatchString(date) {
		return nil, fmt.Errorf("CHANGELOG.md: expected the date of the release in the section %s, found %q", number, date)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	base := releaseimage.Source + "/blob/" + tag + "/"
	relative := regexp.MustCompile(`\]\(([^():#]+(?:#[^()]*)?)\)`)
	return []byte(strings.TrimSpace(relative.ReplaceAllString(section, "]("+base+"$1)")) + "\n"), nil
}
