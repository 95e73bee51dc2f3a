// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// maxNote is the API's limit for the note of an event.
	maxNote = 1024
	// maxLoggedValue limits each user-supplied value of a log line, in bytes.
	maxLoggedValue = 256
)

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

// logEvents logs one line for each event. The logger adds the kind and the name of the object.
func logEvents(logger logr.Logger, list []decision.Event, asked decision.Request) {
	for _, e := range list {
		logger.Info(truncate(e.Note, maxNote), append([]any{"event", e.Reason, "warning", e.Warning}, listRequest(asked)...)...)
	}
}

// LogChanges logs one line for each requested stop and start. The logger adds the kind and the name of the object.
func LogChanges(logger logr.Logger, list []decision.Change) {
	for _, c := range list {
		logger.Info(c.What, append(listValues("part", c.Part), listRequest(c.Request)...)...)
	}
}

func listRequest(asked decision.Request) []any {
	return listValues("requester", asked.Requester, "reason", asked.Reason, "until", asked.Until)
}

// listValues returns the pairs of a key and a value whose value is not empty. Users supply the values, so long values
// are truncated.
func listValues(keysAndValues ...string) (pairs []any) {
	for pair := range slices.Chunk(keysAndValues, 2) {
		if pair[1] != "" {
			pairs = append(pairs, pair[0], truncate(pair[1], maxLoggedValue))
		}
	}
	return pairs
}

// truncate shortens a text to a number of bytes without splitting a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
