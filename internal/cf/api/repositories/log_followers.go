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
	// followInterval is how often an app's nodes are asked for those who follow its logs, however many there are. Their client shows no line
	// that is younger than two seconds, because lines of several instances have to be put in order.
	followInterval = time.Second
	// sharedPast is how far back a round reads at least, so that it has what others look for whose last look was a while ago.
	sharedPast = 5 * time.Second
	// maxSharedLines and maxFollowedApps bound what is remembered.
	maxSharedLines, maxFollowedApps = 1000, 16
	// maxLooks bounds the looks that are remembered.
	maxLooks = 1 << 12
)

// logFollowers lets those who follow the logs of one app share what was read a moment ago, and makes the client of each, which asks four times
// a second, look once. It holds lines and no credentials: who looks has shown that they may read the same.
type logFollowers struct {
	clock clock.Clock
	// looks has when a look was answered that found less than it may.
	looks *lru.LRUExpireCache

	mu     sync.Mutex
	rounds *lru.LRUExpireCache
}

// logLook is what a client asks again and again while there is nothing new.
type logLook struct {
	caller string
	app    types.UID
	window LogWindow
}

// logRound is one reading of all Pods of an app.
type logRound struct {
	began time.Time
	from  int64
	// narrowUntil is until when rounds read no more than a window wants, because the app has said more than a round can hold.
	narrowUntil time.Time
	// pods are those that were read, with the containers that they had.
	pods string
	// done is closed when lines and isComplete are known.
	done  chan struct{}
	lines []LogLine
	// isComplete says that all lines since from are there.
	isComplete bool
}

func newLogFollowers(c clock.Clock) *logFollowers {
	return &logFollowers{clock: c, looks: lru.NewLRUExpireCacheWithClock(maxLooks, c), rounds: lru.NewLRUExpireCacheWithClock(maxFollowedApps, c)}
}

// isFollowing reports whether a window is one that grows.
func (w LogWindow) isFollowing() bool { return !w.Descending && w.Until == math.MaxInt64 }

// awaitTurn returns when a look is due that had been answered before. The ends of ctx and of stopped end the wait too.
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

// noteAnswer lets the same look wait if there was less to see than it may show.
func (f *logFollowers) noteAnswer(look logLook, lines int) {
	if lines < look.window.Limit {
		f.looks.Add(look, f.clock.Now(), followInterval)
	}
}

// joinRound returns a round that has what a window wants of an app's Pods, or soon will, and whether it is a new one, which the caller has to
// read and to finish.
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
	// It is remembered for longer than it is shared, because what was too much once is not tried again at once.
	f.rounds.Add(app, round, sharedPast)
	return round, true
}

// abandonRound lets the next look begin anew.
func (f *logFollowers) abandonRound(app types.UID, round *logRound) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, _ := f.rounds.Get(app); known == round {
		f.rounds.Remove(app)
	}
}

// window is what a round reads.
func (r *logRound) window() LogWindow {
	return LogWindow{From: r.from, Until: math.MaxInt64, Limit: maxSharedLines}
}

func (r *logRound) finish(lines []LogLine, isComplete bool) {
	r.isComplete = isComplete
	// What cannot be shared is not kept.
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

// selectLines returns what a window wants of a round that is done; false if the round may lack something of it.
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

// describePods names the Pods that somebody may list, and the containers that have written what there is to read.
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
