// SPDX-License-Identifier: Apache-2.0

// Package requester decides what is recorded about a request that stops or starts something: the requester, and
// the version of the object that is changed. It implements the policies of config/record, which are in CEL,
// annotation by annotation, for API servers that do not serve them (ADR 0038).
package requester

import (
	"maps"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// versionOfNew is recorded if the object is new.
const versionOfNew = "new"

// Request is a request to the API server.
type Request struct {
	// User is the requester, and FieldManager the client program, if it is named.
	User, FieldManager string
	// Version is the resource version of the old object; empty if the object is new.
	Version string
	// Before are the annotations of the old object, and Sent those of the new one.
	Before, Sent map[string]string
}

// SwitchChange is the effect of a request on one switch.
type SwitchChange struct {
	Of                    stoprecord.AnnotationSwitch
	WasStopped, IsStopped bool
}

func (c SwitchChange) isChanged() bool { return c.WasStopped != c.IsStopped }

// NextAnnotations returns the annotations with which the request proceeds: with the new notes, and without
// those that end with a stop.
func (r Request) NextAnnotations(changes ...SwitchChange) map[string]string {
	next := r.copySent()
	for _, c := range changes {
		if !c.isChanged() {
			r.restore(next, c.Of.RequestedBy)
			r.restore(next, c.Of.RequestVersion)
			continue
		}
		next[c.Of.RequestedBy], next[c.Of.RequestVersion] = r.User, r.Version
		if r.Version == "" {
			next[c.Of.RequestVersion] = versionOfNew
		}
	}
	for _, name := range r.listLeftovers(changes) {
		delete(next, name)
	}
	r.noteAuthor(next, torporv1alpha1.SkipUntilAnnotation)
	r.noteAuthor(next, torporv1alpha1.UntilAnnotation)
	for _, c := range changes {
		r.noteAuthor(next, c.Of.Until)
	}
	return next
}

func (r Request) copySent() map[string]string {
	next := map[string]string{}
	maps.Copy(next, r.Sent)
	return next
}

// restore resets an annotation to its old value.
func (r Request) restore(next map[string]string, name string) {
	if value, wasThere := r.Before[name]; wasThere {
		next[name] = value
	} else {
		delete(next, name)
	}
}

// listLeftovers returns the annotations of stops that the request ends, unless the request sets them again.
func (r Request) listLeftovers(changes []SwitchChange) (left []string) {
	var names []string
	wereStopped, areStopped := false, false
	for _, c := range changes {
		wereStopped, areStopped = wereStopped || c.WasStopped, areStopped || c.IsStopped
		if c.WasStopped && !c.IsStopped {
			names = append(names, c.Of.Until, c.Of.Reason)
		}
	}
	if wereStopped && !areStopped {
		names = append(names, torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation)
	}
	for _, name := range names {
		if r.keeps(name) {
			left = append(left, name)
		}
	}
	return left
}

// keeps reports whether the request leaves an annotation unchanged.
func (r Request) keeps(name string) bool {
	sent, isSent := r.Sent[name]
	before, wasThere := r.Before[name]
	return isSent && wasThere && sent == before
}

// noteAuthor records the author of an annotation with a time, and the annotation's text.
func (r Request) noteAuthor(next map[string]string, name string) {
	if note := stoprecord.NextAuthorNote(r.Before, next, name, r.User); note != "" {
		next[name+torporv1alpha1.NotedSuffix] = note
	} else {
		delete(next, name+torporv1alpha1.NotedSuffix)
	}
}
