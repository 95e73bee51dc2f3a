// SPDX-License-Identifier: Apache-2.0

// Package requester decides what is recorded about a request that stops or starts an object: the requester, and the
// version of the object that is changed. It writes the same annotations as the policies of config/record, which are
// in CEL, for API servers that do not support these policies (ADR 0038).
package requester

import (
	"maps"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// versionOfNew is recorded instead of the version if the object is new.
const versionOfNew = "new"

// Request is an admitted request that creates or updates an object.
type Request struct {
	// User is the requester, and FieldManager the field manager; empty if the request has none.
	User, FieldManager string
	// Version is the resource version of the old object; empty if the object is new.
	Version string
	// Before are the annotations of the old object, and Sent those of the new one.
	Before, Sent map[string]string
}

// SwitchChange is the state of one switch before and after a request.
type SwitchChange struct {
	Of                    stoprecord.AnnotationSwitch
	WasStopped, IsStopped bool
}

func (c SwitchChange) isChanged() bool { return c.WasStopped != c.IsStopped }

// NextAnnotations returns the annotations of the admitted object: those of the request, with its requester, and
// without the reason and the end of a stop that the request ends.
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

// listLeftovers returns the annotations of the stops that the request ends, except those that the request sets.
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

// noteAuthor records who wrote an annotation that holds a time, together with the text of the annotation.
func (r Request) noteAuthor(next map[string]string, name string) {
	if note := stoprecord.NextAuthorNote(r.Before, next, name, r.User); note != "" {
		next[name+torporv1alpha1.NotedSuffix] = note
	} else {
		delete(next, name+torporv1alpha1.NotedSuffix)
	}
}
