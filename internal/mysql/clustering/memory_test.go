// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// splitSeq turns 0:1-3,1:5 into sets of the UUIDs with these indexes.
func splitSeq(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			index, rest, _ := strings.Cut(part, ":")
			if !yield(uuid(int(index[0]-'0')) + ":" + rest) {
				return
			}
		}
	}
}

func TestRemember(t *testing.T) {
	earlier := worldTime().Add(-time.Second)
	long := worldTime().Add(-switchBound)
	for name, row := range map[string]struct {
		before Memory
		in     Observed
		want   Memory
	}{
		"a healthy cluster is forgotten":    {Memory{StopAskedSince: earlier, ReadOnlySince: earlier}, well(), Memory{Instances: make([]Past, 3)}},
		"a wish to stop begins":             {Memory{}, well(stopAsked), Memory{StopAskedSince: worldTime(), Instances: make([]Past, 3)}},
		"and goes on":                       {Memory{StopAskedSince: earlier}, well(stopAsked), Memory{StopAskedSince: earlier, Instances: make([]Past, 3)}},
		"a switchover begins":               {Memory{}, well(at(0, toStepDown, closed)), Memory{ReadOnlySince: worldTime(), Instances: make([]Past, 3)}},
		"a read-only primary alone is none": {Memory{}, well(at(0, closed)), Memory{Instances: make([]Past, 3)}},
		"a switchover takes too long":       {Memory{ReadOnlySince: long}, well(at(0, toStepDown, closed)), Memory{ReadOnlySince: long, GaveUpAt: worldTime(), Instances: make([]Past, 3)}},
		"so does a statement that hangs":    {Memory{}, well(at(0, toStepDown, hangs(switchBound))), Memory{GaveUpAt: worldTime(), Instances: make([]Past, 3)}},
		"a primary misses a look":           {Memory{}, well(at(0, silent)), Memory{Instances: []Past{{UnreachableSince: worldTime(), Misses: 1}, {}, {}}}},
		"and another":                       {Memory{Instances: []Past{{UnreachableSince: earlier, Misses: 1}}}, well(at(0, silent)), Memory{Instances: []Past{{UnreachableSince: earlier, Misses: 2}, {}, {}}}},
		"and is back":                       {Memory{Instances: []Past{{UnreachableSince: earlier, Misses: 2}}}, well(), Memory{Instances: make([]Past, 3)}},
		"a replica is ahead":                {Memory{}, well(at(1, has("0:1-10"))), Memory{Instances: []Past{{}, {AheadSince: worldTime()}, {}}}},
		"what failed is kept for a while":   {Memory{Instances: []Past{{FailedAt: earlier, Failure: "x", Last: "y"}}}, well(), Memory{Instances: []Past{{FailedAt: earlier, Failure: "x", Last: "y"}, {}, {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Remember(row.before, row.in)); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoted(t *testing.T) {
	start := worldTime()
	m := Memory{}.Noted(StartIO{Index: 1}, start, "")
	if past := m.Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected the first act to count as a success, found %+v", past)
	}
	if past := m.Noted(StartIO{Index: 1}, start, "").Instances[1]; past.FailedAt != start {
		t.Errorf("expected the same act again not to have helped, found %+v", past)
	}
	if past := m.Noted(RestartSQL{Index: 1}, start, "").Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected another act to count as a success, found %+v", past)
	}
	two := m.Noted(StopIO{Indexes: []int{0, 2}}, start, "no answer")
	if two.Instances[0].Failure != "no answer" || two.Instances[2].FailedAt != start || two.Instances[1].Failure != "" {
		t.Errorf("expected a failure on the two that were touched, found %+v", two.Instances)
	}
	if len(m.Instances) != 2 {
		t.Errorf("expected the memory before to be untouched, found %+v", m)
	}
}
