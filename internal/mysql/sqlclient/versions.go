// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"cmp"
	"fmt"
)

// serverVersion is a version of MySQL. Suffixes such as -log and those of distributions are ignored.
type serverVersion struct{ major, minor, patch int }

// parseVersion parses the value of the server variable `version`, such as 8.0.36-28. It returns false for an unknown
// format.
func parseVersion(text string) (serverVersion, bool) {
	var v serverVersion
	_, err := fmt.Sscanf(text, "%d.%d.%d", &v.major, &v.minor, &v.patch)
	return v, err == nil
}

func (v serverVersion) isOlderThan(other serverVersion) bool {
	return cmp.Or(cmp.Compare(v.major, other.major), cmp.Compare(v.minor, other.minor), cmp.Compare(v.patch, other.patch)) < 0
}

// DiscardLogsStatement returns the statement that removes all binary logs and the set of executed transactions. version
// is the value of the server variable `version`. All other statements are the same for every version: MySQL 8.0.30, 8.4
// and 9 accept them. https://dev.mysql.com/doc/refman/8.4/en/added-deprecated-removed.html
func DiscardLogsStatement(version string) string {
	if v, isKnown := parseVersion(version); isKnown && v.isOlderThan(serverVersion{8, 2, 0}) {
		return "reset master" // MySQL 8.4 removed this statement.
	}
	return "reset binary logs and gtids"
}
