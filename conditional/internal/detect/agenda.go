// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"container/heap"
	"time"
)

// agenda holds the boards that have a next look, the first one first.
type agenda struct{ boards byTime }

// set plans the next look at a board; a zero time drops it.
func (a *agenda) set(b *board, at time.Time) {
	b.next = at
	switch {
	case at.IsZero() && b.place >= 0:
		heap.Remove(&a.boards, b.place)
	case !at.IsZero() && b.place >= 0:
		heap.Fix(&a.boards, b.place)
	case !at.IsZero():
		heap.Push(&a.boards, b)
	}
}

// take returns a board that is due and drops it, or nil.
func (a *agenda) take(now time.Time) *board {
	if len(a.boards) == 0 || now.Before(a.boards[0].next) {
		return nil
	}
	b := a.boards[0]
	a.set(b, time.Time{})
	return b
}

// first is when the next look is due, and zero when there is none.
func (a *agenda) first() time.Time {
	if len(a.boards) == 0 {
		return time.Time{}
	}
	return a.boards[0].next
}

// byTime implements heap.Interface.
type byTime []*board

// Len counts.
func (h *byTime) Len() int { return len(*h) }

// Less puts the sooner one first.
func (h *byTime) Less(i, j int) bool { return (*h)[i].next.Before((*h)[j].next) }

// Swap keeps the places.
func (h *byTime) Swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push appends.
func (h *byTime) Push(x any) {
	if b, ok := x.(*board); ok {
		b.place = len(*h)
		*h = append(*h, b)
	}
}

// Pop drops the end.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	b.place, (*h)[last] = -1, nil
	*h = (*h)[:last]
	return b
}
