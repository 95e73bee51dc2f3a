// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// MaxRevision is the last revision of an app. At one restart per second it lasts for thirty years.
const MaxRevision = 999_999_999

const (
	// maxGUID leaves room for the revision in a name of 52 characters, which is what a StatefulSet may have.
	maxGUID = 39
	// guidDigits, revisionDigits and processDigits are hexadecimal digits; no two of the first million revisions share twelve.
	guidDigits     = 8
	revisionDigits = 12
	processDigits  = 32
)

// ParseRevision reads a revision as it is written: digits without anything before them.
func ParseRevision(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n <= MaxRevision && FormatRevision(n) == text
}

// FormatRevision writes a revision as annotations, labels and versions have it.
func FormatRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// Name is the name of the LRP of a process in a revision, and of its StatefulSet: at most 52 characters without a dot.
// A name of a process that is no GUID is cut and told apart by a hash of its own.
func Name(processGUID string, revision int64) string {
	name := processGUID
	if len(name) > maxGUID || strings.Contains(name, ".") {
		name = strings.ReplaceAll(name[:min(len(name), maxGUID-guidDigits-1)], ".", "-") + "-" + digits(processGUID, guidDigits)
	}
	return name + "-" + digits(FormatRevision(revision), revisionDigits)
}

// ProcessName is the name of the CFProcess of a type that is made for an app: a GUID that follows from both.
func ProcessName(appGUID, processType string) string {
	d := digits(appGUID+"/"+processType, processDigits)
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

func digits(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:n]
}

// Highest is the highest revision that was ever acted on, as far as the app's status, its annotation and the versions of
// its LRPs tell. It is what status.observedRevision has to be.
func Highest(app *korifiv1alpha1.CFApp, versions []string) int64 {
	highest := app.Status.ObservedRevision
	for _, text := range append([]string{app.Annotations[korifiv1alpha1.RevisionAnnotation]}, versions...) {
		if n, ok := ParseRevision(text); ok {
			highest = max(highest, n)
		}
	}
	return highest
}

// RevisionOf is the revision of an app and the one that its last stop began, and why they cannot be read; empty when they can.
func RevisionOf(app *korifiv1alpha1.CFApp) (revision, lastStop int64, unreadable string) {
	text, ok := app.Annotations[korifiv1alpha1.RevisionAnnotation]
	if !ok && app.Status.ObservedRevision == 0 {
		text = korifiv1alpha1.FirstRevision
	}
	revision, ok = ParseRevision(text)
	switch {
	case !ok:
		return 0, 0, "expected a number in the annotation " + korifiv1alpha1.RevisionAnnotation + ", found " + strconv.Quote(text)
	case revision < app.Status.ObservedRevision:
		return 0, 0, "expected at least " + FormatRevision(app.Status.ObservedRevision) + " in the annotation " +
			korifiv1alpha1.RevisionAnnotation + ", because that was acted on; found " + text
	}
	if lastStop, ok = ParseRevision(app.Annotations[korifiv1alpha1.LastStopRevisionAnnotation]); !ok || lastStop > revision {
		lastStop = revision
	}
	return revision, lastStop, ""
}
