// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	pollInterval = 200 * time.Millisecond
	// progressDelay is how long nothing is printed.
	progressDelay = 2 * time.Second
	// settleTime is how long a status must stay as requested if it was so before the request: then it may be about an
	// earlier request, and the controller may see no change that it would report.
	settleTime = 3 * time.Second
)

// statusWait waits for the status of one cluster.
type statusWait struct {
	*partCommand
	// isFresh is true if the status was otherwise when or after the request was written, so that it is now about this request.
	isFresh bool
	// startedAt is when the wait began, and reachedAt when the status was first as requested.
	startedAt, reachedAt time.Time
	// lastPrinted is the last line of progress.
	lastPrinted string
}

// waitForStatus waits until the status reports the request, and not an earlier one.
func (p *partCommand) waitForStatus(ctx context.Context, kube *kubeClient, r *partResult) {
	if r.err != nil {
		return
	}
	now := p.clock.Now()
	w := &statusWait{partCommand: p, isFresh: !r.Changed || r.change.alreadyDone || !p.isReportedIn(r.before), startedAt: now}
	reached, err := w.pollUntilReached(ctx, kube, r.Name)
	r.Reached, r.err = &reached, err
}

func (w *statusWait) pollUntilReached(ctx context.Context, kube *kubeClient, name string) (bool, error) {
	tick := w.clock.NewTicker(pollInterval)
	defer tick.Stop()
	last := "nothing was seen"
	for {
		c, err := kube.getCluster(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return false, err
		case w.part.stoppedAt(c.Annotations, w.clock.Now()) != w.stop:
			return false, fmt.Errorf("%s: somebody changed the wish while this waited: its %s is no longer to be %s", describeCluster(c), w.part.name, w.pastParticiple())
		case w.isSettled(c):
			return true, nil
		default:
			last = w.describeStatus(c)
			w.printProgress(c, last)
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				err := fmt.Errorf("timed out: expected %s to be %s in MySQLCluster %q, found %s; it stays asked for", w.part.name, w.pastParticiple(), kube.namespace+"/"+name, last)
				return false, exit.Error{Code: exit.TimedOut, Err: err}
			}
			return false, fmt.Errorf("wait for MySQLCluster %q: %w; it stays asked for", kube.namespace+"/"+name, context.Cause(ctx))
		}
	}
}

// isSettled reports whether the status is as requested, and not left from before.
func (w *statusWait) isSettled(c *mocov1beta2.MySQLCluster) bool {
	if !w.isReportedIn(c) {
		w.isFresh, w.reachedAt = true, time.Time{}
		return false
	}
	if w.reachedAt.IsZero() {
		w.reachedAt = w.clock.Now()
	}
	return w.isFresh || w.clock.Since(w.reachedAt) >= settleTime
}

func (w *statusWait) describeStatus(c *mocov1beta2.MySQLCluster) string {
	found := w.part.conditionOf(c)
	text := fmt.Sprintf("%s %s", found.Type, found.Status)
	if found.Reason != "" {
		text += " (" + found.Reason + ")"
	}
	if found.Message != "" {
		text += ": " + found.Message
	}
	if found.Status == metav1.ConditionTrue && c.Status.Pause != nil && c.Status.Pause.Quiescing != "" {
		text += "; finishing: " + c.Status.Pause.Quiescing
	}
	return text
}

func (w *statusWait) printProgress(c *mocov1beta2.MySQLCluster, seen string) {
	if w.clock.Since(w.startedAt) < progressDelay || w.lastPrinted == seen {
		return
	}
	w.lastPrinted = seen
	fmt.Fprintf(w.Err, "waiting for %s: %s\n", describeCluster(c), seen)
}
