// SPDX-License-Identifier: Apache-2.0

// Package detect finds out whether an API server serves given kinds, and when that changes. A metadata-only watch of
// the CRDs wakes it, discovery decides, a watch probe makes sure that informers will sync; idle, it makes no request.
package detect

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Interest is what a subscriber wants to know, and how the detector may find it out; it was checked where it was given. Where a watch is forbidden,
// discovery is asked instead: after 10 s, then ever more rarely down to once a minute while nothing changes.
type Interest struct {
	Kinds []schema.GroupVersionKind
	// Poll, when it is not 0, asks discovery at this interval, and at no other time, instead of watching.
	Poll time.Duration
	// CRDs, when there are some, are the names of the only CRDs that may be watched.
	CRDs []string
	// APIServices also watches APIServices, for kinds of aggregated API servers.
	APIServices bool
}

// WithKinds is an interest in these kinds that may be looked for in the same way.
func (i Interest) WithKinds(kinds ...schema.GroupVersionKind) Interest {
	i.Kinds = kinds
	return i
}

// watchTargets are the watches that the interest needs.
func (i Interest) watchTargets() []watchTarget {
	if i.Poll > 0 {
		return nil
	}
	var all []watchTarget
	for _, name := range slices.Compact(slices.Sorted(slices.Values(i.CRDs))) {
		all = append(all, watchTarget{resource: crdResource, name: name})
	}
	if len(all) == 0 {
		all = append(all, watchTarget{resource: crdResource})
	}
	if i.APIServices {
		all = append(all, watchTarget{resource: apiServiceResource})
	}
	return all
}

// Detector tells many subscribers which kinds one API server serves. It works while there are subscribers: a goroutine or a
// few hold each watch, and up to maxConcurrentLooks look at the server when a look is due.
type Detector struct {
	server   apiServer
	log      logr.Logger
	outcomes outcomeCounts

	mu      sync.Mutex
	session *detectionSession // nil without subscribers

	refusalsMu     sync.Mutex
	loggedRefusals map[watchTarget]bool // the watches that are not allowed, as the log says
}

// New returns a detector that has not made a request yet. It uses hc for all of them, and never closes it.
func New(cfg *rest.Config, hc *http.Client, log logr.Logger) (*Detector, error) {
	w, err := newRESTServer(cfg, hc)
	if err != nil {
		return nil, err
	}
	return newDetector(w, log), nil
}

func newDetector(w apiServer, log logr.Logger) *Detector {
	counts := outcomeCounts{outcomeUnreadable: {}, outcomeMissing: {}, outcomeInitializing: {}, outcomePresent: {}}
	return &Detector{server: w, log: log, outcomes: counts, loggedRefusals: map[watchTarget]bool{}}
}

// Subscribe returns a channel of the verdicts on the kinds, in their order. It has what is known already at once, without a
// request, then whatever changes: only the latest verdicts wait, so a slow subscriber delays nobody. Changed, unless it is nil,
// is called when they wait, and must not call the detector. Cancel closes the
// channel and, after the last subscriber's, returns when the detector's goroutines have ended. It may be called more than once.
func (d *Detector) Subscribe(i Interest, changed func()) (verdicts <-chan []Verdict, cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		d.session = newDetectionSession(d)
	}
	l := d.session
	s := &presenceSubscriber{poll: i.Poll, changed: changed, verdicts: make(chan []Verdict, 1)}
	l.addSubscriber(s, i, time.Now())
	return s.verdicts, func() { d.unsubscribe(l, s) }
}

func (d *Detector) unsubscribe(l *detectionSession, s *presenceSubscriber) {
	d.mu.Lock()
	last := l.removeSubscriber(s, time.Now())
	if last && d.session == l {
		d.session = nil
	}
	d.mu.Unlock()
	if last {
		l.workers.Wait()
	}
}

// KnownVerdict returns the last verdict on a kind that was not Unclear, and false when there is none: a server that cannot be asked
// has taken nothing back. It makes no request.
func (d *Detector) KnownVerdict(gvk schema.GroupVersionKind) (v Verdict, isKnown bool) {
	d.readSession(func(l *detectionSession) {
		if t := l.kindOf(gvk); t != nil {
			v, isKnown = t.known, t.known.Presence != Unclear
		}
	})
	return v, isKnown
}

// readSession calls read with the lock of the session, if there is one.
func (d *Detector) readSession(read func(*detectionSession)) {
	d.mu.Lock()
	l := d.session
	d.mu.Unlock()
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		read(l)
	}
}

