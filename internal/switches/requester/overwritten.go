// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"slices"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// managerPrefix is the prefix of the manager's field managers.
const managerPrefix = "torpor-"

// NextOfSlumber returns the annotations of a Slumber. They record the user who created it or last changed its spec.
func NextOfSlumber(r Request, isChanged bool) map[string]string {
	next := r.copySent()
	if isChanged {
		next[torporv1alpha1.RequestedByAnnotation] = r.User
	} else {
		r.restore(next, torporv1alpha1.RequestedByAnnotation)
	}
	return next
}

// WithRecordKept returns the request, with Torpor's annotations reset to their old values if a client other than the
// manager changes the record of stops in the annotations. Such a client is replacing all annotations, as kubectl
// rollout undo does with those of an old ReplicaSet.
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

// overwritesRecord reports whether a client other than the manager changes Torpor's record of stops. The manager is
// recognized by the names of its field managers.
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

// withRecordRestored returns the annotations of the new object, with Torpor's annotations as they were before.
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
