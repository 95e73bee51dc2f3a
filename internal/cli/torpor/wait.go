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
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	pollInterval = time.Second
	// progressDelay is how long a command waits before it prints progress.
	progressDelay = 2 * time.Second
)

// waitForStatus waits until the status of an object reports the requested state. The record of stops shows which
// request the controller has seen, so that the effect of an earlier request does not count.
func (v *verbCommand) waitForStatus(ctx context.Context, kube *kubeClient, r *verbResult) {
	if r.err != nil {
		return
	}
	isReached, last, printed, startedAt := false, "no status was observed", "", v.clock.Now()
	r.Reached = &isReached
	r.err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		obj, err := kube.getObject(ctx, r.target)
		if ctx.Err() != nil { // The request was interrupted, so its error does not concern the object.
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
		r.err = exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("timed out: expected %s to be %s, found %s; the request stays in effect",
			r.target, v.verb.pastParticiple(), last)}
	default:
		r.err = fmt.Errorf("wait for %s: %w; the request stays in effect", r.target, context.Cause(ctx))
	}
}

// judge reports whether the row has reached the requested state. It returns an error if the row will not reach it.
func (v *verbCommand) judge(row stopRow, obj client.Object, r *verbResult) (bool, error) {
	switch {
	case v.verb == restartVerb:
		restarter, _ := r.target.kind.Definition.(kinds.Restarter)
		_, settled := restarter.ReadRevisions(obj)
		return settled >= r.revision, nil
	case v.verb == startVerb && row.Refusal != "":
		return false, exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: %s; the request stays in effect, and kubectl moco start --force starts it anyway", r.target, row.Refusal)}
	case v.verb == stopVerb && row.Refusal != "":
		return false, exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: %s; the request stays in effect, and kubectl torpor start withdraws it", r.target, row.Refusal)}
	case row.IsAsked != (v.verb == stopVerb) && !row.Stops.HasExpired():
		return false, fmt.Errorf("%s: expected the object to be %s, found that another request replaced this one; run kubectl torpor why",
			r.target, v.verb.pastParticiple())
	default:
		return row.isReached(v.verb, r.wasAlready), nil
	}
}

// isReached reports whether the status shows the effect of the current request. The record of an app that was never
// started contains no stop.
func (r stopRow) isReached(v verb, wasAlready bool) bool {
	if isDown := r.State == "stopped" || r.State == "Hibernating"; v == stopVerb {
		return isDown && (wasAlready || r.Stops.Holds())
	}
	return !r.Stops.Holds() && (r.State == "running" || r.State == "Running" || r.RestsByItself)
}

// stateWord returns the word for the state after the verb.
func (t target) stateWord(v verb) string {
	switch v {
	case startVerb:
		return "running"
	case restartVerb:
		return "restarted"
	case stopVerb, extendVerb:
	}
	if namer, isNamed := t.kind.Definition.(kinds.StateNamer); isNamed {
		return namer.StoppedWord()
	}
	return "stopped"
}
