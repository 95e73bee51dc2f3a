// SPDX-License-Identifier: Apache-2.0

package background

import (
	"slices"
	"sort"
	"time"
)

// Share is a named limit on the number of concurrent calls. A Limit of zero means no limit.
type Share struct {
	Name  string
	Limit int
}

// entry is a key with its value and its requested call.
type entry[K comparable, V any] struct {
	key   K
	value V
	queue Share
	// due is the requested time of the next call; zero if none is requested. at is the time by which the queue is
	// sorted; at is later than due if the call was postponed.
	due, at time.Time
	// round is the value of Service.round when Take was last called for the entry.
	round int
}

// queues contains the entries that wait for a call, by the Share that limits their calls. Each queue is sorted by time.
type queues[K comparable, V any] map[Share][]*entry[K, V]

// insert adds an entry to its queue, after entries with the same time.
func (q queues[K, V]) insert(e *entry[K, V]) {
	waiting := q[e.queue]
	place := sort.Search(len(waiting), func(i int) bool { return waiting[i].at.After(e.at) })
	q[e.queue] = slices.Insert(waiting, place, e)
}

func (q queues[K, V]) remove(e *entry[K, V]) {
	q[e.queue] = slices.DeleteFunc(q[e.queue], func(other *entry[K, V]) bool { return other == e })
}

// first returns the earliest entry of a queue, even if it is not due yet; nil if there is none. It skips due entries
// for which Take was already called in this round.
func (q queues[K, V]) first(queue Share, now time.Time, round int) *entry[K, V] {
	for _, e := range q[queue] {
		if e.round != round || e.at.After(now) {
			return e
		}
	}
	return nil
}
