// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestQuotasAreReadOnceAnHour reads the quotas of a region while their use and the answers change.
func TestQuotasAreReadOnceAnHour(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	cache, reads := NewQuotaCache(now), 0
	for _, step := range []struct {
		name  string
		after time.Duration
		names []string
		err   error
		reads int
		want  []string
	}{
		{name: "first listing reads the quotas", names: []string{"N2_CPUS", "CPUS"}, reads: 1, want: []string{"r/CPUS", "r/N2_CPUS"}},
		{name: "listing within the hour reads no quotas", after: 59 * time.Minute, reads: 1, want: []string{"r/CPUS", "r/N2_CPUS"}},
		{name: "failed read keeps the last result", after: time.Minute, err: errors.New("forbidden"), reads: 2, want: []string{"r/CPUS", "r/N2_CPUS"}},
		{name: "failed read is not repeated within a second", after: time.Second, reads: 2, want: []string{"r/CPUS", "r/N2_CPUS"}},
		{name: "sufficient quotas are no longer reported", after: time.Hour, reads: 3},
	} {
		now.SetTime(now.Now().Add(step.after))
		got := cache.findExceeded(t.Context(), "r", func(context.Context, string) ([]string, error) {
			reads++
			return step.names, step.err
		})
		if diff := cmp.Diff(step.want, got); diff != "" || reads != step.reads {
			t.Errorf("%s: expected %d reads, found %d; quotas (-want +got):\n%s", step.name, step.reads, reads, diff)
		}
	}
}

func TestQuotasOfManyRegionsAreBounded(t *testing.T) {
	cache, reads := NewQuotaCache(clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))), 0
	for n := range 2 * maxQuotaRegions {
		cache.findExceeded(t.Context(), fmt.Sprint(n), func(context.Context, string) ([]string, error) {
			reads++
			return nil, nil
		})
	}
	if reads != maxQuotaRegions {
		t.Errorf("expected %d reads, found %d", maxQuotaRegions, reads)
	}
}
