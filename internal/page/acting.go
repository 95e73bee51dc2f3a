// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
)

const (
	// actingInterval is how often the page reads which manager is active, because it may not watch the Lease.
	actingInterval = 15 * time.Second
	// maxGaps limits how many reasons for missing controllers the page lists above the table.
	maxGaps = 5
)

// followActing reads periodically which manager is active, until ctx is cancelled.
func (i *inventory) followActing(ctx context.Context, kube client.Reader, now clock.WithTicker) {
	for {
		i.setActing(leasereader.ReadActing(ctx, kube, now.Now()))
		select {
		case <-ctx.Done():
			return
		case <-now.After(actingInterval):
		}
	}
}

// setActing stores which manager is active, and notifies the streams of a change.
func (i *inventory) setActing(acting lease.Acting) {
	if !reflect.DeepEqual(i.readActing(), acting) {
		i.change(func() { i.acting = acting })
	}
}

func (i *inventory) readActing() lease.Acting {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.acting
}

// withGap returns the switch with the reason why no controller acts on it. If there is no such reason, it returns the
// same switch.
func (s *listedSwitch) withGap(acting lease.Acting) *listedSwitch {
	if acting.Scope == nil && len(acting.Leaders) == 0 {
		return s
	}
	found := s.WithGap(acting)
	if found.NoController == "" {
		return s
	}
	changed := *s
	changed.Row = found
	return &changed
}

// gapReasons collects the reasons why no controller acts on the objects that a caller can see.
type gapReasons map[string]bool

func (g gapReasons) add(s *listedSwitch) {
	if s.NoController != "" {
		g[s.kind.Name()+" objects: no controller acts on them: "+s.NoController] = true
	}
}

// list returns the sorted warnings. Their number is limited, because there may be one warning for each namespace.
func (g gapReasons) list(acting lease.Acting) []string {
	var warnings []string
	if end := acting.DescribeEnd(); end != "" {
		warnings = append(warnings, "No controller acts: "+end)
	}
	var reasons []string
	for reason := range g {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	warnings = append(warnings, reasons[:min(len(reasons), maxGaps)]...)
	if more := len(reasons) - maxGaps; more > 0 {
		warnings = append(warnings, fmt.Sprintf("No controller acts on some other objects, for %d more reasons; see the rows of the objects", more))
	}
	return warnings
}
