// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"container/heap"
	"time"
)

// lookQueue orders the group versions by the time of their next look.
type lookQueue struct{ entries versionHeap }

// setNext plans the next look at a group version; a zero time drops it.
func (a *lookQueue) setNext(b *versionState, at time.Time) {
	b.next = at
	switch {
	case at.IsZero() && b.queueIndex >= 0:
		heap.Remove(&a.entries, b.queueIndex)
	case !at.IsZero() && b.queueIndex >= 0:
		heap.Fix(&a.entries, b.queueIndex)
	case !at.IsZero():
		heap.Push(&a.entries, b)
	}
}

// popDue takes a group version out whose look is due; nil without one.
func (a *lookQueue) popDue(now time.Time) *versionState {
	if len(a.entries) == 0 || now.Before(a.entries[0].next) {
		return nil
	}
	b := a.entries[0]
	a.setNext(b, time.Time{})
	return b
}

// nextDue is when the next look is due, and zero when there is none.
func (a *lookQueue) nextDue() time.Time {
	if len(a.entries) == 0 {
		return time.Time{}
	}
	return a.entries[0].next
}

// versionHeap implements heap.Interface.
type versionHeap []*versionState

// Len returns the number of group versions.
func (h *versionHeap) Len() int { return len(*h) }

// Less orders by the time of the next look.
func (h *versionHeap) Less(i, j int) bool { return (*h)[i].next.Before((*h)[j].next) }

// Swap exchanges two group versions and updates their indexes.
func (h *versionHeap) Swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].queueIndex, s[j].queueIndex = i, j
}

// Push appends.
func (h *versionHeap) Push(x any) {
	if b, ok := x.(*versionState); ok {
		b.queueIndex = len(*h)
		*h = append(*h, b)
	}
}

// Pop drops the end.
func (h *versionHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	b.queueIndex, (*h)[last] = -1, nil
	*h = (*h)[:last]
	return b
}
