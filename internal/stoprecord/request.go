// SPDX-License-Identifier: Apache-2.0

// Package stoprecord keeps the record of the stops of an object: who asked for each, when, why and until when, and who started it
// again. Every kind that can be stopped has a switch of its own; what the record makes of it is the same for all.
package stoprecord

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// UnknownRequester is who asked where no admission noted it: programs choose the names of their field managers freely.
const UnknownRequester = "unknown"

const (
	// maxReason is how much of a reason is kept, in bytes: the record has ten of them.
	maxReason = 512
	// noteSeparator is between what was written and who did.
	noteSeparator = " by "
	// maxUntil is longer than any time and any sensible duration.
	maxUntil = 64
)

// Request is what an object asks for.
type Request struct {
	// IsStopped is what the switch says.
	IsStopped bool
	// By is who set the switch, as admission noted it with the version of the object before; empty if it did not.
	By, Version string
	// FieldManager is the program that set the switch, and At when; empty and zero if nobody noted it.
	FieldManager string
	At           time.Time
	// Reason and Until are the annotations.
	Reason, Until string
	// UntilBy is who wrote that of Until, as admission noted it; empty if it did not.
	UntilBy string
	// UntilWrittenAt is when that of Until was written; zero if nobody noted it.
	UntilWrittenAt time.Time
}

// requester returns who set the switch, if that was noted since the version of the last change.
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

// ParseUntil returns when a stop ends by itself whose annotation was written at a time.
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

// ReadAuthor returns who wrote a time into an annotation, from the note of admission; empty if there is none about what the annotation says now.
func ReadAuthor(annotations map[string]string, name string) string {
	text := annotations[name]
	by, isAboutThis := strings.CutPrefix(annotations[name+torporv1alpha1.NotedSuffix], text+noteSeparator)
	if text == "" || !isAboutThis {
		return ""
	}
	return by
}

// NextAuthorNote is the note about an annotation with a time, of a request in which a user makes annotations of those of before; empty if there
// is to be none. Texts that are longer than any time are not noted.
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

// truncate cuts a text so that no character is broken.
func truncate(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return strings.TrimSpace(text[:size]) + "…"
}
