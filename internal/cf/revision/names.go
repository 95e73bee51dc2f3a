// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxGUID leaves room for the revision in a name of 52 characters, which is the limit for the name of a
	// StatefulSet. The StatefulSet's controller adds a hash to the name and uses the result as a label value.
	maxGUID = 39
	// guidDigits, revisionDigits and processDigits are numbers of hexadecimal digits of hashes. With twelve digits, the
	// hashes of the first million revisions all differ.
	guidDigits     = 8
	revisionDigits = 12
	processDigits  = 32
	// maxLabel is the maximum length of a label value in Kubernetes.
	maxLabel = 63
)

// LRPName returns the name of the LRP of a process in a revision, which is also the name of its StatefulSet. It has at
// most 52 characters and no dot. A process name that is longer than maxGUID or has a dot is shortened, and a hash keeps
// it unique.
func LRPName(processGUID string, revision int64) string {
	name := processGUID
	if len(name) > maxGUID || strings.Contains(name, ".") {
		name = strings.ReplaceAll(name[:min(len(name), maxGUID-guidDigits-1)], ".", "-") + "-" + hashDigits(processGUID, guidDigits)
	}
	return name + "-" + hashDigits(FormatRevision(revision), revisionDigits)
}

// StatefulSetName returns the name of an LRP's StatefulSet. This is the LRP's own name if it has at most 52 characters
// and no dot, as the results of LRPName. Otherwise it is a shortened name with a hash.
func StatefulSetName(lrp string) string {
	if len(lrp) <= maxGUID+1+revisionDigits && !strings.Contains(lrp, ".") {
		return lrp
	}
	return strings.ReplaceAll(lrp[:min(len(lrp), maxGUID)], ".", "-") + "-" + hashDigits(lrp, revisionDigits)
}

// SettingsName returns the name of the Secret with the settings of a process. The name is derived from the content, so
// revisions with the same settings share a Secret.
func SettingsName(processGUID string, content []byte) string {
	return processGUID + "-" + hashDigits(string(content), processDigits)
}

// ProcessName returns the name of the CFProcess for an app and a process type. It is a GUID derived from both, so
// concurrent creations of the same process conflict.
func ProcessName(appGUID, processType string) string {
	d := hashDigits(appGUID+"/"+processType, processDigits)
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// AppNameLabel returns the name of an app in the form of a label value. It returns "" if no part of the name is valid.
func AppNameLabel(name string) string {
	const separators = "-_."
	allowed := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(separators, r) {
			return r
		}
		return '-'
	}
	value := strings.Trim(strings.Map(allowed, name), separators)
	return strings.TrimRight(value[:min(len(value), maxLabel)], separators)
}

func hashDigits(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:n]
}
