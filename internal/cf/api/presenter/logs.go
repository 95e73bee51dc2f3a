// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// LogCacheRead is a response of Log Cache.
type LogCacheRead struct {
	Envelopes EnvelopeBatch `json:"envelopes"`
}

// EnvelopeBatch is a list of log lines.
type EnvelopeBatch struct {
	Batch []LogEnvelope `json:"batch"`
}

// LogEnvelope is a line of a log. Its timestamp is a string with the time in nanoseconds.
type LogEnvelope struct {
	Timestamp      string            `json:"timestamp"`
	SourceID       string            `json:"source_id"`
	InstanceID     string            `json:"instance_id"`
	DeprecatedTags map[string]string `json:"deprecated_tags"`
	Tags           map[string]string `json:"tags"`
	Log            EnvelopeLog       `json:"log"`
}

// EnvelopeLog holds the text of a line, encoded as base64 in JSON.
type EnvelopeLog struct {
	Payload []byte `json:"payload"`
	Type    string `json:"type"`
}

// ForLogs returns the response of Log Cache with the log lines in the given order.
func ForLogs(app string, lines []repositories.LogLine) LogCacheRead {
	logs := LogCacheRead{Envelopes: EnvelopeBatch{Batch: make([]LogEnvelope, 0, len(lines))}}
	for _, l := range lines {
		logs.Envelopes.Batch = append(logs.Envelopes.Batch, LogEnvelope{
			Timestamp: strconv.FormatInt(l.At, 10), SourceID: app, InstanceID: l.Instance, DeprecatedTags: map[string]string{},
			Tags: map[string]string{"source_type": "APP/PROC/" + strings.ToUpper(l.ProcessType), "instance_id": l.Instance, "process_type": l.ProcessType},
			Log:  EnvelopeLog{Payload: l.Payload, Type: "OUT"},
		})
	}
	return logs
}
