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

// maxBatches is the number of batches of a wave. Each batch costs one pass of the Slumber.
const maxBatches = 60

// SpreadOffset returns how long after the begin of its wave an object is stopped or started. It is less than over, and
// depends only on the UID: another manager, or a wave with other members, does not change it.
func SpreadOffset(uid types.UID, over time.Duration) time.Duration {
	if over <= 0 {
		return 0
	}
	hash := sha256.Sum256([]byte(uid)) // Similar UIDs must not share a batch.
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

// turnOf returns when a member is stopped or started with its wave; zero if the wave was never changed. It counts from
// the time at which the wave began, which the status records.
// Invariant: a turn is earlier than the begin of the wave plus spec.spreadOver, so each wave is stopped or started by
// then, and the next one waits for it (TestSpreadWaves).
func turnOf(s *torporv1alpha1.Slumber, wave torporv1alpha1.SlumberWaveStatus, m Member) time.Time {
	if wave.Since == nil {
		return time.Time{}
	}
	return waitsSince(wave).Add(SpreadOffset(m.UID, SpreadOf(s)))
}

// waitsSince returns when a wave began.
func waitsSince(wave torporv1alpha1.SlumberWaveStatus) time.Time {
	if wave.WaitsSince != nil {
		return wave.WaitsSince.Time
	}
	return wave.Since.Time
}
