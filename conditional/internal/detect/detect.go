// SPDX-License-Identifier: Apache-2.0

// Package detect determines whether an API server serves given kinds, and detects changes. Events of a metadata-only
// watch of CRDs trigger discovery queries, which show whether a kind is served. Before a kind counts as served, a short
// watch of the kind, called a probe, ensures that informers can sync. While nothing changes and nothing is polled, the
// package only checks every five minutes whether discovery has changed.
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

// Interest describes the kinds that a subscriber follows, and how the detector may observe them. The caller must have
// validated it. Where a watch is forbidden, the detector queries discovery instead: first after 10 s, and then at
// growing intervals of up to one minute while nothing changes.
type Interest struct {
	Kinds []schema.GroupVersionKind
	// Poll, if not 0, makes the detector query discovery at this interval instead of watching.
	Poll time.Duration
	// CRDs, if not empty, lists the only CRDs that may be watched.
	CRDs []string
	// APIServices makes the detector also watch APIServices, for kinds of aggregated API servers.
	APIServices bool
}

// WithKinds returns an interest in these kinds with the same options.
func (i Interest) WithKinds(kinds ...schema.GroupVersionKind) Interest {
	i.Kinds = kinds
	return i
}

// watchTargets returns the watches that the interest needs.
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

// Detector reports to any number of subscribers which kinds one API server serves. It works only while it has
// subscribers. Each watch uses one or a few goroutines, and up to maxConcurrentLooks more goroutines query the server
// when queries are due.
type Detector struct {
	server   apiServer
	log      logr.Logger
	outcomes outcomeCounts

	mu      sync.Mutex
	session *detectionSession // session is nil without subscribers

	refusalsMu     sync.Mutex
	loggedRefusals map[watchTarget]bool // loggedRefusals are the forbidden watches that were logged
	onRefusal      map[*func()]struct{} // onRefusal holds the functions to call when a watch is forbidden, or allowed again
}

// New returns a detector that has not sent a request yet. It uses hc for all its requests, and never closes it.
func New(cfg *rest.Config, hc *http.Client, log logr.Logger) (*Detector, error) {
	w, err := newRESTServer(cfg, hc)
	if err != nil {
		return nil, err
	}
	return newDetector(w, log), nil
}

func newDetector(w apiServer, log logr.Logger) *Detector {
	counts := outcomeCounts{outcomeUnreadable: {}, outcomeMissing: {}, outcomeInitializing: {}, outcomePresent: {}}
	return &Detector{server: w, log: log, outcomes: counts, loggedRefusals: map[watchTarget]bool{}, onRefusal: map[*func()]struct{}{}}
}

// Subscribe returns a channel for the verdicts about the kinds, in their order. The channel immediately contains the
// known verdicts, without a request, and then receives every change. It buffers only the latest verdicts, so a slow
// subscriber does not delay others. If changed is not nil, it is called when new verdicts are available, and must not
// call the detector. Cancel closes the channel, and may be called more than once. The Cancel of the last subscriber
// returns when the detector's goroutines have ended.
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

// KnownVerdict returns the last verdict other than Unclear about a kind. isKnown is false if there was none. An
// unreachable server does not change the result. KnownVerdict sends no request.
func (d *Detector) KnownVerdict(gvk schema.GroupVersionKind) (v Verdict, isKnown bool) {
	d.readSession(func(l *detectionSession) {
		if t := l.kindOf(gvk); t != nil {
			v, isKnown = t.lastKnown()
		}
	})
	return v, isKnown
}

// readSession calls read with the lock of the session, if there is a session.
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

// ProbeCounts returns the number of discovery queries and probes by their result: served, absent, initializing or
// unreadable. Watches of CRDs and APIServices, and periodic checks whether discovery has changed, are not counted.
func (d *Detector) ProbeCounts() map[string]uint64 {
	counts := map[string]uint64{}
	for outcome, n := range d.outcomes {
		counts[string(outcome)] = n.Load()
	}
	return counts
}

// RefusedWatches returns the number of forbidden watches by resource.
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

// RefusedResources returns the resources of the forbidden watches that the interest needs.
func (d *Detector) RefusedResources(i Interest) (resources []string) {
	d.readSession(func(l *detectionSession) {
		for _, of := range i.watchTargets() {
			if w := l.watches[of]; w != nil && w.isRefused && !slices.Contains(resources, of.resource) {
				resources = append(resources, of.resource)
			}
		}
	})
	return resources
}

