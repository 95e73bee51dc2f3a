// SPDX-License-Identifier: Apache-2.0

// Package detect finds out whether an API server serves given kinds, and when that changes. A metadata-only watch of
// the CRDs wakes it, discovery decides, a watch probe makes sure that informers will sync; idle, it makes no request.
package detect

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Interest is what a subscriber wants to know, and how the detector may find it out. Where a watch is forbidden,
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

func (i Interest) validate() error {
	if len(i.Kinds) == 0 {
		return errors.New("expected at least one kind to look for, found none: name one")
	}
	for _, gvk := range i.Kinds {
		if gvk.Version == "" || gvk.Kind == "" {
			return fmt.Errorf("expected a version and a kind, found %q: complete it", gvk)
		}
	}
	if i.Poll < 0 {
		return fmt.Errorf("expected an interval of polls above 0, found %s: take 10s or more", i.Poll)
	}
	for _, name := range i.CRDs {
		if _, group, _ := strings.Cut(name, "."); group == "" {
			return fmt.Errorf("expected the name of a CRD, <plural>.<group>, found %q: complete it", name)
		}
	}
	return nil
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
	outcomes *outcomeCounter

	mu             sync.Mutex
	session        *detectionSession    // nil without subscribers
	loggedRefusals map[watchTarget]bool // the watches whose refusal was logged
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
	return &Detector{server: w, log: log, outcomes: &outcomeCounter{}, loggedRefusals: map[watchTarget]bool{}}
}

// Subscribe returns a channel of the verdicts on the kinds, in their order. It has what is known already at once, without a
// request, then whatever changes: only the latest verdicts wait, so a slow subscriber delays nobody. Cancel closes the
// channel and, after the last subscriber's, returns when the detector's goroutines have ended. It may be called more than once.
func (d *Detector) Subscribe(i Interest) (verdicts <-chan []Verdict, cancel func(), err error) {
	if err := i.validate(); err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		d.session = newDetectionSession(d.server, d.outcomes, d.logRefusal)
	}
	l := d.session
	s := &presenceSubscriber{interest: i, verdicts: make(chan []Verdict, 1)}
	l.addSubscriber(s, time.Now())
	return s.verdicts, func() { d.unsubscribe(l, s) }, nil
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

// KnownVerdict returns the present verdict on a kind, and false when it has no subscriber. It makes no request.
func (d *Detector) KnownVerdict(gvk schema.GroupVersionKind) (Verdict, bool) {
	d.mu.Lock()
	l := d.session
	d.mu.Unlock()
	if l == nil {
		return Verdict{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[gvk]
	if t == nil {
		return Verdict{}, false
	}
	return t.verdict, true
}

// ProbeCounts returns how many requests were made to discovery and to the kinds, by their result: served, absent,
// initializing or unreadable. Those of the watches do not count.
func (d *Detector) ProbeCounts() map[string]uint64 { return d.outcomes.countsByResult() }

// logRefusal logs once per watch that it is not allowed.
func (d *Detector) logRefusal(t watchTarget, err error) {
	d.mu.Lock()
	again := d.loggedRefusals[t]
	d.loggedRefusals[t] = true
	d.mu.Unlock()
	if !again {
		d.log.Info("may not list and watch "+t.resource+": polling discovery instead, starts and stops come up to a minute late",
			"name", t.name, "error", err.Error())
	}
}