// ProbeCounts returns how many requests were made to discovery and to the kinds, by their result: served, absent,
// initializing or unreadable. Those of the watches do not count.
func (d *Detector) ProbeCounts() map[string]uint64 {
	counts := map[string]uint64{}
	for outcome, n := range d.outcomes {
		counts[string(outcome)] = n.Load()
	}
	return counts
}

// RefusedWatches counts the watches that are not allowed, by their resource.
func (d *Detector) RefusedWatches() map[string]int {
	counts := map[string]int{crdResource: 0, apiServiceResource: 0}
	d.readSession(func(l *detectionSession) {
		for t, w := range l.watches {
			if w.isRefused {
				counts[t.resource]++
			}
		}
	})
	return counts
}

// logRefusal logs that a watch is not allowed, or that it is allowed again when there is no error.
func (d *Detector) logRefusal(t watchTarget, err error) {
	d.refusalsMu.Lock()
	defer d.refusalsMu.Unlock()
	was := d.loggedRefusals[t]
	switch {
	case err != nil && !was:
		d.loggedRefusals[t] = true
		d.log.Info("may not list and watch "+t.resource+": polling discovery instead, starts and stops come up to a minute late",
			"name", t.name, "error", err.Error())
	case err == nil && was:
		delete(d.loggedRefusals, t)
		d.log.Info("may list and watch "+t.resource+" now", "name", t.name)
	}
}

// maxConcurrentLooks is how many requests may be under way: one that is slow must not hold up the others.
const maxConcurrentLooks = 8

// apiServer is the part of the API server that the detector needs; tests simulate it.
type apiServer interface {
	// discoverKinds returns a result for each kind of the group version, and none when it is not served.
	discoverKinds(ctx context.Context, gv schema.GroupVersion) (map[string]lookResult, error)
	// probeWatch reports whether a resource can be watched already.
	probeWatch(ctx context.Context, gvr schema.GroupVersionResource) (bool, error)
	// runWatch feeds a watch until ctx ends, or until it has refused it.
	runWatch(ctx context.Context, w *resourceWatch)
	// discoveryVersion changes with what the server serves, and is empty when it does not say; last is the former answer.
	discoveryVersion(ctx context.Context, last string) (string, error)
}

// detectionSession is the detector's work from the first subscriber to the last. Whoever changes its state publishes the
// changes before the lock is released.
type detectionSession struct {
	detector *Detector
	stop     chan struct{} // closed with the last subscriber
	workers  sync.WaitGroup

	mu          sync.Mutex // of everything below, and of what it points to
	subscribers int
	versions    map[schema.GroupVersion]*versionState
	watches     map[watchTarget]*resourceWatch
	jobs        []func()
	runningJobs int
	discovered  *string // the version of discovery at the last check; nil before the first

	// What is to be published.
	unopened    []*resourceWatch
	rescheduled []*versionState
	outdated    map[*presenceSubscriber]struct{} // they have not got the present verdicts
}

func newDetectionSession(d *Detector) *detectionSession {
	l := &detectionSession{
		detector: d, stop: make(chan struct{}),
		versions: map[schema.GroupVersion]*versionState{},
		watches:  map[watchTarget]*resourceWatch{},
		outdated: map[*presenceSubscriber]struct{}{},
	}
	l.jobs = append(l.jobs, l.checkDiscovery)
	return l
}

// lifetime ends with the last subscriber.
func (l *detectionSession) lifetime() context.Context { return wait.ContextForChannel(l.stop) }

// publishChanges leaves the verdicts for their subscribers, opens new watches, and starts what is due.
func (l *detectionSession) publishChanges() {
	if l.lifetime().Err() != nil {
		return // Nothing may start any more: the last subscriber waits for the workers.
	}
	for s := range l.outdated {
		s.leaveVerdicts()
	}
	clear(l.outdated)
	for _, w := range l.unopened {
		w.startReflector(l.lifetime())
	}
	l.unopened = nil
	l.startDueLooks()
}

func (l *detectionSession) startDueLooks() {
	now := time.Now()
	for _, b := range l.rescheduled {
		l.awaitLook(b, now)
	}
	l.rescheduled = nil
	l.launchJobs()
}

// awaitLook starts a look that is due, or a timer.
func (l *detectionSession) awaitLook(b *versionState, now time.Time) {
	switch {
	case b.isLooking || b.next.IsZero() || l.versions[b.gv] != b:
	case !now.Before(b.next):
		// From here on scheduleLook only notes the next time: of two looks at once the older answer could be judged
		// last.
		b.isLooking, b.next = true, time.Time{}
		l.jobs = append(l.jobs, b.look)
	case b.timer == nil:
		b.timer = time.AfterFunc(b.next.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.rescheduled = append(l.rescheduled, b)
			l.startDueLooks()
		})
	default:
		b.timer.Reset(b.next.Sub(now))
	}
}