// OnRefusal registers a function to be called when a watch becomes forbidden or allowed, until cancel is called.
// changed must not call the detector.
func (d *Detector) OnRefusal(changed func()) (cancel func()) {
	d.refusalsMu.Lock()
	defer d.refusalsMu.Unlock()
	d.onRefusal[&changed] = struct{}{}
	return func() {
		d.refusalsMu.Lock()
		defer d.refusalsMu.Unlock()
		delete(d.onRefusal, &changed)
	}
}

// logRefusal logs that a watch is forbidden, or, without an error, that it is allowed again.
func (d *Detector) logRefusal(t watchTarget, err error) {
	d.refusalsMu.Lock()
	defer d.refusalsMu.Unlock()
	was := d.loggedRefusals[t]
	switch {
	case err != nil && !was:
		d.loggedRefusals[t] = true
		d.log.Info("not allowed to list and watch "+t.resource+": discovery is polled instead, "+
			"so starts and stops are up to a minute late",
			"name", t.name, "error", err.Error())
	case err == nil && was:
		delete(d.loggedRefusals, t)
		d.log.Info("now allowed to list and watch "+t.resource, "name", t.name)
	default:
		return
	}
	for changed := range d.onRefusal {
		(*changed)()
	}
}

// maxConcurrentLooks is the maximum number of concurrent queries. A slow query must not delay the others.
const maxConcurrentLooks = 8

// apiServer is the part of the API server that the detector needs. Tests simulate it.
type apiServer interface {
	// discoverKinds returns a result for each kind of the group version; nothing if the version is not served.
	discoverKinds(ctx context.Context, gv schema.GroupVersion) (map[string]lookResult, error)
	// probeWatch reports whether a resource can already be watched.
	probeWatch(ctx context.Context, gvr schema.GroupVersionResource) (bool, error)
	// runWatch runs a watch until ctx is cancelled, or until the server rejects the watch.
	runWatch(ctx context.Context, w *resourceWatch)
	// discoveryVersion returns a value that changes whenever the served kinds change. It is empty if the server does
	// not support this. last is the previous value.
	discoveryVersion(ctx context.Context, last string) (string, error)
}

