// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// LogCacheRead is the answer of Log Cache.
type LogCacheRead struct {
	Envelopes EnvelopeBatch `json:"envelopes"`
}

// EnvelopeBatch holds envelopes.
type EnvelopeBatch struct {
	Batch []LogEnvelope `json:"batch"`
}

// LogEnvelope is one line of a log. Its time is in nanoseconds, as text.
type LogEnvelope struct {
	Timestamp      string            `json:"timestamp"`
	SourceID       string            `json:"source_id"`
	InstanceID     string            `json:"instance_id"`
	DeprecatedTags map[string]string `json:"deprecated_tags"`
	Tags           map[string]string `json:"tags"`
	Log            EnvelopeLog       `json:"log"`
}

// EnvelopeLog is the text, which JSON carries in base64.
type EnvelopeLog struct {
	Payload []byte `json:"payload"`
	Type    string `json:"type"`
}

// LogWindow selects lines from one time until before another: the first ones, or with Descending the last ones.
type LogWindow struct {
	From, Until int64
	Limit       int
	Descending  bool
}

// ForLogs shows the lines in a window.
func ForLogs(app string, lines []repositories.LogLine, w LogWindow) LogCacheRead {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l repositories.LogLine) bool { return l.At < w.From || l.At >= w.Until })
	slices.SortStableFunc(lines, func(a, b repositories.LogLine) int { return cmp.Compare(a.At, b.At) })
	if w.Descending {
		slices.Reverse(lines)
	}
	lines = lines[:min(w.Limit, len(lines))]
	logs := LogCacheRead{Envelopes: EnvelopeBatch{Batch: make([]LogEnvelope, 0, len(lines))}}
	for _, l := range lines {
		logs.Envelopes.Batch = append(logs.Envelopes.Batch, LogEnvelope{
			Timestamp: strconv.FormatInt(l.At, 10), SourceID: app, InstanceID: l.Instance, DeprecatedTags: map[string]string{},
			Tags: map[string]string{"source_type": "APP/PROC/" + strings.ToUpper(l.ProcessType), "instance_id": l.Instance, "process_type": l.ProcessType},
			Log:  EnvelopeLog{Payload: []byte(l.Payload), Type: "OUT"},
		})
	}
	return logs
}
