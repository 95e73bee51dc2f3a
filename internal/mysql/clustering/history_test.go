// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// splitTestSet turns 0:1-3,1:5 into sets of the UUIDs with these indexes.
func splitTestSet(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			index, rest, _ := strings.Cut(part, ":")
			if !yield(uuid(int(index[0]-'0')) + ":" + rest) {
				return
			}
		}
	}
}

func TestUpdateHistory(t *testing.T) {
	earlier := modelTime().Add(-time.Second)
	long := modelTime().Add(-switchoverTimeout)
	for name, row := range map[string]struct {
		before History
		in     Observed
		want   History
	}{
		"a healthy cluster has no history":                        {History{StopAskedSince: earlier, ReadOnlySince: earlier}, healthyCluster(), History{Instances: make([]InstanceHistory, 3)}},
		"a wish to stop begins":                                   {History{}, healthyCluster(stopAsked), History{StopAskedSince: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"a wish to stop goes on":                                  {History{StopAskedSince: earlier}, healthyCluster(stopAsked), History{StopAskedSince: earlier, Instances: make([]InstanceHistory, 3)}},
		"a switchover begins":                                     {History{}, healthyCluster(withInstance(0, askedToStepDown, readOnly)), History{ReadOnlySince: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"a read-only primary alone is no switchover":              {History{}, healthyCluster(withInstance(0, readOnly)), History{Instances: make([]InstanceHistory, 3)}},
		"a switchover takes too long":                             {History{ReadOnlySince: long}, healthyCluster(withInstance(0, askedToStepDown, readOnly)), History{ReadOnlySince: long, GaveUpAt: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"a statement that hangs makes a switchover take too long": {History{}, healthyCluster(withInstance(0, askedToStepDown, statementPending(switchoverTimeout))), History{GaveUpAt: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"a primary misses a look":                                 {History{}, healthyCluster(withInstance(0, doesNotAnswer)), History{Instances: []InstanceHistory{{UnreachableSince: modelTime(), Misses: 1}, {}, {}}}},
		"a primary misses another look":                           {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 1}}}, healthyCluster(withInstance(0, doesNotAnswer)), History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2}, {}, {}}}},
		"a primary is back after missed looks":                    {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2}}}, healthyCluster(), History{Instances: make([]InstanceHistory, 3)}},
		"a replica is ahead":                                      {History{}, healthyCluster(withInstance(1, executed("0:1-10"))), History{Instances: []InstanceHistory{{}, {AheadSince: modelTime()}, {}}}},
		"what failed is kept for a while":                         {History{Instances: []InstanceHistory{{FailedAt: earlier, Failure: "x", LastAction: "y"}}}, healthyCluster(), History{Instances: []InstanceHistory{{FailedAt: earlier, Failure: "x", LastAction: "y"}, {}, {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, UpdateHistory(row.before, row.in)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithResult(t *testing.T) {
	start := modelTime()
	m := History{}.WithResult(StartIO{Index: 1}, start, "")
	if past := m.Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected the first act to count as a success, found %+v", past)
	}
	if past := m.WithResult(StartIO{Index: 1}, start, "").Instances[1]; past.FailedAt != start {
		t.Errorf("expected the same act again not to have helped, found %+v", past)
	}
	if past := m.WithResult(RestartSQL{Index: 1}, start, "").Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected another act to count as a success, found %+v", past)
	}
	two := m.WithResult(StopIO{Indexes: []int{0, 2}}, start, "no answer")
	if two.Instances[0].Failure != "no answer" || two.Instances[2].FailedAt != start || two.Instances[1].Failure != "" {
		t.Errorf("expected a failure on the two that were touched, found %+v", two.Instances)
	}
	if len(m.Instances) != 2 {
		t.Errorf("expected the history before to be untouched, found %+v", m)
	}
}
