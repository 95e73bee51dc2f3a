// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"cmp"
	"fmt"
)

// Version is a version of MySQL. Suffixes such as -log and those of distributions do not count.
type Version struct{ Major, Minor, Patch int }

// ParseVersion parses the variable version of a server, such as 8.0.36-28. It returns the zero version for an
// unknown format.
func ParseVersion(text string) Version {
	var v Version
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); err != nil {
		return Version{}
	}
	return v
}

func (v Version) isOlderThan(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch)) < 0
}

// versionedText is an SQL text that servers accept since a version. With removed, it is also the first version that
// refuses the text.
type versionedText struct {
	since, removed Version
	text           string
}

// purpose identifies a statement whose text depends on the version.
type purpose int

const (
	// discardLogs removes all binary logs and the set of executed transactions.
	discardLogs purpose = iota
	// the following statements have one text in all supported versions. They define what the oldest one is.
	changeSource
	stopReplica
	reloadCertificate
	revokePartly
	annotateAccount
	semiSyncPlugin
)

// listVersionedTexts returns the table of all statements that some version of MySQL 8.0, 8.4 or 9 does not accept,
// newest text first. https://dev.mysql.com/doc/refman/8.4/en/added-deprecated-removed.html
func listVersionedTexts() map[purpose][]versionedText {
	return map[purpose][]versionedText{
		discardLogs: {
			{since: Version{8, 2, 0}, text: "reset binary logs and gtids"},
			{since: Version{5, 0, 0}, removed: Version{8, 4, 0}, text: "reset master"},
		},
		changeSource:      {{since: Version{8, 0, 23}, text: "change replication source to"}},
		stopReplica:       {{since: Version{8, 0, 22}, text: "stop replica"}},
		reloadCertificate: {{since: Version{8, 0, 16}, text: "alter instance reload tls"}},
		revokePartly:      {{since: Version{8, 0, 30}, text: "revoke if exists"}},
		annotateAccount:   {{since: Version{8, 0, 21}, text: "alter user attribute"}},
		semiSyncPlugin:    {{since: Version{8, 0, 26}, text: "semisync_source.so"}},
	}
}

// OldestVersion returns the oldest version that accepts a text for each purpose.
func OldestVersion() Version {
	var oldest Version
	for _, texts := range listVersionedTexts() {
		if since := texts[len(texts)-1].since; oldest.isOlderThan(since) {
			oldest = since
		}
	}
	return oldest
}

// textFor returns the newest text that a version accepts. An unknown version gets the newest text.
func textFor(p purpose, v Version) string {
	texts := listVersionedTexts()[p]
	for _, t := range texts {
		if !v.isOlderThan(t.since) {
			return t.text
		}
	}
	return texts[0].text
}

// DiscardLogsStatement returns the statement that removes all binary logs and the set of executed transactions, for
// a server with the value of its variable version.
func DiscardLogsStatement(version string) string { return textFor(discardLogs, ParseVersion(version)) }