// launchJobs starts jobs as far as there is room; each one that ends makes room for another.
func (l *detectionSession) launchJobs() {
	for l.runningJobs < maxConcurrentLooks && len(l.jobs) > 0 && l.lifetime().Err() == nil {
		job := l.jobs[0]
		l.jobs = l.jobs[1:]
		l.runningJobs++
		l.workers.Go(func() {
			job()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.runningJobs--
			l.launchJobs()
		})
	}
}

// handleChange makes looks due at the kinds that an event may concern.
func (l *detectionSession) handleChange(c objectChange) {
	now := time.Now()
	first, group, _ := strings.Cut(c.name, ".")
	for gv, b := range l.versions {
		// An APIService is named <version>.<group>. A CRD is <plural>.<group>, and may have any version.
		if gv.Group != group || c.resource == apiServiceResource && gv.Version != first {
			continue
		}
		for _, t := range b.kinds {
			t.noteChange(c, now)
		}
		b.noteEvent(c.isCreated, now)
		l.scheduleLook(b, now)
	}
}

// noteChange records that the kind goes with its CRD, or with its APIService unless the API server made that by itself.
func (t *kindState) noteChange(c objectChange, now time.Time) {
	plural, _, _ := strings.Cut(c.name, ".")
	switch {
	case !c.isDeleted:
	case c.resource == apiServiceResource && !c.old.automanaged:
		t.history = t.history.noteDeletion("", now)
		t.judgements++ // The result of a probe that is under way is stale.
	case c.resource == crdResource && t.history.identity != "" && t.history.lastSeen.plural == plural:
		t.history = t.history.noteDeletion(c.old.uid, now)
		t.judgements++
	}
}

// addCRDFacts adds to the result of a look what the watches know of the kind's CRD.
func (l *detectionSession) addCRDFacts(s lookResult, group string) lookResult {
	s.crdKnown, s.uid, s.terminating = false, "", false
	crd := s.plural + "." + group
	if w := l.watchOfCRD(crd); w != nil {
		s.crdKnown, s.uid, s.terminating = true, w.objects[crd].uid, w.objects[crd].terminating
	}
	return s
}

// watchOfCRD returns the watch that has listed a CRD; nil if there is none.
func (l *detectionSession) watchOfCRD(crd string) *resourceWatch {
	// One watch of all CRDs is as good as one of this CRD alone.
	for _, of := range []watchTarget{{resource: crdResource}, {resource: crdResource, name: crd}} {
		if w := l.watches[of]; w != nil && w.isSynced && !w.isRefused {
			return w
		}
	}
	return nil
}

// mayHaveMissedDeletion reports whether the CRD of a kind may have gone while its watch is away.
func (l *detectionSession) mayHaveMissedDeletion(t *kindState) bool {
	if t.history.lastSeen == nil {
		return false
	}
	w := l.watchOfCRD(t.history.lastSeen.plural + "." + t.version.gv.Group)
	return w != nil && w.isAway
}

type kindState struct {
	kind        string
	version     *versionState
	subscribers []*presenceSubscriber
	history     kindHistory
	verdict     Verdict
	known       Verdict // the last one that was not Unclear
	judgements  uint64  // counts verdicts; one that is given while a probe is under way makes the probe's result stale
	isProbing   bool    // a watch probe is under way
}

type presenceSubscriber struct {
	poll      time.Duration
	verdicts  chan []Verdict // has room for the latest ones
	changed   func()         // may be nil
	kinds     []*kindState   // in the order of the interest's kinds
	watches   []*resourceWatch
	isRemoved bool
}

// leaveVerdicts leaves the present verdicts in the place of those that the subscriber has not taken yet.
func (s *presenceSubscriber) leaveVerdicts() {
	verdicts := make([]Verdict, len(s.kinds))
	for i, t := range s.kinds {
		verdicts[i] = t.verdict
	}
	select {
	case <-s.verdicts:
	default:
	}
	s.verdicts <- verdicts // There is room: nothing else sends, and this is done with the lock held.
	if s.changed != nil {
		s.changed()
	}
}

// hasSettledWatches reports whether looks may begin: a look needs to know the CRDs that the watches have listed.
func (s *presenceSubscriber) hasSettledWatches() bool {
	return !slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return !w.isSynced && !w.isRefused })
}

