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
	// quietFor is how long nothing is said.
	quietFor = 2 * time.Second
	// settle is how long a status must stay as wished if it was so before somebody asked: then it may be about an
	// earlier wish, and the controller may see no change that it would report.
	settle = 3 * time.Second
)

// waiting is the wait for one cluster.
type waiting struct {
	*pause
	// fresh: the status was otherwise when or after the wish was written, so what it says now is about this wish.
	fresh bool
	// begun is when this began; since is when the status was seen as wished.
	begun, since time.Time
	// said is what was told last.
	said string
}

// await waits until the status reports the wish, and that it was reported for this wish.
func (p *pause) await(ctx context.Context, h *hub, r *pauseResult) {
	if r.err != nil {
		return
	}
	now := p.clock.Now()
	w := &waiting{pause: p, fresh: !r.Changed || r.asked.already || !p.reached(r.before), begun: now}
	reached, err := w.poll(ctx, h, r.Name)
	r.Reached, r.err = &reached, err
}

func (w *waiting) poll(ctx context.Context, h *hub, name string) (bool, error) {
	tick := w.clock.NewTicker(pollInterval)
	defer tick.Stop()
	last := "nothing was seen"
	for {
		c, err := h.cluster(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return false, err
		case w.part.stoppedAt(c.Annotations, w.clock.Now()) != w.stop:
			return false, fmt.Errorf("%s: somebody changed the wish while this waited: its %s is no longer to be %s", shown(c), w.part.name, w.verb())
		case w.settled(c):
			return true, nil
		default:
			last = w.lastSeen(c)
			w.progress(c, last)
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				err := fmt.Errorf("timed out: expected %s to be %s in MySQLCluster %q, found %s; it stays asked for", w.part.name, w.verb(), h.namespace+"/"+name, last)
				return false, exit.Error{Code: exit.TimedOut, Err: err}
			}
			return false, fmt.Errorf("wait for MySQLCluster %q: %w; it stays asked for", h.namespace+"/"+name, context.Cause(ctx))
		}
	}
}

// settled says whether the status is as wished, and not left from before.
func (w *waiting) settled(c *mocov1beta2.MySQLCluster) bool {
	if !w.reached(c) {
		w.fresh, w.since = true, time.Time{}
		return false
	}
	if w.since.IsZero() {
		w.since = w.clock.Now()
	}
	return w.fresh || w.clock.Since(w.since) >= settle
}

func (w *waiting) lastSeen(c *mocov1beta2.MySQLCluster) string {
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

func (w *waiting) progress(c *mocov1beta2.MySQLCluster, seen string) {
	if w.clock.Since(w.begun) < quietFor || w.said == seen {
		return
	}
	w.said = seen
	fmt.Fprintf(w.Err, "waiting for %s: %s\n", shown(c), seen)
}
