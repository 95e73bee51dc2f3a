// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// maxConcurrentLooks is how many requests may be under way: one that is slow must not hold up the others.
const maxConcurrentLooks = 8

// apiServer is the part of the API server that the loop needs; tests simulate it.
type apiServer interface {
	// discoverKinds returns a result for each kind of the group version, and none when it is not served.
	discoverKinds(ctx context.Context, gv schema.GroupVersion) (map[string]lookResult, error)
	// probeWatch reports whether a resource can be watched already.
	probeWatch(ctx context.Context, gvr schema.GroupVersionResource) (bool, error)
	// runWatch feeds a watch until ctx ends, or until it has refused it.
	runWatch(ctx context.Context, w *resourceWatch)
}

// detectionLoop does the detector's work from the first subscriber to the last.
type detectionLoop struct {
	server     apiServer
	outcomes   *outcomeCounter
	logRefusal func(watchTarget, error)
	stop       chan struct{} // closed by the detector
	ended      chan struct{} // closed by run
	wakeup     chan struct{}
	workers    sync.WaitGroup

	mu              sync.Mutex // of everything below, and of what it points to
	reportDone      sync.Cond
	subscribers     int
	kinds           map[schema.GroupVersionKind]*kindState
	versions        map[schema.GroupVersion]*versionState
	versionsByGroup map[string][]*versionState
	watches         map[watchTarget]*resourceWatch
	unopened        []*resourceWatch
	lookQueue       lookQueue
	jobs            []func(context.Context)
	runningJobs     int // jobs under way
	pendingReports  []*presenceSubscriber
	reporting       *presenceSubscriber // whose report is under way
}

func newDetectionLoop(w apiServer, t *outcomeCounter, refused func(watchTarget, error)) *detectionLoop {
	l := &detectionLoop{
		server: w, outcomes: t, logRefusal: refused,
		stop: make(chan struct{}), ended: make(chan struct{}), wakeup: make(chan struct{}, 1),
		kinds: map[schema.GroupVersionKind]*kindState{}, versions: map[schema.GroupVersion]*versionState{},
		versionsByGroup: map[string][]*versionState{}, watches: map[watchTarget]*resourceWatch{},
	}
	l.reportDone.L = &l.mu
	return l
}

// run serves until the detector stops it. It waits for the end of the previous loop, so that reports never overlap.
func (l *detectionLoop) run(before <-chan struct{}) {
	defer close(l.ended)
	if before != nil {
		<-before
	}
	ctx, cancel := context.WithCancel(wait.ContextForChannel(l.stop))
	defer l.workers.Wait()
	defer cancel()
	timer := time.NewTimer(longPause)
	defer timer.Stop()
	for ctx.Err() == nil {
		// Reports come before the wait: each of them may add or remove subscribers, and with them work that is due.
		next := l.startDueWork(ctx, time.Now())
		if l.deliverReport() {
			continue
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-l.wakeup:
		case <-timer.C:
		}
	}
}

// startDueWork opens new watches and starts due looks. It returns when the next one is due.
func (l *detectionLoop) startDueWork(ctx context.Context, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.unopened {
		w.startReflector(ctx)
	}
	l.unopened = nil
	for b := l.lookQueue.popDue(now); b != nil; b = l.lookQueue.popDue(now) {
		// From here on scheduleLook only notes the next time: of two looks at once the older answer could be judged
		// last.
		b.isLooking = true
		l.jobs = append(l.jobs, func(ctx context.Context) { l.lookAtVersion(ctx, b) })
	}
	l.launchJobs(ctx)
	return l.lookQueue.nextDue()
}

// launchJobs starts jobs as far as there is room; each one that ends makes room for another.
func (l *detectionLoop) launchJobs(ctx context.Context) {
	for l.runningJobs < maxConcurrentLooks && len(l.jobs) > 0 && ctx.Err() == nil {
		job := l.jobs[0]
		l.jobs = l.jobs[1:]
		l.runningJobs++
		l.workers.Go(func() {
			job(ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.runningJobs--
			l.launchJobs(ctx)
		})
	}
}

func (l *detectionLoop) wakeUp() {
	select {
	case l.wakeup <- struct{}{}:
	default: // The loop has yet to take the last wake-up, and will see this change too.
	}
}

// handleChange makes looks due at the kinds that an event may concern.
func (l *detectionLoop) handleChange(c objectChange) {
	now := time.Now()
	first, group, _ := strings.Cut(c.name, ".")
	boards := l.versionsByGroup[group]
	// An APIService is named <version>.<group>. A CRD is <plural>.<group>, and may have any version.
	if c.resource == apiServiceResource {
		boards = nil
		if b := l.versions[schema.GroupVersion{Group: group, Version: first}]; b != nil {
			boards = []*versionState{b}
		}
	}
	for _, b := range boards {
		for _, t := range b.kinds {
			t.noteChange(c, now)
		}
		b.noteEvent(c.isCreated, now)
		l.scheduleLook(b, now)
	}
	l.wakeUp()
}

// noteChange records that the kind goes with its CRD, or with its APIService unless the API server made that by itself.
func (t *kindState) noteChange(c objectChange, now time.Time) {
	plural, _, _ := strings.Cut(c.name, ".")
	switch {
	case !c.isDeleted:
	case c.resource == apiServiceResource && !c.old.automanaged:
		t.history = t.history.noteDeletion("", now)
		t.judgements++ // The result of a probe that is under way is stale.
	case c.resource == crdResource && t.history.lastSeen.plural == plural:
		t.history = t.history.noteDeletion(c.old.uid, now)
		t.judgements++
	}
}

func (l *detectionLoop) knownVerdict(gvk schema.GroupVersionKind) (Verdict, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[gvk]
	if t == nil {
		return Verdict{}, false
	}
	return t.verdict, true
}

// addCRDFacts adds to the result of a look what the watches know of the kind's CRD.
func (l *detectionLoop) addCRDFacts(s lookResult, group string) lookResult {
	s.crdKnown, s.uid, s.terminating = false, "", false
	crd := s.plural + "." + group
	// One watch of all CRDs is as good as one of this CRD alone.
	for _, of := range []watchTarget{{resource: crdResource}, {resource: crdResource, name: crd}} {
		if w := l.watches[of]; w != nil && w.isSynced && !w.isRefused {
			s.crdKnown, s.uid, s.terminating = true, w.objects[crd].uid, w.objects[crd].terminating
			return s
		}
	}
	return s
}
