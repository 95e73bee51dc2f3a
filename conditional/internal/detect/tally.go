// SPDX-License-Identifier: Apache-2.0

package detect

import "sync/atomic"

// tally counts requests by what they saw.
type tally [present + 1]atomic.Uint64

func (t *tally) count(s seen) { t[s].Add(1) }

func (t *tally) counts() map[string]uint64 {
	counts := map[string]uint64{}
	for s := range t {
		counts[seen(s).String()] = t[s].Load()
	}
	return counts
}

// String is the result that metrics name.
func (s seen) String() string {
	switch s {
	case unreadable:
		return "unreadable"
	case missing:
		return "absent"
	case warming:
		return "initializing"
	case present:
		return "served"
	}
	return ""
}
