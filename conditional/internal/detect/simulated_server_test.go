// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// simulatedServer is an API server in a synctest bubble, with a detector that queries it.
type simulatedServer struct {
	t *testing.T
	*Detector

	lines []string // lines of the log

	mu      sync.Mutex
	served  map[schema.GroupVersion]map[string]lookResult
	errs    map[schema.GroupVersion]error
	slow    map[schema.GroupVersion]time.Duration
	cold    bool  // if true, storages do not accept watches yet
	broken  error // error of every probe
	refuses map[string]bool
	objects map[watchTarget]*metav1.PartialObjectMetadata // keyed by resource and name
	watches map[watchTarget]*resourceWatch

	looks  map[schema.GroupVersion]int
	probes int
	checks int // number of requests for the discovery version
	busy   int
	most   int // maximum number of concurrent requests
}

func withSimulatedServer(t *testing.T, test func(t *testing.T, s *simulatedServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &simulatedServer{
			t: t, served: map[schema.GroupVersion]map[string]lookResult{}, errs: map[schema.GroupVersion]error{},
			slow: map[schema.GroupVersion]time.Duration{}, refuses: map[string]bool{}, looks: map[schema.GroupVersion]int{},
			objects: map[watchTarget]*metav1.PartialObjectMetadata{}, watches: map[watchTarget]*resourceWatch{},
		}
		s.Detector = newDetector(s, funcr.New(func(_, args string) { s.lines = append(s.lines, args) }, funcr.Options{}))
		test(t, s)
	})
}

func (s *simulatedServer) request(ctx context.Context, gv schema.GroupVersion) error {
	s.mu.Lock()
	s.busy++
	s.most = max(s.most, s.busy)
	slow := s.slow[gv]
	s.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
	return ctx.Err()
}

func (s *simulatedServer) discoverKinds(ctx context.Context, gv schema.GroupVersion) (map[string]lookResult, error) {
	if err := s.request(ctx, gv); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks[gv]++
	return maps.Clone(s.served[gv]), s.errs[gv]
}

func (s *simulatedServer) discoveryVersion(context.Context, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks++
	return fmt.Sprint(s.served), nil // fmt prints maps in the order of their keys.
}

func (s *simulatedServer) probeWatch(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	if err := s.request(ctx, gvr.GroupVersion()); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	return !s.cold, s.broken
}

func (s *simulatedServer) runWatch(ctx context.Context, w *resourceWatch) {
	s.mu.Lock()
	refused := s.refuses[w.target.resource]
	if !refused {
		s.watches[w.target] = w
	}
	s.mu.Unlock()
	if refused {
		w.giveUp(errors.New("forbidden"))
		return
	}
	s.list(w)
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watches, w.target)
	s.mu.Unlock()
}

// list sends all objects to a watch.
func (s *simulatedServer) list(w *resourceWatch) {
	s.mu.Lock()
	var all []any
	for of, m := range s.objects {
		if of.resource == w.target.resource && (w.target.name == "" || w.target.name == of.name) {
			all = append(all, m)
		}
	}
	s.mu.Unlock()
	if err := w.Replace(all, ""); err != nil {
		s.t.Error(err)
	}
}

// sendEvent changes an object, and notifies the watches. An empty UID deletes the object.
func (s *simulatedServer) sendEvent(of watchTarget, uid string, change ...func(*metav1.PartialObjectMetadata)) {
	s.t.Helper()
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: of.name, UID: types.UID(uid)}}
	for _, f := range change {
		f(m)
	}
	s.mu.Lock()
	old, there := s.objects[of]
	if s.objects[of] = m; uid == "" {
		delete(s.objects, of)
	}
	var ears []*resourceWatch
	for _, to := range []watchTarget{{resource: of.resource}, of} {
		if w := s.watches[to]; w != nil {
			ears = append(ears, w)
		}
	}
	s.mu.Unlock()
	for _, w := range ears {
		var err error
		switch {
		case uid == "":
			err = w.Delete(old)
		case there:
			err = w.Update(m)
		default:
			err = w.Add(m)
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

func crdNamed(name string) watchTarget { return watchTarget{resource: crdResource, name: name} }

// serve changes the kind that discovery returns. An empty plural removes the kind.
func (s *simulatedServer) serve(gvk schema.GroupVersionKind, plural string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gv := gvk.GroupVersion()
	if s.served[gv] == nil {
		s.served[gv] = map[string]lookResult{}
	}
	s.served[gv][gvk.Kind] = lookResult{outcome: outcomePresent, version: gvk.Version, scope: "Namespaced", plural: plural, watchable: true}
	if plural == "" {
		delete(s.served[gv], gvk.Kind)
	}
}

func (s *simulatedServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// install creates a CRD that is served after a delay.
func (s *simulatedServer) install(gvk schema.GroupVersionKind, uid string, after time.Duration) {
	s.t.Helper()
	s.sendEvent(crdNamed(plural(gvk)+"."+gvk.Group), uid)
	pass(after)
	s.serve(gvk, plural(gvk))
}

// uninstall deletes a CRD that is still served for a while.
func (s *simulatedServer) uninstall(gvk schema.GroupVersionKind, after time.Duration) {
	s.t.Helper()
	s.sendEvent(crdNamed(plural(gvk)+"."+gvk.Group), "")
	pass(after)
	s.serve(gvk, "")
}

// pass advances the bubble's clock. Timers of 0 are avoided, because Go 1.26.8 has crashed on one under -race.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// looksIn counts the queries during the given duration.
func (s *simulatedServer) looksIn(span time.Duration) int {
	synctest.Wait()
	before := s.count()
	pass(span)
	synctest.Wait()
	return s.count() - before
}

func (s *simulatedServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, looks := range s.looks {
		n += looks
	}
	return n
}

// verdictLog records the verdicts for the first kind of a subscription.
type verdictLog struct {
	cancel func()

	mu       sync.Mutex
	verdicts []Verdict
	at       time.Time // time of the last verdict
}

// follow subscribes until the test ends.
func (s *simulatedServer) follow(i Interest) *verdictLog {
	s.t.Helper()
	j := &verdictLog{}
	verdicts, cancel := s.Subscribe(i, nil)
	go func() {
		for v := range verdicts {
			j.mu.Lock()
			j.verdicts, j.at = append(j.verdicts, v[0]), time.Now()
			j.mu.Unlock()
		}
	}()
	j.cancel = cancel
	s.t.Cleanup(cancel)
	synctest.Wait()
	return j
}

// heard returns the verdicts so far. It omits the verdict that precedes the first query, because a newer verdict may
// have replaced it in the channel.
func (j *verdictLog) heard() []Verdict {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.verdicts), func(v Verdict) bool { return v.Reason == ReasonDetecting })
}

func (j *verdictLog) presences() []Presence {
	var all []Presence
	for _, v := range j.heard() {
		all = append(all, v.Presence)
	}
	return all
}

func (j *verdictLog) last() Verdict {
	all := j.heard()
	return all[len(all)-1]
}

// since returns the time since the last verdict.
func (j *verdictLog) since() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Since(j.at)
}

func widgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
}

func plural(gvk schema.GroupVersionKind) string { return "plural-of-" + gvk.Kind }

func widgets() Interest { return Interest{Kinds: []schema.GroupVersionKind{widgetKind()}} }
