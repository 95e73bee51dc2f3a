// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"testing"

	"github.com/torpor-dev/torpor/conditional"
)

func TestReported(t *testing.T) {
	r := &Reported{Name: "lease"}
	observe := func(ctx context.Context, report func(conditional.Status)) {
		if err := r.Observe(ctx, conditional.Sources{}, report); err != nil {
			t.Error(err)
		}
	}
	inBubble(t, observe, func(first *reportLog) {
		first.want(t, "before a report", conditional.Unknown, "NotReported")
		led := conditional.Status{State: conditional.True, Reason: "Leads"}
		if !r.Report(led) || r.Report(led) || r.Status() != led {
			t.Error("expected one change, and the status that was reported")
		}
		first.want(t, "after a report", conditional.True, "Leads")
		second := &reportLog{}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // The test's context was created outside of the bubble.
		defer cancel()
		go observe(ctx, second.report)
		second.want(t, "another observer", conditional.True, "Leads")
		r.Report(conditional.Status{State: conditional.False, Reason: conditional.ElsewhereReason})
		second.want(t, "another observer after a change", conditional.False, conditional.ElsewhereReason)
		first.want(t, "the first observer", conditional.False, conditional.ElsewhereReason)
	})
	if err := r.Validate(conditional.Sources{}); err != nil || (&Reported{}).Validate(conditional.Sources{}) == nil {
		t.Errorf("expected an error for a condition without a name only, found %v", err)
	}
}
