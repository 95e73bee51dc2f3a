// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// maxNote is the API's limit for the note of an event.
const maxNote = 1024

// Event is something that happened to an object, declared as a value by its feature.
type Event struct {
	// Warning tells trouble from progress.
	Warning bool
	// Reason is a CamelCase word; Action what was done, in the same style.
	Reason, Action string
	// Note is for people.
	Note string
}

func emit(r events.EventRecorder, obj runtime.Object, list []Event) {
	for _, e := range list {
		kind := corev1.EventTypeNormal
		if e.Warning {
			kind = corev1.EventTypeWarning
		}
		r.Eventf(obj, nil, kind, e.Reason, e.Action, "%s", cut(e.Note, maxNote))
	}
}

// cut shortens a text to so many bytes without leaving half a letter.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
