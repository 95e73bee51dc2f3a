// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// step waits, says something unless it is silent, and wants what is passed on then.
type step struct {
	after time.Duration
	say   string // "", "true", "other", "false" or "unknown"
	want  string // state and reason
}

func TestStable(t *testing.T) {
	words := map[string]Status{
		"true":    {State: True, Reason: "On", Identity: "x"},
		"other":   {State: True, Reason: "Other", Identity: "y"},
		"false":   {State: False, Reason: "Off"},
		"unknown": {State: Unknown, Reason: "Outage"},
	}
	cases := map[string][]step{ // True must hold for 10 s, False for 30 s.
		"true passes after its span":                  {{0, "true", "Unknown Settling"}, {9 * time.Second, "", "Unknown Settling"}, {time.Second, "", "True On"}},
		"false passes after its span":                 {{0, "false", "Unknown Settling"}, {29 * time.Second, "", "Unknown Settling"}, {time.Second, "", "False Off"}},
		"a short dip is not seen":                     {{0, "true", "Unknown Settling"}, {10 * time.Second, "", "True On"}, {0, "false", "True Settling"}, {29 * time.Second, "true", "True On"}, {time.Hour, "", "True On"}},
		"a dip begins anew":                           {{0, "true", "Unknown Settling"}, {9 * time.Second, "false", "Unknown Settling"}, {time.Second, "true", "Unknown Settling"}, {9 * time.Second, "", "Unknown Settling"}, {time.Second, "", "True On"}},
		"unknown passes at once":                      {{0, "true", "Unknown Settling"}, {10 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "", "Unknown Outage"}, {0, "true", "True On"}},
		"unknown does not reset the span":             {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {2 * time.Second, "true", "Unknown Settling"}, {2 * time.Second, "", "True On"}},
		"a span that ends in doubt waits for clarity": {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "", "Unknown Outage"}, {0, "true", "True On"}},
		"doubt and then the contrary begins anew":     {{0, "true", "Unknown Settling"}, {6 * time.Second, "unknown", "Unknown Outage"}, {time.Hour, "false", "Unknown Settling"}, {30 * time.Second, "", "False Off"}},
		"another identity passes at once":             {{0, "true", "Unknown Settling"}, {10 * time.Second, "", "True On"}, {0, "other", "True Other"}},
		"the newest report of a state passes":         {{0, "true", "Unknown Settling"}, {9 * time.Second, "other", "Unknown Settling"}, {time.Second, "", "True Other"}},
		"it settles to and fro":                       {{0, "true", "Unknown Settling"}, {10 * time.Second, "false", "True Settling"}, {30 * time.Second, "true", "False Settling"}, {10 * time.Second, "", "True On"}},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				says, p, ended := make(chan Status), &reportLog{}, make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					defer close(ended)
					ObserveStable(ctx, channelChild("c", says), HoldTimes{True: 10 * time.Second, False: 30 * time.Second}, p.report)
				}()
				for i, s := range steps {
					pass(s.after)
					if s.say != "" {
						says <- words[s.say]
					}
					if got := p.last(); got.State.String()+" "+got.Reason != s.want {
						t.Errorf("step %d: got %+v, want %s", i, got, s.want)
					}
				}
				cancel()
				<-ended
			})
		})
	}
}

func TestStableKeepsTheIdentityWhileItSettles(t *testing.T) {
	at := time.Unix(1000, 0)
	d := hysteresis{name: "c", hold: HoldTimes{False: time.Minute}}
	d.noteReport(Status{State: True, Reason: "On", Identity: "x"}, at)
	want := Status{State: True, Reason: "On", Identity: "x"}
	if diff := cmp.Diff(want, d.currentStatus(at)); diff != "" {
		t.Errorf("without a span (-want +got):\n%s", diff)
	}
	d.noteReport(Status{State: False, Reason: "Off"}, at)
	want.Reason, want.Message = "Settling", "c is False and must stay so for 1m0s"
	if diff := cmp.Diff(want, d.currentStatus(at)); diff != "" {
		t.Errorf("settling (-want +got):\n%s", diff)
	}
}

func TestStableIsIdleInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says, p, ended := make(chan Status), &reportLog{}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			ObserveStable(ctx, channelChild("c", says), HoldTimes{True: time.Second}, p.report)
		}()
		says <- Status{State: True}
		says <- Status{State: Unknown, Reason: "Outage"}
		pass(time.Hour)
		p.want(t, "in doubt", Unknown, "Outage")
		if len(p.said) != 2 {
			t.Errorf("%d reports, want 2: the span's end says nothing in doubt", len(p.said))
		}
		cancel()
		<-ended
	})
}
