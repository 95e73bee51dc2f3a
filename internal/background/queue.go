// SPDX-License-Identifier: Apache-2.0

package background

import (
	"slices"
	"sort"
	"time"
)

// Share limits how many calls with its name are in progress at the same time. A limit of zero means no limit.
type Share struct {
	Name  string
	Limit int
}

// entry is a key with its value.
type entry[K comparable, V any] struct {
	key   K
	value V
	queue Share
	// due is the requested time of the next call; zero if none is requested. at is the time by which the entry is
	// sorted in its queue. It is later than due if the call was postponed.
	due, at time.Time
	// round is the round in which Take was last called for the entry.
	round int
}

// queues contains the entries that wait for a call, sorted by time.
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

// first returns the first due entry of a queue; nil if none exists. It skips entries that were taken in this round
// but had no room.
func (q queues[K, V]) first(queue Share, now time.Time, round int) *entry[K, V] {
	for _, e := range q[queue] {
		if e.round != round || e.at.After(now) {
			return e
		}
	}
	return nil
}
