// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/torpor-dev/torpor/internal/decision"
)

// maxNote is the API's limit for the note of an event.
const maxNote = 1024

// EmitEvents emits events about an object.
func EmitEvents(r events.EventRecorder, obj runtime.Object, list []decision.Event) {
	for _, e := range list {
		eventType := corev1.EventTypeNormal
		if e.Warning {
			eventType = corev1.EventTypeWarning
		}
		r.Eventf(obj, nil, eventType, e.Reason, e.Action, "%s", truncate(e.Note, maxNote))
	}
}

// logEvents logs one line for each event: a stop, a start or a problem, with the requester in the text. The logger has the kind and the name.
func logEvents(logger logr.Logger, list []decision.Event) {
	for _, e := range list {
		logger.Info(truncate(e.Note, maxNote), "reason", e.Reason, "warning", e.Warning)
	}
}

// truncate shortens a text to a number of bytes without splitting a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
