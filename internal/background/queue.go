// SPDX-License-Identifier: Apache-2.0

package background

import (
	"slices"
	"sort"
	"time"
)

// Share limits the calls with its name that are in progress at any time. A limit of zero allows any number.
type Share struct {
	Name  string
	Limit int
}

// entry is a key with its value.
type entry[K comparable, V any] struct {
	key   K
	value V
	queue Share
	// due is when the next call was asked for; zero if there is none. at is the entry's place in its queue, which is
	// later than due if the call was put off.
	due, at time.Time
	// round is when Take ran last.
	round int
}

// queues hold the entries that wait for a call, the earliest first.
type queues[K comparable, V any] map[Share][]*entry[K, V]

// insert puts an entry behind others of the same time.
func (q queues[K, V]) insert(e *entry[K, V]) {
	waiting := q[e.queue]
	place := sort.Search(len(waiting), func(i int) bool { return waiting[i].at.After(e.at) })
	q[e.queue] = slices.Insert(waiting, place, e)
}

func (q queues[K, V]) remove(e *entry[K, V]) {
	q[e.queue] = slices.DeleteFunc(q[e.queue], func(other *entry[K, V]) bool { return other == e })
}

// first returns the first entry of a queue, without those that were taken in this round and have no room; nil if there
// is none.
func (q queues[K, V]) first(queue Share, now time.Time, round int) *entry[K, V] {
	for _, e := range q[queue] {
		if e.round != round || e.at.After(now) {
			return e
		}
	}
	return nil
}
