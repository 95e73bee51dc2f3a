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
	// followInterval is the interval at which an app's logs are read from the kubelets, regardless of the number of
	// followers. The client shows lines only after two seconds, because it sorts the lines of several instances.
	followInterval = time.Second
	// A round is one read of an app's logs. sharedPast is the minimum period that a round covers, so that the round
	// also serves callers whose last poll was earlier.
	sharedPast = 5 * time.Second
	// maxSharedLines limits the lines of a round, and maxFollowedApps limits the rounds in the cache.
	maxSharedLines, maxFollowedApps = 1000, 16
	// maxLooks limits the polls in the cache.
	maxLooks = 1 << 12
)

// logFollowers shares recent reads between all callers that follow the logs of one app. It also delays each client to
// one poll per second, because clients poll four times per second. It holds lines, but no credentials. A caller only
// receives shared lines after its own rights have been checked.
type logFollowers struct {
	clock clock.Clock
	// looks holds the polls whose response had fewer lines than their limit, with the time of the response.
	looks *lru.LRUExpireCache

	mu     sync.Mutex
	rounds *lru.LRUExpireCache
}

// logLook identifies a poll, which a client repeats until there are new lines.
type logLook struct {
	caller string
	app    types.UID
	window LogWindow
}

// logRound is a read of the logs of all Pods of an app.
type logRound struct {
	began time.Time
	from  int64
	// narrowUntil is the time until which rounds read only the requested window, because the app has logged more than a
	// round can hold.
	narrowUntil time.Time
	// pods describes the Pods whose logs the round reads, and their containers.
	pods string
	// done is closed when lines and isComplete are set.
	done  chan struct{}
	lines []LogLine
	// isComplete is true if lines contains all lines since the start of the round's period.
	isComplete bool
}

func newLogFollowers(c clock.Clock) *logFollowers {
	return &logFollowers{clock: c, looks: lru.NewLRUExpireCacheWithClock(maxLooks, c), rounds: lru.NewLRUExpireCacheWithClock(maxFollowedApps, c)}
}

// isFollowing reports whether a window has no end, which means that the client follows the logs.
func (w LogWindow) isFollowing() bool { return !w.Descending && w.Until == math.MaxInt64 }

// awaitTurn waits until a repeated poll is due, ctx is cancelled, or stopped is closed.
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

// noteAnswer delays the next identical poll if this poll returned fewer lines than its limit.
func (f *logFollowers) noteAnswer(look logLook, lines int) {
	if lines < look.window.Limit {
		f.looks.Add(look, f.clock.Now(), followInterval)
	}
}

// joinRound returns a round that covers a window of the logs of an app's Pods. If isOwn is true, the round is new, and
// the caller must read and finish it.
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
	// The cache keeps a round for longer than callers share it. Otherwise a read that was too large would be repeated
	// immediately.
	f.rounds.Add(app, round, sharedPast)
	return round, true
}

// abandonRound makes the next poll start a new round.
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
	// The lines of an incomplete round are dropped, because they cannot be shared.
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

// selectLines returns the lines in a window from a finished round. It returns false if the round may lack some of them.
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

// describePods returns the identities of Pods and of their containers.
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
