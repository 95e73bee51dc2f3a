// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckStart(t *testing.T) {
	type finding struct {
		Severity FindingSeverity
		Message  string
	}
	for name, row := range map[string]struct {
		in   Observed
		want []finding
	}{
		"a healthy cluster may be started": {healthyCluster(stopAsked, stopReached), nil},
		"foreign transactions refuse": {healthyCluster(withInstance(2, executed("0:1-9,2:1-2"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1-2, which the primary lacks; a start isolates it"},
		}},
		"numbers ahead of the primary refuse": {healthyCluster(withInstance(1, executed("0:1-9:12"))), []finding{
			{Refuse, "instance 1 has " + uuid(0) + ":12, which the primary has yet to number so; it will skip what the primary writes then"},
		}},
		"two writable instances refuse": {healthyCluster(withInstance(1, writable)), []finding{
			{Refuse, "instance 1 can be written to beside the primary; a start makes it read-only"},
		}},
		"a primary that lacks something refuses": {healthyCluster(withInstance(0, readOnly, executed("0:1-8"))), []finding{
			{Refuse, "instance 0, the primary, lacks transactions that replicas have; a start fails over"},
		}},
		"a primary that does not answer refuses": {healthyCluster(withInstance(0, podNotReady)), []finding{
			{Refuse, "instance 0, the primary, does not answer; a start fails over if it is down"},
		}},
		"a read-only primary warns": {healthyCluster(withInstance(0, readOnly)), []finding{
			{Warn, "instance 0, the primary, is read-only; a start makes it writable"},
		}},
		"deleted binary logs refuse": {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-7") }), withInstance(1, executed("0:1-5"))), []finding{
			{Refuse, "instance 1 lacks " + parseTestSet("0:6-7").String() + ", which the primary has deleted; it cannot follow, and a start leaves it so"},
		}},
		"threads that are stopped warn, after what refuses": {healthyCluster(withInstance(1, sqlFailed), withInstance(2, sqlStopped, executed("0:1-9,2:1"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1, which the primary lacks; a start isolates it"},
			{Warn, "instance 1 stopped applying with error 1062; a start leaves it so"},
			{Warn, "instance 2 has its SQL thread stopped; a start lets it go on"},
		}},
		"an instance that does not answer warns": {healthyCluster(withInstance(1, podNotReady)), []finding{{Warn, "instance 1 does not answer and could not be checked"}}},
		"a status without a primary warns":       {healthyCluster(func(o *Observed) { o.Primary = NoInstance }, withInstance(0, readOnly)), []finding{{Warn, "the status names no primary; a start chooses one"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []finding
			for _, f := range CheckStart(row.in) {
				got = append(got, finding{f.Severity, f.Message})
				if f.Remedy == "" {
					t.Errorf("expected a remedy for %q", f.Message)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
