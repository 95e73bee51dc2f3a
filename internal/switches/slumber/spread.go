// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// A wave with spec.spreadOver stops and starts its members in batches (docs/adr/0054-a-wave-is-spread-by-uid.md).

// maxBatches is the maximum number of batches of a wave. Each batch costs one reconciliation of the Slumber.
const maxBatches = 60

// SpreadOffset returns how long after the start of its wave's transition an object is stopped or started. It is less
// than over, unless over is zero. Apart from over, it depends only on the UID, so neither a new manager nor other
// members of the wave change it.
func SpreadOffset(uid types.UID, over time.Duration) time.Duration {
	if over <= 0 {
		return 0
	}
	hash := sha256.Sum256([]byte(uid)) // Similar UIDs should not fall into the same batch.
	batch := int64(binary.BigEndian.Uint64(hash[:]) % maxBatches)
	return time.Duration(batch * over.Nanoseconds() / maxBatches).Truncate(time.Second) // Times of the API have whole seconds.
}

// SpreadOf returns spec.spreadOver, or zero.
func SpreadOf(s *torporv1alpha1.Slumber) time.Duration {
	if over := s.Spec.SpreadOver; over != nil {
		return over.Duration
	}
	return 0
}

// turnOf returns when a member is stopped or started with its wave, or zero if the wave was never stopped or started.
// It counts from the start of the wave's transition, which the status records.
// Invariant: the returned time is earlier than the start of the wave's transition plus spec.spreadOver, so the whole
// wave has been stopped or started by then, and the next wave waits for it (TestSpreadWaves).
func turnOf(s *torporv1alpha1.Slumber, wave torporv1alpha1.SlumberWaveStatus, m Member) time.Time {
	if wave.Since == nil {
		return time.Time{}
	}
	return waitsSince(wave).Add(SpreadOffset(m.UID, SpreadOf(s)))
}

// waitsSince returns when the current transition of a wave began.
func waitsSince(wave torporv1alpha1.SlumberWaveStatus) time.Time {
	if wave.WaitsSince != nil {
		return wave.WaitsSince.Time
	}
	return wave.Since.Time
}