// detectionSession is the detector's state between the first subscription and the end of the last one. Code that
// changes the state publishes the changes before it releases the lock.
type detectionSession struct {
	detector *Detector
	stop     chan struct{} // stop is closed by the last subscriber
	workers  sync.WaitGroup

	mu          sync.Mutex // mu guards the fields below and the objects to which they point
	subscribers int
	versions    map[schema.GroupVersion]*versionState
	watches     map[watchTarget]*resourceWatch
	jobs        []func()
	runningJobs int
	discovered  *string // discovered is the version of discovery at the last check; nil before the first

	// Changes that have to be published.
	unopened    []*resourceWatch
	rescheduled []*versionState
	outdated    map[*presenceSubscriber]struct{} // outdated holds subscribers that have not received the current verdicts
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

// lifetime returns a context that ends with the last subscriber.
func (l *detectionSession) lifetime() context.Context { return wait.ContextForChannel(l.stop) }

// publishChanges stores the verdicts for their subscribers, opens new watches, and starts due queries.
func (l *detectionSession) publishChanges() {
	if l.lifetime().Err() != nil {
		return // Nothing new may start, because the last subscriber waits for the workers.
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

// awaitLook starts the version's query if it is due. Otherwise it sets a timer for the query.
func (l *detectionSession) awaitLook(b *versionState, now time.Time) {
	switch {
	case b.isLooking || b.next.IsZero() || l.versions[b.gv] != b:
	case !now.Before(b.next):
		// Until this query ends, scheduleLook only records when the next one is due. If two queries ran concurrently,
		// the older response might be judged last.
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

// launchJobs starts jobs up to the limit. Each finished job makes room for another one.
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

// handleChange schedules queries for the kinds that an event may affect.
func (l *detectionSession) handleChange(c objectChange) {
	now := time.Now()
	first, group, _ := strings.Cut(c.name, ".")
	for gv, b := range l.versions {
		// The name of an APIService is <version>.<group>. A CRD with the name <plural>.<group> may have any version.
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

// noteChange records the deletion of the kind's CRD, or of its APIService unless the API server created the APIService
// itself.
func (t *kindState) noteChange(c objectChange, now time.Time) {
	plural, _, _ := strings.Cut(c.name, ".")
	switch {
	case !c.isDeleted:
	case c.resource == apiServiceResource && !c.old.automanaged:
		t.history = t.history.noteAPIServiceDeletion(now)
		t.judgements++ // The result of a probe in progress is outdated.
	case c.resource == crdResource && t.history.identity != "" && t.history.lastSeen.plural == plural:
		t.history = t.history.noteCRDDeletion(c.old.uid, now)
		t.judgements++
	}
}

// addCRDFacts adds to the result of a query what the watches have reported about the kind's CRD.
func (l *detectionSession) addCRDFacts(s lookResult, group string) lookResult {
	s.crdKnown, s.uid, s.terminating = false, "", false
	crd := s.plural + "." + group
	if w := l.watchOfCRD(crd); w != nil {
		s.crdKnown, s.uid, s.terminating = true, w.objects[crd].uid, w.objects[crd].terminating
	}
	return s
}

// watchOfCRD returns the watch that covers a CRD and has synced; nil if none exists.
func (l *detectionSession) watchOfCRD(crd string) *resourceWatch {
	// A watch of all CRDs serves the same purpose as a watch of this CRD.
	for _, of := range []watchTarget{{resource: crdResource}, {resource: crdResource, name: crd}} {
		if w := l.watches[of]; w != nil && w.isSynced && !w.isRefused {
			return w
		}
	}
	return nil
}

// mayHaveMissedDeletion reports whether the CRD of a kind may have been deleted while its watch was down.
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
	known       *Verdict // known is the last verdict that was not Unclear, if verdict is Unclear; nil if there was none
	judgements  uint64   // judgements counts verdicts and deletions; one during a probe makes the probe's result outdated
	isProbing   bool     // isProbing is true if a watch probe is in progress
}

// lastKnown returns the last verdict that was not Unclear. isKnown is false if there was none.
func (t *kindState) lastKnown() (v Verdict, isKnown bool) {
	if t.verdict.Presence != Unclear {
		return t.verdict, true
	}
	if t.known == nil {
		return Verdict{}, false
	}
	return *t.known, true
}

type presenceSubscriber struct {
	poll      time.Duration
	verdicts  chan []Verdict // verdicts has room for the latest verdicts
	changed   func()         // changed may be nil
	kinds     []*kindState   // kinds have the order of the interest
	watches   []*resourceWatch
	isRemoved bool
}

// leaveVerdicts replaces the verdicts that the subscriber has not received yet with the current ones.
func (s *presenceSubscriber) leaveVerdicts() {
	verdicts := make([]Verdict, len(s.kinds))
	for i, t := range s.kinds {
		verdicts[i] = t.verdict
	}
	select {
	case <-s.verdicts:
	default:
	}
	s.verdicts <- verdicts // The channel has room, because only this code sends, and the lock is held.
	if s.changed != nil {
		s.changed()
	}
}

// hasSettledWatches reports whether every watch has listed its objects or was rejected. Only then may queries start,
// because their results are judged with the CRDs that the watches have listed.
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

// kindOf returns the state of a kind; nil if no subscriber follows it.
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
		verdict: Verdict{Reason: ReasonDetecting, Message: "the API server has not been queried yet"},
	}
	b.kinds = append(b.kinds, t)
	return t
}

// scheduleFirstLooks schedules the first queries. If a watch has listed CRDs of the group, the event that made a kind
// served may have arrived before the subscription, and no further event will follow.
func (l *detectionSession) scheduleFirstLooks(s *presenceSubscriber, now time.Time) {
	for _, t := range s.kinds {
		if b := t.version; t.judgements == 0 {
			b.mayHaveMissedEvents = b.mayHaveMissedEvents || slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return w.knowsVersion(b.gv) })
			l.scheduleLook(b, now)
		}
	}
}

// removeSubscriber removes a subscriber, together with the watches and kinds that no other subscriber needs, and
// reports whether it was the last one. It may be called more than once.
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

// updateSchedule determines from a version's subscribers when the version is queried: at a fixed interval, after events
// of watches, or at growing intervals in place of a forbidden watch.
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
	// An event of the watch would have triggered the next query, but the watch is forbidden.
	if b.needsFallback && next.IsZero() {
		next = now.Add(pollMin)
	}
	l.scheduleLook(b, b.limitByPoll(next, now))
}

// scheduleLook schedules a query, unless an earlier one is scheduled. A query in progress is not affected.
func (l *detectionSession) scheduleLook(b *versionState, at time.Time) {
	if at.IsZero() || l.versions[b.gv] != b || !b.next.IsZero() && b.next.Before(at) {
		return
	}
	b.next = at
	l.rescheduled = append(l.rescheduled, b)
}
