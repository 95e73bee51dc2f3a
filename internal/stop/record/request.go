// SPDX-License-Identifier: Apache-2.0

// Package record keeps the record of the stops of an object: the requester, time, reason and end of each, and the user
// who started the object again. Each kind that can be stopped has its own switch; the record is the same for all kinds.
package record

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// UnknownRequester is the requester if admission recorded none. The field manager is not a substitute, because
// clients choose its name freely.
const UnknownRequester = "unknown"

const (
	// maxReason is the number of bytes to which a reason is truncated, because a record has up to ten reasons.
	maxReason = 512
	// noteSeparator separates the value of an annotation from the author of the value in the note that admission
	// writes.
	noteSeparator = " by "
	// maxUntil limits the length of the text of an end. Valid times and sensible durations are shorter.
	maxUntil = 64
)

// Request is the stop or start that an object requests.
type Request struct {
	// IsStopped is the state of the switch.
	IsStopped bool
	// By is the requester that admission recorded, and Version the resource version of the object before the
	// request; both are empty if nothing was recorded.
	By, Version string
	// FieldManager is the field manager that set the switch, and At is the time at which it did; empty and zero if not
	// recorded.
	FieldManager string
	At           time.Time
	// Reason and Until are the values of the annotations.
	Reason, Until string
	// UntilBy is the author of Until as admission recorded it; empty if not recorded.
	UntilBy string
	// UntilWrittenAt is when Until was written; zero if not recorded.
	UntilWrittenAt time.Time
}

// requester returns the user whom admission recorded, if it recorded a version other than lastVersion, and otherwise
// an unknown requester.
func (r Request) requester(lastVersion string) string {
	switch {
	case r.By != "" && r.Version != "" && r.Version != lastVersion:
		return r.By
	case r.FieldManager != "":
		return UnknownRequester + " (field manager " + r.FieldManager + ")"
	default:
		return UnknownRequester
	}
}

// ParseUntil returns the end of a stop from the text of its annotation and the time at which this text was written.
func ParseUntil(text string, writtenAt time.Time) (time.Time, error) {
	if len(text) <= maxUntil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at, nil
		}
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return writtenAt.Add(d), nil
		}
	}
	return time.Time{}, fmt.Errorf("expected a time such as 2026-11-20T22:00:00Z or a duration such as 8h, found %.40q", text)
}

// ReadAuthor returns the user who wrote an annotation that holds a time, as recorded in the note of admission. It
// returns an empty string if the note is missing, or is about another value.
func ReadAuthor(annotations map[string]string, name string) string {
	text := annotations[name]
	by, isAboutThis := strings.CutPrefix(annotations[name+torporv1alpha1.NotedSuffix], text+noteSeparator)
	if text == "" || !isAboutThis {
		return ""
	}
	return by
}

// NextAuthorNote returns the note about an annotation that holds a time, when a request of the user replaces the
// annotations in before. It is empty if the annotation gets no note: it was removed, is longer than maxUntil, or did
// not change and had no note.
func NextAuthorNote(before, annotations map[string]string, name, user string) string {
	text, isThere := annotations[name]
	old, wasThere := before[name]
	switch {
	case !isThere || utf8.RuneCountInString(text) > maxUntil: // The policies count characters.
		return ""
	case wasThere && text == old:
		return before[name+torporv1alpha1.NotedSuffix]
	default:
		return text + noteSeparator + user
	}
}

// truncate shortens a text without splitting a character.
func truncate(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return strings.TrimSpace(text[:size]) + "…"
}
