// SPDX-License-Identifier: Apache-2.0

package detect

import "sync/atomic"

// outcomeCounter counts requests by their outcome.
type outcomeCounter [outcomePresent + 1]atomic.Uint64

func (t *outcomeCounter) countOutcome(s lookOutcome) { t[s].Add(1) }

func (t *outcomeCounter) countsByResult() map[string]uint64 {
	counts := map[string]uint64{}
	for s := range t {
		counts[lookOutcome(s).String()] = t[s].Load()
	}
	return counts
}

// String is the value of the label "result" of torpor_gate_probes_total.
func (s lookOutcome) String() string {
	switch s {
	case outcomeUnreadable:
		return "unreadable"
	case outcomeMissing:
		return "absent"
	case outcomeInitializing:
		return "initializing"
	case outcomePresent:
		return "served"
	}
	return ""
}
