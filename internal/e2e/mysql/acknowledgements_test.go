// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"
)

// lateNews is how much later than it happened a promotion may be seen.
const lateNews = time.Second

// acknowledgement is a row whose commit was acknowledged to a client. Times are since the beginning of the run.
type acknowledgement struct {
	id         int64
	server     int
	begin, end time.Duration
}

// promotion is a primary that was seen in the status.
type promotion struct {
	at     time.Duration
	server int
}

// ackLedger is what clients were promised, and who was the primary.
type ackLedger struct {
	began time.Time

	mu         sync.Mutex
	acks       []acknowledgement
	promotions []promotion
	refused    int
	label      int
}

func newLedger() *ackLedger { return &ackLedger{began: time.Now(), label: -1} }

func (l *ackLedger) elapsed() time.Duration { return time.Since(l.began) }

func (l *ackLedger) addAck(a acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

func (l *ackLedger) addRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

// notePrimary notes the primary of the status, and the server that has the label.
func (l *ackLedger) notePrimary(primary, label int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.label = label
	if n := len(l.promotions); n == 0 || l.promotions[n-1].server != primary {
		l.promotions = append(l.promotions, promotion{at: l.elapsed(), server: primary})
	}
}

func (l *ackLedger) labelledServer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.label
}

// dualMoments counts the moments at which two writable primaries both acknowledged. Such a moment is an acknowledgement
// by a server that is not the primary of the status, for a statement that began after the primary of the status had
// acknowledged one of its own reign. It is none if that server is seen to become the primary within lateNews. All such
// acknowledgements of one server in one reign are one moment. It counts whether or not a row is lost by it.
func dualMoments(acks []acknowledgement, promotions []promotion) int {
	type moment struct{ reign, server int }
	firstAck := map[int]time.Duration{} // By reign: when its primary had acknowledged for the first time.
	reigns := make([]int, len(acks))
	for i, a := range acks {
		r, _ := slices.BinarySearchFunc(promotions, a.begin, func(p promotion, at time.Duration) int { return cmp.Or(cmp.Compare(p.at, at), -1) })
		reigns[i] = r - 1
		if r == 0 || promotions[r-1].server != a.server {
			continue
		}
		if first, found := firstAck[r-1]; !found || a.end < first {
			firstAck[r-1] = a.end
		}
	}
	moments := map[moment]bool{}
	for i, a := range acks {
		r := reigns[i]
		if r < 0 || promotions[r].server == a.server {
			continue
		}
		first, served := firstAck[r]
		soon := slices.ContainsFunc(promotions[r+1:], func(p promotion) bool { return p.server == a.server && p.at <= a.end+lateNews })
		if served && a.begin > first && !soon {
			moments[moment{r, a.server}] = true
		}
	}
	return len(moments)
}

func TestDualMoments(t *testing.T) {
	reigns := []promotion{{0, 0}, {10 * time.Second, 1}, {20 * time.Second, 0}}
	at := func(server int, begin time.Duration) acknowledgement {
		return acknowledgement{server: server, begin: begin, end: begin + 10*time.Millisecond}
	}
	second := time.Second
	for name, c := range map[string]struct {
		acks []acknowledgement
		want int
	}{
		"two primaries one after the other are no moment": {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 21*second)}, 0},
		"the old one before the new one serves":           {[]acknowledgement{at(0, second), at(0, 11*second), at(1, 12*second)}, 0},
		"the old one after the new one has served":        {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 12*second), at(1, 13*second)}, 1},
		"many rows of one reign are one moment":           {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 13*second)}, 1},
		"a third server is another moment":                {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(2, 13*second)}, 2},
		"a promotion that is seen late is no moment":      {[]acknowledgement{at(0, 9*second), at(1, 9500*time.Millisecond)}, 0},
		"two statements under way at the same time":       {[]acknowledgement{{server: 0, begin: 10500 * time.Millisecond, end: 12 * second}, at(1, 11*second)}, 0},
		"no server has acknowledged anything":             {nil, 0},
		"the old one in a later reign, again and again":   {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 21*second), at(1, 22*second)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dualMoments(c.acks, reigns); got != c.want {
				t.Errorf("expected %d moments, found %d", c.want, got)
			}
		})
	}
}
