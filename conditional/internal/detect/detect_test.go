// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnInterestSaysWhatIsMissing(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	cases := map[string]struct {
		in Interest
		ok bool
	}{
		"a kind of the core group":     {Interest{Kinds: []schema.GroupVersionKind{pod}}, true},
		"no kind":                      {Interest{}, false},
		"a kind without a version":     {Interest{Kinds: []schema.GroupVersionKind{{Group: "a.b", Kind: "C"}}}, false},
		"an interval below 0":          {Interest{Kinds: []schema.GroupVersionKind{pod}, Poll: -time.Second}, false},
		"the name of a CRD":            {Interest{Kinds: []schema.GroupVersionKind{pod}, CRDs: []string{"widgets.example.com"}}, true},
		"a CRD's name without a group": {Interest{Kinds: []schema.GroupVersionKind{pod}, CRDs: []string{"widgets"}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				cancel, err := s.Subscribe(c.in, func([]Verdict) {})
				if (err == nil) != c.ok {
					t.Errorf("error %v, want none: %v", err, c.ok)
				}
				if err == nil {
					cancel()
				}
			})
		})
	}
}

func TestALateSubscriberHearsAtOnceWithoutARequest(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.serve(widgetKind(), "widgets")
		first := s.follow(widgets())
		<-time.After(time.Hour)
		before := s.count()
		late := s.follow(widgets())
		if s.count() != before || late.since() != 0 {
			t.Errorf("%d requests, %s late", s.count()-before, late.since())
		}
		wantPresences(t, late, Served)
		wantPresences(t, first, Unclear, Served)
	})
}

func TestASubscriberHearsOnlyOfItsKindsInTheirOrder(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		gadget := widgetKind()
		gadget.Kind = "Gadget"
		j := s.follow(widgets())
		var pairs [][]Presence
		cancel, err := s.Subscribe(Interest{Kinds: []schema.GroupVersionKind{gadget, widgetKind(), gadget}}, func(v []Verdict) {
			pairs = append(pairs, []Presence{v[0].Presence, v[1].Presence, v[2].Presence})
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.install(gadget, "1", 0)
		<-time.After(time.Minute)
		wantPresences(t, j, Unclear, Absent)
		cancel()
		s.uninstall(gadget, 0)
		<-time.After(time.Minute)
		want := [][]Presence{{Unclear, Absent, Unclear}, {Absent, Absent, Absent}, {Served, Absent, Served}}
		if diff := cmp.Diff(want, pairs); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestTheLastCancelEndsEverythingAndTheNextSubscriberBeginsAnew(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		for range 3 {
			a, b := s.follow(widgets()), s.follow(widgets())
			before := s.count()
			a.cancel()
			a.cancel()
			s.sendEvent(crdNamed("others.example.com"), "1")
			<-time.After(time.Minute)
			if s.count() == before {
				t.Error("the other subscriber's detector is dead")
			}
			b.cancel()
			if _, ok := s.KnownVerdict(widgetKind()); ok || len(s.watches) != 0 {
				t.Errorf("known %v with %d watches, want nothing", ok, len(s.watches))
			}
			s.sendEvent(crdNamed("others.example.com"), "")
		}
	})
}

func TestCancelDuringASlowLook(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.set(func() { s.slow[widgetKind().GroupVersion()] = time.Hour })
		j := s.follow(widgets())
		begin := time.Now()
		j.cancel()
		if took := time.Since(begin); took != 0 {
			t.Errorf("cancel took %s, want that it ends the look", took)
		}
	})
}

func TestCancelWaitsForTheReportUnderWay(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.follow(widgets()) // Not the last one.
		entered, leave, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		cancel, err := s.Subscribe(widgets(), func([]Verdict) {
			close(entered)
			<-leave
			close(ended)
		})
		if err != nil {
			t.Fatal(err)
		}
		<-entered
		canceled := make(chan struct{})
		go func() {
			defer close(canceled)
			cancel()
			select {
			case <-ended:
			default:
				t.Error("cancel returned during the report")
			}
		}()
		synctest.Wait()
		close(leave)
		<-canceled
	})
}

func TestAReportMayCancelAndSubscribe(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		var log []string
		var cancel, next func()
		ready := make(chan struct{})
		cancel, err := s.Subscribe(widgets(), func([]Verdict) {
			<-ready
			log = append(log, "first begins")
			cancel() // The last one.
			var err error
			next, err = s.Subscribe(widgets(), func(v []Verdict) {
				log = append(log, "next hears")
				if v[0].Presence == Absent {
					next()
				}
			})
			if err != nil {
				t.Error(err)
			}
			<-time.After(time.Second) // Reports never overlap.
			log = append(log, "first ends")
		})
		if err != nil {
			t.Fatal(err)
		}
		close(ready)
		<-time.After(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"first begins", "first ends", "next hears", "next hears"}, log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		cancel()
		next()
	})
}

func TestReportsOfTwoDetectorsMayCancelEachOther(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		other := newDetector(s, s.log)
		var cancels [2]func()
		ready := make(chan struct{})
		for i, d := range []*Detector{s.Detector, other} {
			var err error
			cancels[i], err = d.Subscribe(widgets(), func([]Verdict) {
				<-ready
				cancels[1-i]()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(ready)
		synctest.Wait()
		cancels[0]()
		cancels[1]()
	})
}
