// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	isReached, last, printed, startedAt := false, "nothing was seen", "", v.clock.Now()
	r.Reached = &isReached
	r.err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		obj, err := kube.getObject(ctx, r.target)
		if ctx.Err() != nil { // The call was cut off: the object has not said anything.
			return false, context.Cause(ctx)
		}
		if err != nil {
			return false, err
		}
		row := r.target.findRow(obj)
		isReached, err = v.judge(row, obj, r)
		last = formatCell(row.State) + ": " + formatCell(row.Message)
		if !isReached && err == nil && last != printed && v.clock.Since(startedAt) >= progressDelay {
			printed = last
			fmt.Fprintf(v.Err, "waiting for %s: %s\n", r.target, last)
		}
		return isReached, err
	})
	switch {
	case r.err == nil || ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		r.err = exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("timed out: expected %s to be %s, found %s; it stays asked for", r.target, v.verb.pastParticiple(), last)}
	default:
		r.err = fmt.Errorf("wait for %s: %w; it stays asked for", r.target, context.Cause(ctx))
	}
}

// judge reports whether a row is as asked for. The error says that it will not be.
func (v *verbCommand) judge(row stopRow, obj client.Object, r *verbResult) (bool, error) {
	switch {
	case v.verb == restartVerb:
		_, settled := r.target.kind.readRevisions(obj)
		return settled >= r.revision, nil
	case v.verb == startVerb && row.refusal != "":
		return false, exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: %s; it stays asked for, and kubectl moco start --force starts all the same", r.target, row.refusal)}
	case v.verb == stopVerb && row.refusal != "":
		return false, exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: %s; it stays asked for, and kubectl torpor start takes that back", r.target, row.refusal)}
	case row.isAsked != (v.verb == stopVerb) && !row.stops.HasExpired():
		return false, fmt.Errorf("%s: somebody asked for something else while this waited: expected it to be %s; see kubectl torpor why", r.target, v.verb.pastParticiple())
	default:
		return row.isReached(v.verb, r.wasAlready), nil
	}
}

// isReached reports whether the status says that the switch as it is now has had its effect. Of an app that was never started there is no
// stop in the record.
func (r stopRow) isReached(v verb, wasAlready bool) bool {
	if isDown := r.State == "stopped" || r.State == "Hibernating"; v == stopVerb {
		return isDown && (wasAlready || r.stops.Holds())
	}
	return !r.stops.Holds() && (r.State == "running" || r.State == "Running" || r.restsByItself)
}

// stateWord says of a part that it is as a verb makes it.
func (r stopRow) stateWord(v verb) string {
	switch {
	case v == startVerb:
		return "running"
	case v == restartVerb:
		return "restarted"
	case r.Kind == "ClusterDeployment":
		return "hibernating"
	default:
		return "stopped"
	}
}
