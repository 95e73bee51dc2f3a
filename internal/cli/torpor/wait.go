// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	pollInterval = time.Second
	// progressDelay is how long a command may take without saying what it waits for.
	progressDelay = 2 * time.Second
)

// waitForStatus waits until the status of an object reports what was asked for, and not an earlier request: the record of its stops says
// which one the controller has seen.
func (v *verbCommand) waitForStatus(ctx context.Context, kube *kubeClient, r *verbResult) {
	if r.err != nil {
		return
	}
	tick := v.clock.NewTicker(pollInterval)
	defer tick.Stop()
	startedAt, last, isReached := v.clock.Now(), "", false
	r.Reached = &isReached
	for {
		obj, err := kube.getObject(ctx, r.target)
		if err != nil && ctx.Err() == nil {
			r.err = err
			return
		}
		if err == nil {
			row := r.target.findRow(obj)
			switch {
			case v.verb == startVerb && row.refusal != "":
				r.err = exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: %s; it stays asked for, and kubectl moco start --force starts all the same", r.target, row.refusal)}
				return
			case row.isAsked != (v.verb == stopVerb) && !row.stops.HasEnded():
				r.err = fmt.Errorf("%s: somebody asked for something else while this waited: expected it to be %s; see kubectl torpor why", r.target, v.verb.pastParticiple())
				return
			case row.isReached(v.verb, r.wasAlready):
				isReached = true
				return
			}
			if seen := fmt.Sprintf("%s: %s", formatCell(row.State), formatCell(row.Message)); seen != last && v.clock.Since(startedAt) >= progressDelay {
				last = seen
				fmt.Fprintf(v.Err, "waiting for %s: %s\n", r.target, seen)
			}
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			r.err = fmt.Errorf("wait for %s: %w; it stays asked for", r.target, context.Cause(ctx))
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				r.err = exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("timed out: expected %s to be %s, found %s; it stays asked for", r.target, v.verb.pastParticiple(), last)}
			}
			return
		}
	}
}

// isReached reports whether the status says that the switch as it is now has had its effect. Of an app that was never started there is no
// stop in the record.
func (r stopRow) isReached(v verb, wasAlready bool) bool {
	if isDown := r.State == "stopped" || r.State == "Hibernating"; v == stopVerb {
		return isDown && (wasAlready || r.stops.Holds())
	}
	return !r.stops.Holds() && (r.State == "running" || r.State == "Running")
}

// stateWord says of a part that it is as a verb makes it.
func (r stopRow) stateWord(v verb) string {
	switch {
	case v == startVerb:
		return "running"
	case r.Kind == "ClusterDeployment":
		return "hibernating"
	default:
		return "stopped"
	}
}
