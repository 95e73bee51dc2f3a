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

// UnknownRequester is the requester if admission recorded none. A field manager is no substitute, because programs
// choose its name freely.
const UnknownRequester = "unknown"

const (
	// maxReason is the number of bytes of a reason that is kept: a record has up to ten reasons.
	maxReason = 512
	// noteSeparator separates the text of a note from its author.
	noteSeparator = " by "
	// maxUntil limits the length of an end in characters. Valid times and sensible durations are shorter.
	maxUntil = 64
)

// Request is the stop or start that an object requests.
type Request struct {
	// IsStopped is the state of the switch.
	IsStopped bool
	// By is the requester that admission recorded, and Version the version of the object before the request;
	// empty if nothing was recorded.
	By, Version string
	// FieldManager is the program that set the switch, and At the time; empty and zero if not recorded.
	FieldManager string
	At           time.Time
	// Reason and Until are the values of the annotations.
	Reason, Until string
	// UntilBy is the author of Until as admission recorded it; empty if not recorded.
	UntilBy string
	// UntilWrittenAt is when Until was written; zero if not recorded.
	UntilWrittenAt time.Time
}

// requester returns the user who set the switch, if admission recorded the user after the last recorded version.
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

// ParseUntil returns the end of a stop from the text of its annotation and the time at which that was
// written.
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

// ReadAuthor returns the author of an annotation with a time, from the note of admission; empty if there is
// no note about the present text.
func ReadAuthor(annotations map[string]string, name string) string {
	text := annotations[name]
	by, isAboutThis := strings.CutPrefix(annotations[name+torporv1alpha1.NotedSuffix], text+noteSeparator)
	if text == "" || !isAboutThis {
		return ""
	}
	return by
}

// NextAuthorNote returns the note about an annotation with a time, after a request of a user that replaces
// the annotations of before. It is empty if the annotation gets no note. Texts that are longer than any time
// are not noted.
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

// truncate cuts a text without breaking a character.
func truncate(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return strings.TrimSpace(text[:size]) + "…"
}
