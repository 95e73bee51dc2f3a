// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// followInterval is the interval at which an app's logs are read from its nodes, for any number of followers. Their
	// client shows no line that is younger than two seconds, because it sorts lines of several instances.
	followInterval = time.Second
	// sharedPast is the minimum time that a round reads back, so that it also serves callers whose last poll is older.
	sharedPast = 5 * time.Second
	// maxSharedLines and maxFollowedApps limit the remembered rounds.
	maxSharedLines, maxFollowedApps = 1000, 16
	// maxLooks limits the remembered polls.
	maxLooks = 1 << 12
)

// logFollowers shares recent reads among all callers that follow the logs of one app. It also slows down each client,
// which polls four times a second, to one poll a second. It holds lines but no credentials: a caller gets shared lines
// only after a check of the caller's own rights.
type logFollowers struct {
	clock clock.Clock
	// looks holds the polls that returned fewer lines than their limit, each with the time of its response.
	looks *lru.LRUExpireCache

	mu     sync.Mutex
	rounds *lru.LRUExpireCache
}

// logLook identifies the poll that a client repeats while there are no new lines.
type logLook struct {
	caller string
	app    types.UID
	window LogWindow
}

// logRound is one read of the logs of all Pods of an app.
type logRound struct {
	began time.Time
	from  int64
	// narrowUntil is the time until which rounds only read the requested window, because the app has logged more than a
	// round can hold.
	narrowUntil time.Time
	// pods describes the Pods that were read, with their containers.
	pods string
	// done is closed when lines and isComplete are known.
	done  chan struct{}
	lines []LogLine
	// isComplete is true if lines holds all lines since the time in from.
	isComplete bool
}

func newLogFollowers(c clock.Clock) *logFollowers {
	return &logFollowers{clock: c, looks: lru.NewLRUExpireCacheWithClock(maxLooks, c), rounds: lru.NewLRUExpireCacheWithClock(maxFollowedApps, c)}
}

// isFollowing reports whether a window is open-ended, as that of a client that follows logs.
func (w LogWindow) isFollowing() bool { return !w.Descending && w.Until == math.MaxInt64 }

// awaitTurn waits until a repeated poll is due. The ends of ctx and stopped also end the wait.
func (f *logFollowers) awaitTurn(ctx context.Context, stopped <-chan struct{}, look logLook) {
	answered, _ := f.looks.Get(look)
	at, ok := answered.(time.Time)
	if !ok {
		return
	}
	timer := f.clock.NewTimer(followInterval - f.clock.Since(at))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-stopped:
	}
}

// noteAnswer delays the next identical poll if this one returned fewer lines than its limit.
func (f *logFollowers) noteAnswer(look logLook, lines int) {
	if lines < look.window.Limit {
		f.looks.Add(look, f.clock.Now(), followInterval)
	}
}

// joinRound returns a round that covers a window of an app's Pods. If isOwn is true, the round is new, and the caller
// has to read and finish it.
func (f *logFollowers) joinRound(app types.UID, pods []corev1.Pod, window LogWindow) (round *logRound, isOwn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, listed := f.clock.Now(), describePods(pods)
	known, _ := f.rounds.Get(app)
	last, _ := known.(*logRound)
	round = &logRound{began: now, from: window.From, pods: listed, done: make(chan struct{})}
	if last != nil {
		hasTooMuch := last.isDone() && !last.isComplete
		if !hasTooMuch && now.Sub(last.began) < followInterval && last.from <= window.From && last.pods == listed {
			return last, false
		}
		if round.narrowUntil = last.narrowUntil; hasTooMuch {
			round.narrowUntil = last.began.Add(sharedPast)
		}
	}
	if !now.Before(round.narrowUntil) {
		round.from = min(window.From, now.Add(-sharedPast).UnixNano())
	}
	// A round is remembered for longer than it is shared, so that a read that was too large is not repeated at once.
	f.rounds.Add(app, round, sharedPast)
	return round, true
}

// abandonRound makes the next poll begin a new round.
func (f *logFollowers) abandonRound(app types.UID, round *logRound) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, _ := f.rounds.Get(app); known == round {
		f.rounds.Remove(app)
	}
}

// window returns the window that a round reads.
func (r *logRound) window() LogWindow {
	return LogWindow{From: r.from, Until: math.MaxInt64, Limit: maxSharedLines}
}

func (r *logRound) finish(lines []LogLine, isComplete bool) {
	r.isComplete = isComplete
	// Incomplete lines cannot be shared, so they are not kept.
	if isComplete {
		r.lines = lines
	}
	close(r.done)
}

func (r *logRound) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// selectLines returns the lines of a window from a finished round. It returns false if the round may lack some of them.
func (r *logRound) selectLines(window LogWindow) ([]LogLine, bool) {
	if !r.isComplete {
		return nil, false
	}
	first := slices.IndexFunc(r.lines, func(l LogLine) bool { return l.At >= window.From })
	if first < 0 {
		return nil, true
	}
	return r.lines[first:min(len(r.lines), first+window.Limit)], true
}

// describePods returns the identities of the Pods that a caller may list, and of their containers.
func describePods(pods []corev1.Pod) string {
	var all strings.Builder
	for i := range pods {
		_, _ = fmt.Fprintf(&all, "%s", pods[i].UID)
		for j := range pods[i].Status.ContainerStatuses {
			c := &pods[i].Status.ContainerStatuses[j]
			_, _ = fmt.Fprintf(&all, " %s/%d", c.ContainerID, c.RestartCount)
		}
		all.WriteByte('\n')
	}
	return all.String()
}
