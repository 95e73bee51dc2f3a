// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// maxNote is the API's limit for the note of an event.
const maxNote = 1024

// EmitEvents tells of what has happened to an object.
func EmitEvents(r events.EventRecorder, obj runtime.Object, list []decision.Event) {
	for _, e := range list {
		eventType := corev1.EventTypeNormal
		if e.Warning {
			eventType = corev1.EventTypeWarning
		}
		r.Eventf(obj, nil, eventType, e.Reason, e.Action, "%s", truncate(e.Note, maxNote))
	}
}

// lostFieldsEvents is the event about fields that were found to be lost, once for each field and process.
func lostFieldsEvents(lost []string) []decision.Event {
	if len(lost) == 0 {
		return nil
	}
	return []decision.Event{{Warning: true, Reason: torporv1alpha1.SchemaLacksFieldReason, Action: "SaveStatus", Note: describeLostFields(lost)}}
}

// truncate shortens a text to so many bytes without leaving half a letter.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
