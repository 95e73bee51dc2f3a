// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxGUID leaves room for the revision in a name of 52 characters, the limit of a StatefulSet: its controller adds a
	// hash to the name and uses the result as the value of a label.
	maxGUID = 39
	// guidDigits, revisionDigits and processDigits are hexadecimal digits; no two of the first million revisions share twelve.
	guidDigits     = 8
	revisionDigits = 12
	processDigits  = 32
)

// LRPName returns the name of the LRP of a process in a revision, and of its StatefulSet: at most 52 characters without a
// dot. The name of a process that is no GUID is shortened, and a hash keeps it unique.
func LRPName(processGUID string, revision int64) string {
	name := processGUID
	if len(name) > maxGUID || strings.Contains(name, ".") {
		name = strings.ReplaceAll(name[:min(len(name), maxGUID-guidDigits-1)], ".", "-") + "-" + hashDigits(processGUID, guidDigits)
	}
	return name + "-" + hashDigits(FormatRevision(revision), revisionDigits)
}

// StatefulSetName returns the name of the StatefulSet of an LRP: the LRP's own where that is short enough, as the results of
// LRPName are, and else one that is derived from it.
func StatefulSetName(lrp string) string {
	if len(lrp) <= maxGUID+1+revisionDigits && !strings.Contains(lrp, ".") {
		return lrp
	}
	return strings.ReplaceAll(lrp[:min(len(lrp), maxGUID)], ".", "-") + "-" + hashDigits(lrp, revisionDigits)
}

// SettingsName returns the name of the Secret with the settings of a process. It follows from what is in it, so that revisions
// with the same settings share one.
func SettingsName(processGUID string, content []byte) string {
	return processGUID + "-" + hashDigits(string(content), processDigits)
}

// ProcessName returns the name of the CFProcess that is made for an app and a process type: a GUID that follows from both,
// so that two writers cannot make two.
func ProcessName(appGUID, processType string) string {
	d := hashDigits(appGUID+"/"+processType, processDigits)
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

func hashDigits(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:n]
}
