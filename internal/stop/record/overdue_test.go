// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFormatEnd(t *testing.T) {
	t.Parallel()
	end := metav1.NewTime(time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC))
	for name, row := range map[string]struct {
		until     *metav1.Time
		now       time.Time
		want      string
		isOverdue bool
	}{
		"no end: not overdue":                                 {nil, end.Time, "-", false},
		"future end: not overdue":                             {&end, end.Add(-time.Hour), "2026-11-20 22:00 UTC", false},
		"end at this second: not overdue":                     {&end, end.Time, "2026-11-20 22:00 UTC", false},
		"exactly the grace period after the end: not overdue": {&end, end.Add(overdueGrace), "2026-11-20 22:00 UTC", false},
		"one second more than the grace period: overdue":      {&end, end.Add(overdueGrace + time.Second), "2026-11-20 22:00 UTC (5m1s overdue)", true},
		"two hours after the end: overdue":                    {&end, end.Add(2 * time.Hour), "2026-11-20 22:00 UTC (120m overdue)", true},
		"end in another zone: shown in the user's zone":       {new(metav1.NewTime(end.In(time.FixedZone("", 3600)))), end.Time, "2026-11-20 22:00 UTC", false},
		"user in another zone: shown in that zone":            {&end, end.In(time.FixedZone("CET", 3600)), "2026-11-20 23:00 CET", false},
		"current time of zero: not overdue":                   {&end, time.Time{}, "2026-11-20 22:00 UTC", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := FormatEnd(row.until, row.now); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
			if got := IsOverdue(row.until, row.now); got != row.isOverdue {
				t.Errorf("expected overdue %t, found %t", row.isOverdue, got)
			}
		})
	}
}