func (l *detectionSession) addSubscriber(s *presenceSubscriber, i Interest, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers++
	for _, of := range i.watchTargets() {
		w := l.watches[of]
		if w == nil {
			w = &resourceWatch{session: l, target: of, subscribers: map[*presenceSubscriber]struct{}{}, objects: map[string]objectFacts{}}
			l.watches[of] = w
			l.unopened = append(l.unopened, w)
		}
		w.subscribers[s] = struct{}{}
		s.watches = append(s.watches, w)
	}
	for _, gvk := range i.Kinds {
		t := l.stateOfKind(gvk)
		t.subscribers = append(t.subscribers, s)
		s.kinds = append(s.kinds, t)
		l.updateSchedule(t.version, now)
	}
	if s.hasSettledWatches() {
		l.scheduleFirstLooks(s, now)
	}
	l.outdated[s] = struct{}{}
	l.publishChanges()
}

// kindOf returns the state of a kind, nil if there is none.
func (l *detectionSession) kindOf(gvk schema.GroupVersionKind) *kindState {
	b := l.versions[gvk.GroupVersion()]
	if b == nil {
		return nil
	}
	if i := slices.IndexFunc(b.kinds, func(t *kindState) bool { return t.kind == gvk.Kind }); i >= 0 {
		return b.kinds[i]
	}
	return nil
}

func (l *detectionSession) stateOfKind(gvk schema.GroupVersionKind) *kindState {
	if t := l.kindOf(gvk); t != nil {
		return t
	}
	gv := gvk.GroupVersion()
	b := l.versions[gv]
	if b == nil {
		b = &versionState{gv: gv, pause: doubtPause}
		b.look = func() { l.lookAtVersion(b) }
		l.versions[gv] = b
	}
	t := &kindState{
		kind: gvk.Kind, version: b,
		verdict: Verdict{Reason: ReasonDetecting, Message: "the API server has not been asked yet"},
	}
	b.kinds = append(b.kinds, t)
	return t
}

// scheduleFirstLooks makes the first looks due. Where a watch knows CRDs of the group, the event that makes a kind served
// may have come before the subscription, so that none follows.
func (l *detectionSession) scheduleFirstLooks(s *presenceSubscriber, now time.Time) {
	for _, t := range s.kinds {
		if b := t.version; t.judgements == 0 {
			b.mayHaveMissedEvents = b.mayHaveMissedEvents || slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return w.knowsVersion(b.gv) })
			l.scheduleLook(b, now)
		}
	}
}

// removeSubscriber drops a subscriber with the watches and kinds that no other one needs, and reports whether it was the
// last one. It may be called again.
func (l *detectionSession) removeSubscriber(s *presenceSubscriber, now time.Time) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.isRemoved {
		return l.subscribers == 0
	}
	s.isRemoved = true
	l.subscribers--
	for _, w := range s.watches {
		if delete(w.subscribers, s); len(w.subscribers) == 0 {
			w.stopReflector()
			delete(l.watches, w.target)
		}
	}
	for _, t := range s.kinds {
		if t.subscribers = withoutElement(t.subscribers, s); len(t.subscribers) == 0 {
			l.dropKind(t)
		}
	}
	delete(l.outdated, s)
	close(s.verdicts)
	if l.subscribers == 0 {
		close(l.stop)
		return true
	}
	for _, t := range s.kinds {
		l.updateSchedule(t.version, now)
	}
	l.publishChanges()
	return false
}

func (l *detectionSession) dropKind(t *kindState) {
	b := t.version
	if b.kinds = withoutElement(b.kinds, t); len(b.kinds) > 0 || l.versions[b.gv] != b {
		return
	}
	delete(l.versions, b.gv)
	if b.timer != nil {
		b.timer.Stop()
	}
}

func withoutElement[E comparable](all []E, gone E) []E {
	return slices.DeleteFunc(all, func(e E) bool { return e == gone })
}

// updateSchedule derives from a version's subscribers how it may be looked at.
func (l *detectionSession) updateSchedule(b *versionState, now time.Time) {
	b.pollInterval, b.hasWatchers, b.needsFallback = 0, false, false
	for _, t := range b.kinds {
		for _, s := range t.subscribers {
			if s.poll == 0 {
				b.hasWatchers = true
				b.needsFallback = b.needsFallback || slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return w.isRefused })
			} else if b.pollInterval == 0 || s.poll < b.pollInterval {
				b.pollInterval = s.poll
			}
		}
	}
	next := b.next
	// The event of a watch would have caused the next look, and the watch is forbidden.
	if b.needsFallback && next.IsZero() {
		next = now.Add(pollMin)
	}
	l.scheduleLook(b, b.limitByPoll(next, now))
}

// scheduleLook plans a look, unless a sooner one is planned; one under way is not disturbed.
func (l *detectionSession) scheduleLook(b *versionState, at time.Time) {
	if at.IsZero() || l.versions[b.gv] != b || !b.next.IsZero() && b.next.Before(at) {
		return
	}
	b.next = at
	l.rescheduled = append(l.rescheduled, b)
}
