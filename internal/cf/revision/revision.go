// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"strconv"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// MaxRevision is the last possible revision of an app. With one restart per second, it is reached after thirty
	// years.
	MaxRevision = 999_999_999
	// UnknownRevision is the revision of an LRP or a Pod whose version is not a revision. It is older than all other
	// revisions.
	UnknownRevision = -1
)

// ParseRevision parses a revision in the format of FormatRevision: digits without a sign, spaces or leading zeros.
func ParseRevision(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n <= MaxRevision && FormatRevision(n) == text
}

// FormatRevision formats a revision for annotations, labels and versions.
func FormatRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// ParseVersion returns the revision in the version of an LRP or a Pod. It returns UnknownRevision if the version is not
// a revision.
func ParseVersion(version string) int64 {
	if n, ok := ParseRevision(version); ok {
		return n
	}
	return UnknownRevision
}

// HighestRevision returns the highest revision in an app's status, its annotation and the versions of its LRPs. The
// controller of apps writes it to status.observedRevision.
func HighestRevision(app *korifiv1alpha1.CFApp, versions []string) int64 {
	highest := app.Status.ObservedRevision
	for _, text := range append([]string{app.Annotations[korifiv1alpha1.RevisionAnnotation]}, versions...) {
		highest = max(highest, ParseVersion(text))
	}
	return highest
}

// ReadRevision returns the revision of an app and the newest revision that no deployment began. If the first is
// unreadable or was lowered, problem describes this.
func ReadRevision(app *korifiv1alpha1.CFApp) (revision, lastStop int64, problem string) {
	text, ok := app.Annotations[korifiv1alpha1.RevisionAnnotation]
	if !ok && app.Status.ObservedRevision == 0 {
		text = korifiv1alpha1.FirstRevision
	}
	revision, ok = ParseRevision(text)
	switch {
	case !ok:
		return 0, 0, "expected a number in the annotation " + korifiv1alpha1.RevisionAnnotation + ", found " + strconv.Quote(text)
	case revision < app.Status.ObservedRevision:
		// An annotation that was lowered by bypassing admission must not restore a revision whose LRPs were deleted.
		return 0, 0, "expected at least " + FormatRevision(app.Status.ObservedRevision) + " in the annotation " +
			korifiv1alpha1.RevisionAnnotation + ", because that revision was already observed; found " + text
	}
	if lastStop, ok = ParseRevision(app.Annotations[korifiv1alpha1.LastStopRevisionAnnotation]); !ok || lastStop > revision {
		lastStop = revision
	}
	return revision, lastStop, ""
}

// BegunAt returns the time at which the app's revision began, as recorded by admission. Without a record, it returns
// the creation time of the app.
func BegunAt(app *korifiv1alpha1.CFApp) time.Time {
	if at, err := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.RevisedAtAnnotation]); err == nil {
		return at
	}
	return app.CreationTimestamp.Time
}
