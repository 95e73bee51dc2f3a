// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Logs are what Log Cache answers.
type Logs struct {
	Envelopes Batch `json:"envelopes"`
}

// Batch is some envelopes.
type Batch struct {
	Batch []Envelope `json:"batch"`
}

// Envelope is a line of a log. Its time is in nanoseconds, as text.
type Envelope struct {
	Timestamp      string            `json:"timestamp"`
	SourceID       string            `json:"source_id"`
	InstanceID     string            `json:"instance_id"`
	DeprecatedTags map[string]string `json:"deprecated_tags"`
	Tags           map[string]string `json:"tags"`
	Log            LogLine           `json:"log"`
}

// LogLine is the text, which JSON carries in base64.
type LogLine struct {
	Payload []byte `json:"payload"`
	Type    string `json:"type"`
}

// Line is one line of an instance's log. Kubernetes keeps one log for both outputs.
type Line struct {
	At                             int64
	Instance, ProcessType, Payload string
}

// Window is which lines are wanted: from one time until before another, the first ones, or with Descending the last ones.
type Window struct {
	From, Until int64
	Limit       int
	Descending  bool
}

// LogsOf are the lines in a window.
func LogsOf(app string, lines []Line, w Window) Logs {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.At < w.From || l.At >= w.Until })
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	if w.Descending {
		slices.Reverse(lines)
	}
	lines = lines[:min(w.Limit, len(lines))]
	logs := Logs{Envelopes: Batch{Batch: make([]Envelope, 0, len(lines))}}
	for _, l := range lines {
		logs.Envelopes.Batch = append(logs.Envelopes.Batch, Envelope{
			Timestamp: strconv.FormatInt(l.At, 10), SourceID: app, InstanceID: l.Instance, DeprecatedTags: map[string]string{},
			Tags: map[string]string{"source_type": "APP/PROC/" + strings.ToUpper(l.ProcessType), "instance_id": l.Instance, "process_type": l.ProcessType},
			Log:  LogLine{Payload: []byte(l.Payload), Type: "OUT"},
		})
	}
	return logs
}
