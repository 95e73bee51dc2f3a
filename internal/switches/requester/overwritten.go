// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"slices"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// managerPrefix is the prefix of the manager's field managers.
const managerPrefix = "torpor-"

// NextOfSlumber returns the annotations of a Slumber. They record the user who created it or last changed its
// effect.
func NextOfSlumber(r Request, isChanged bool) map[string]string {
	next := r.copySent()
	if isChanged {
		next[torporv1alpha1.RequestedByAnnotation] = r.User
	} else {
		r.restore(next, torporv1alpha1.RequestedByAnnotation)
	}
	return next
}

// WithRecordKept returns the request as it is understood for an object whose annotations contain the record of its
// stops. A client other than the manager that changes the record replaces all annotations at once, as kubectl rollout
// undo does with those of an old ReplicaSet. It changes nothing about stops.
func (r Request) WithRecordKept() Request {
	if r.overwritesRecord() {
		r.Sent = r.withRecordRestored()
	}
	return r
}

func isOfSlumber(name string) bool {
	return strings.HasPrefix(name, torporv1alpha1.SlumberAnnotationPrefix)
}

// isTorporAnnotation reports whether an annotation belongs to Torpor.
func isTorporAnnotation(name string) bool {
	return strings.HasPrefix(name, torporv1alpha1.GroupVersion().Group+"/") || isOfSlumber(name)
}

// overwritesRecord reports whether another client than the manager changes Torpor's record, as kubectl
// rollout undo does, which replaces all annotations with those of an old ReplicaSet. The manager is recognized
// by the names of its field managers. A change of the record by another client is not a request.
func (r Request) overwritesRecord() bool {
	if strings.HasPrefix(r.FieldManager, managerPrefix) {
		return false
	}
	var changed []string
	for name := range r.Before {
		if isTorporAnnotation(name) && !r.keeps(name) {
			changed = append(changed, name)
		}
	}
	return slices.Contains(changed, torporv1alpha1.StopsAnnotation) ||
		slices.Contains(changed, torporv1alpha1.RestoreAnnotation) && slices.ContainsFunc(changed, isOfSlumber)
}

// withRecordRestored returns the annotations that are sent, with those of Torpor as they were before.
func (r Request) withRecordRestored() map[string]string {
	next := map[string]string{}
	for name, value := range r.Sent {
		if !isTorporAnnotation(name) {
			next[name] = value
		}
	}
	for name, value := range r.Before {
		if isTorporAnnotation(name) {
			next[name] = value
		}
	}
	return next
}
