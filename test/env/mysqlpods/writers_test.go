// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"testing"
	"time"
)

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
		"acknowledgements of consecutive primaries do not count":                                 {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 21*second)}, 0},
		"an old primary that acknowledges before the new one does not count":                     {[]acknowledgement{at(0, second), at(0, 11*second), at(1, 12*second)}, 0},
		"an old primary that acknowledges after the new one counts as one dual-writable moment":  {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 12*second), at(1, 13*second)}, 1},
		"many acknowledgements of one old primary count as one dual-writable moment":             {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 13*second)}, 1},
		"a third server that acknowledges counts as another dual-writable moment":                {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(2, 13*second)}, 2},
		"an acknowledgement shortly before an observed promotion does not count":                 {[]acknowledgement{at(0, 9*second), at(1, 9500*time.Millisecond)}, 0},
		"statements that overlap a switchover do not count":                                      {[]acknowledgement{{server: 0, begin: 10500 * time.Millisecond, end: 12 * second}, at(1, 11*second)}, 0},
		"no acknowledgements: no dual-writable moment":                                           {nil, 0},
		"old primaries that acknowledge after two promotions count as two dual-writable moments": {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 21*second), at(1, 22*second)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dualMoments(c.acks, reigns); got != c.want {
				t.Errorf("expected %d moments, found %d", c.want, got)
			}
		})
	}
}
