// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func wantPresences(t *testing.T, j *verdictLog, want ...Presence) {
	t.Helper()
	if diff := cmp.Diff(want, j.presences()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestAMissingKindIsFoundWithinMillisecondsAndCostsNothingBefore(t *testing.T) {
	for _, seconds := range []int{0, 1, 119, 121, 600} {
		t.Run(fmt.Sprintf("installed after %d s", seconds), func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				j := s.follow(widgets())
				if n := s.count(); n != 1 {
					t.Errorf("%d looks at the start, want 1", n)
				}
				if n := s.looksIn(time.Duration(seconds) * time.Second); n != 0 {
					t.Errorf("%d looks before the CRD is installed, want 0", n)
				}
				s.install(widgetKind(), "1", 13*time.Millisecond) // The event arrives before the kind is served.
				<-time.After(20 * time.Millisecond)
				wantPresences(t, j, Absent, Served)
				if n := s.looksIn(time.Minute); n > 12 {
					t.Errorf("%d looks in the minute after an event, want at most 12", n)
				}
				if n := s.looksIn(time.Hour); n > 1 {
					t.Errorf("%d looks in a quiet hour, want one at most, since the server serves more than at the last check", n)
				}
			})
		})
	}
}

func TestDetectorIgnoresEventsOfOtherGroups(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		s.sendEvent(crdNamed("gadgets.example.org"), "1")
		if n := s.looksIn(time.Hour); n != 0 {
			t.Errorf("%d looks after an event of another group, want 0", n)
		}
		s.sendEvent(crdNamed("gadgets.example.com"), "2")
		if n := s.looksIn(time.Minute); n == 0 {
			t.Error("no look after an event of the group")
		}
		wantPresences(t, j, Absent)
	})
}

func TestLateKindIsFoundSoonAndMissingKindIsNotQueried(t *testing.T) {
	for _, late := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 1900 * time.Millisecond} {
		withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
			j := s.follow(widgets())
			s.install(widgetKind(), "1", late)
			<-time.After(eagerPause)
			wantPresences(t, j, Absent, Served)
		})
	}
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		s.sendEvent(crdNamed("widgets.example.com"), "1") // The names are taken, so the CRD is never established.
		if n := s.looksIn(time.Minute); n > 90 {
			t.Errorf("%d looks at a kind that is not served, want at most 90", n)
		}
		if n := s.looksIn(24 * time.Hour); n != 0 {
			t.Errorf("%d looks in a quiet day, want 0", n)
		}
		s.sendEvent(crdNamed("widgets.example.com"), "1") // The names are free.
		<-time.After(3 * time.Millisecond)
		s.serve(widgetKind(), "widgets")
		<-time.After(5 * time.Millisecond)
		wantPresences(t, j, Absent, Served)
	})
}

func TestACRDThatIsEstablishedSecondsLaterIsFoundAtItsSecondEvent(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		<-time.After(5 * time.Second) // With several API servers, a CRD is established seconds after its creation.
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		<-time.After(500 * time.Millisecond)
		s.serve(widgetKind(), "widgets")
		<-time.After(eagerPause)
		wantPresences(t, j, Absent, Served)
	})
}

func TestAKindThatIsServedAMomentAfterTheStartNeedsNoEvent(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		j := s.follow(widgets())
		<-time.After(50 * time.Millisecond)
		s.serve(widgetKind(), "widgets")
		<-time.After(100 * time.Millisecond)
		wantPresences(t, j, Absent, Served)
	})
}

func TestServedKindTakesOneQueryAndOneProbe(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.install(widgetKind(), "1", 0)
		j := s.follow(widgets())
		if n := s.looksIn(time.Hour); n != 0 || s.count() != 1 || s.probes != 1 {
			t.Errorf("%d looks and %d probes at the start, %d later, want 1, 1 and 0", s.count()-n, s.probes, n)
		}
		wantPresences(t, j, Served)
	})
}

func TestAKindIsFollowed(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		s.install(widgetKind(), "1", 0)
		<-time.After(time.Minute)
		s.uninstall(widgetKind(), 5*time.Millisecond)
		<-time.After(10 * time.Millisecond)
		wantPresences(t, j, Absent, Served, Unclear, Absent)
		s.install(widgetKind(), "2", 5*time.Millisecond)
		<-time.After(10 * time.Millisecond)
		want := Verdict{Presence: Served, Reason: "Served", Identity: "2/v1/Namespaced/plural-of-Widget", Plural: "plural-of-Widget", Namespaced: true, UID: "2"}
		if diff := cmp.Diff(want, j.last()); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
		if got, ok := s.KnownVerdict(widgetKind()); !ok || got != want {
			t.Errorf("known: %+v, %v, want the verdict", got, ok)
		}
		if _, ok := s.KnownVerdict(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}); ok {
			t.Error("a kind without a subscriber is known")
		}
	})
}

func TestAnotherCRDOfTheSameNameIsAnotherIdentity(t *testing.T) {
	for name, replace := range map[string]func(*simulatedServer){
		"an update with another UID: another identity": func(s *simulatedServer) { s.sendEvent(crdNamed("widgets.example.com"), "2") },
		"a list with another UID after a gap: another identity": func(s *simulatedServer) {
			w := s.watches[watchTarget{resource: crdResource}]
			s.set(func() { delete(s.watches, w.target) })
			s.sendEvent(crdNamed("widgets.example.com"), "2")
			s.set(func() { s.watches[w.target] = w })
			s.list(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				s.sendEvent(crdNamed("widgets.example.com"), "1")
				s.serve(widgetKind(), "widgets")
				j := s.follow(widgets())
				replace(s)
				wantPresences(t, j, Served, Served)
				if got := j.last().UID; got != "2" {
					t.Errorf("UID %q, want 2", got)
				}
				if s.probes != 2 {
					t.Errorf("%d watch probes, want one per CRD", s.probes)
				}
			})
		})
	}
}

func TestAnObjectThatIsGoneInAListIsGone(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		<-time.After(time.Minute)
		s.serve(widgetKind(), "")
		s.set(func() { clear(s.objects) })
		s.list(s.watches[watchTarget{resource: crdResource}])
		wantPresences(t, j, Served, Absent)
	})
}

func TestATerminatingCRDIsReportedAndStaysServed(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		before := j.last()
		s.sendEvent(crdNamed("widgets.example.com"), "1", func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = new(metav1.NewTime(time.Now())) })
		got := j.last()
		if !got.Terminating || got.Reason != "Terminating" || got.Presence != Served || got.Identity != before.Identity {
			t.Errorf("got %+v after %+v", got, before)
		}
	})
}

func TestRemovedVersionIsUnclearForTwoSeconds(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		<-time.After(time.Minute)
		s.sendEvent(crdNamed("widgets.example.com"), "1") // The event about served: false arrives before the change takes effect.
		s.serve(widgetKind(), "")
		<-time.After(1900 * time.Millisecond)
		wantPresences(t, j, Served, Unclear)
		<-time.After(time.Minute)
		wantPresences(t, j, Served, Unclear, Absent)
	})
}

func TestDisagreeingServersKeepTheKindServed(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		for i := range 600 {
			s.serve(widgetKind(), []string{"widgets", ""}[i%2])
			s.sendEvent(crdNamed("widgets.example.com"), "1")
			<-time.After(100 * time.Millisecond)
		}
		for _, v := range j.heard() {
			if v.Presence == Absent {
				t.Fatal("one server's no was believed")
			}
		}
	})
}

func TestDiscoveryOutageKeepsKindsServed(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		<-time.After(time.Minute)
		gv := widgetKind().GroupVersion()
		s.set(func() { s.errs[gv] = errors.New("connection refused") })
		s.watches[watchTarget{resource: crdResource}].noteDisconnect()
		if n := s.looksIn(time.Hour); n < 60 || n > 130 {
			t.Errorf("%d looks in an hour of outage, want one per half minute", n)
		}
		s.set(func() { delete(s.errs, gv) })
		<-time.After(time.Minute)
		wantPresences(t, j, Served, Unclear, Served)
		if a, b := j.heard()[0].Identity, j.last().Identity; a != b {
			t.Errorf("identity %s became %s", a, b)
		}
	})
}

// KnownVerdict reports the deletion of the CRD until the kind is served again, because a scope may need a long time to
// reconcile the last deletions.
func TestDeletionIsReportedUntilTheKindIsServedAgain(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.install(widgetKind(), "1", 0)
		j := s.follow(widgets())
		gv := widgetKind().GroupVersion()
		for _, step := range []struct {
			presence   Presence
			wasDeleted bool
			change     func()
		}{
			{Absent, true, func() { s.uninstall(widgetKind(), 0) }},
			{Unclear, true, func() { s.set(func() { s.errs[gv] = errors.New("connection refused") }) }},
			{Absent, true, func() {
				s.set(func() { s.cold = true; delete(s.errs, gv) })
				s.install(widgetKind(), "2", 0)
			}},
			{Served, false, func() { s.set(func() { s.cold = false }) }},
		} {
			step.change()
			<-time.After(time.Second)
			if known, ok := s.KnownVerdict(widgetKind()); !ok || j.last().Presence != step.presence || known.Deleted != step.wasDeleted {
				t.Errorf("expected presence %d and %t, found %+v, known as %+v", step.presence, step.wasDeleted, j.last(), known)
			}
		}
	})
}

func TestAColdStorageIsAwaited(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		s.set(func() { s.cold = true })
		s.install(widgetKind(), "1", 0)
		<-time.After(150 * time.Millisecond)
		if got := j.last().Reason; got != "StorageInitializing" {
			t.Errorf("reason %s, want StorageInitializing", got)
		}
		s.set(func() { s.cold = false })
		<-time.After(eagerPause)
		wantPresences(t, j, Absent, Absent, Served)
		got := s.ProbeCounts()
		if got["initializing"] == 0 || got["served"] == 0 || got["absent"] == 0 || got["unreadable"] != 0 {
			t.Errorf("probes %v", got)
		}
		if total := got["initializing"] + got["served"] + got["absent"]; total != uint64(s.count()+s.probes) {
			t.Errorf("%d requests counted, %d made", total, s.count()+s.probes)
		}
	})
}

func TestUnwatchableKindIsProbedWithBackOff(t *testing.T) {
	for name, refused := range map[string]bool{"with the watch of CRDs": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				s.set(func() { s.broken, s.refuses[crdResource] = errors.New("conversion webhook is down"), refused })
				j := s.follow(widgets())
				s.install(widgetKind(), "1", 0)
				<-time.After(5 * time.Minute)
				if n := s.looksIn(time.Hour); n < 60 || n > 400 {
					t.Errorf("%d looks in an hour, want one per half minute", n)
				}
				s.set(func() { s.broken = nil })
				<-time.After(time.Minute)
				if got := j.last(); got.Presence != Served {
					t.Errorf("got %+v, want that it is served", got)
				}
			})
		})
	}
}

func TestFlappingEndsInTheLastState(t *testing.T) {
	for end, want := range map[string]Presence{"2": Served, "": Absent} {
		withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
			j := s.follow(widgets())
			for i := range 600 {
				s.install(widgetKind(), fmt.Sprint("u", i), 3*time.Millisecond)
				<-time.After(47 * time.Millisecond)
				s.uninstall(widgetKind(), 3*time.Millisecond)
				<-time.After(47 * time.Millisecond)
			}
			if n := s.count(); n > 600*20 {
				t.Errorf("%d looks at 600 cycles, want at most 20 each", n)
			}
			if end != "" {
				s.install(widgetKind(), end, 0)
			}
			<-time.After(time.Second)
			if got := j.last(); got.Presence != want || got.UID != end {
				t.Errorf("got %+v, want presence %d of %q", got, want, end)
			}
		})
	}
}

func TestSlowGroupVersionDoesNotDelayOthers(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		slow := schema.GroupVersionKind{Group: "slow.example.com", Version: "v1", Kind: "Snail"}
		s.set(func() { s.slow[slow.GroupVersion()] = time.Minute })
		lame := s.follow(Interest{Kinds: []schema.GroupVersionKind{slow}})
		j := s.follow(widgets())
		s.install(widgetKind(), "1", 3*time.Millisecond)
		<-time.After(5 * time.Millisecond)
		wantPresences(t, j, Absent, Served)
		<-time.After(lookTimeout) // The slow query has a deadline.
		if got := lame.last().Reason; got != "DiscoveryFailed" {
			t.Errorf("reason %s of the slow kind, want DiscoveryFailed", got)
		}
	})
}

func TestEventsOfFiveHundredKindsAtOnce(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		kinds := make([]schema.GroupVersionKind, 500)
		journals := make([]*verdictLog, 500)
		for i := range kinds {
			kinds[i] = schema.GroupVersionKind{Group: fmt.Sprintf("g%d.example.com", i/10), Version: "v1", Kind: fmt.Sprint("Kind", i)}
			s.set(func() { s.slow[kinds[i].GroupVersion()] = time.Millisecond })
			journals[i] = s.follow(Interest{Kinds: kinds[i : i+1]})
		}
		<-time.After(time.Second)
		if n := s.count(); n > 500 {
			t.Errorf("%d looks at the start, want at most 500", n)
		}
		before := s.count()
		for i, gvk := range kinds {
			s.install(gvk, fmt.Sprint(i), 0)
		}
		<-time.After(200 * time.Millisecond)
		if n := s.count() - before; n > 50*8 {
			t.Errorf("%d looks at 50 group versions, want one per round", n)
		}
		for i, j := range journals {
			wantPresences(t, j, Absent, Served)
			if t.Failed() {
				t.Fatalf("kind %d: %+v", i, j.heard())
			}
		}
		if s.most > maxConcurrentLooks {
			t.Errorf("%d requests at once, want at most %d", s.most, maxConcurrentLooks)
		}
	})
}

func TestAWatchThatIsNotAllowedIsReplacedByPolls(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.set(func() { s.refuses[crdResource] = true })
		j := s.follow(widgets())
		s.follow(widgets())
		<-time.After(10 * time.Minute)
		if n := s.looksIn(time.Hour); n != 60 {
			t.Errorf("%d polls in a quiet hour, want 60", n)
		}
		s.serve(widgetKind(), "widgets")
		<-time.After(time.Minute)
		if n := s.looksIn(25 * time.Second); n < 1 || n > 2 {
			t.Errorf("%d polls in the 25 s soon after a change, want 1 or 2: the pause grows from 10 s again", n)
		}
		s.serve(widgetKind(), "")
		<-time.After(2 * time.Minute)
		wantPresences(t, j, Absent, Served, Unclear, Absent)
		if len(s.lines) != 1 || !strings.Contains(s.lines[0], crdResource) {
			t.Errorf("log %q, want one line", s.lines)
		}
	})
}

func TestAWatchThatIsRefusedLaterIsReplacedByPollsAndNothingRestarts(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		j := s.follow(widgets())
		<-time.After(time.Minute)
		s.set(func() { s.refuses[crdResource] = true })
		s.watches[watchTarget{resource: crdResource}].giveUp(errors.New("forbidden"))
		<-time.After(10 * time.Minute)
		if n := s.looksIn(time.Hour); n != 60 {
			t.Errorf("%d polls in a quiet hour, want 60", n)
		}
		wantPresences(t, j, Served)
		late := s.follow(widgets())
		wantPresences(t, late, Served)
	})
}

func TestAWatchThatWasForbiddenOnceComesBack(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.set(func() { s.refuses[crdResource] = true })
		var calls, none atomic.Int32
		s.OnRefusal(func() { none.Add(1) })()
		defer s.OnRefusal(func() { calls.Add(1) })()
		j := s.follow(widgets())
		if got := s.RefusedResources(widgets()); calls.Load() != 1 || !slices.Equal(got, []string{crdResource}) {
			t.Errorf("%d calls and the refused resources %v, want 1 and %s", calls.Load(), got, crdResource)
		}
		if got := s.RefusedResources(Interest{Poll: time.Minute}); len(got) > 0 {
			t.Errorf("an interest that polls misses %v, want nothing", got)
		}
		if got := s.RefusedWatches()[crdResource]; got != 1 {
			t.Errorf("%d watches of CRDs are refused, want 1", got)
		}
		<-time.After(30 * time.Minute)
		s.set(func() { s.refuses[crdResource] = false }) // The right to watch CRDs is granted now.
		<-time.After(pollMax)
		if got := s.RefusedWatches()[crdResource]; got != 0 {
			t.Errorf("%d watches of CRDs are refused a poll after the right was granted, want 0", got)
		}
		if got := s.RefusedResources(widgets()); calls.Load() != 2 || none.Load() != 0 || len(got) > 0 {
			t.Errorf("%d calls, %d after a cancel, and the refused resources %v, want 2, 0 and none", calls.Load(), none.Load(), got)
		}
		s.install(widgetKind(), "1", 0)
		<-time.After(5 * time.Millisecond)
		wantPresences(t, j, Absent, Served)
		if n := s.looksIn(24 * time.Hour); n > 14 {
			t.Errorf("%d looks in a quiet day with a watch, want those after an event", n)
		}
		if len(s.lines) != 2 {
			t.Errorf("log %q, want one line for the refusal and one for its end", s.lines)
		}
	})
}

func TestAKindWithoutACRDIsNoticedWithinMinutes(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		j := s.follow(widgets())
		<-time.After(24 * time.Hour)
		s.serve(widgetKind(), "widgets") // An upgraded API server serves another kind, and sends no event.
		<-time.After(2 * discoveryInterval)
		wantPresences(t, j, Absent, Served)
		s.serve(widgetKind(), "")
		<-time.After(2 * discoveryInterval)
		wantPresences(t, j, Absent, Served, Unclear, Absent)
		checks := s.checks
		if n := s.looksIn(24 * time.Hour); n != 0 {
			t.Errorf("%d looks in a quiet day, want 0", n)
		}
		if n := s.checks - checks; n > 300 {
			t.Errorf("%d checks in a day, want one in five minutes", n)
		}
	})
}

func TestCRDChangedDuringALostWatchIsQueried(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		s.install(widgetKind(), "1", 0)
		j := s.follow(widgets())
		s.set(func() { s.objects[crdNamed(plural(widgetKind())+".example.com")].ResourceVersion = "2" }) // The version of the kind is no longer served.
		s.serve(widgetKind(), "")
		s.list(s.watches[watchTarget{resource: crdResource}]) // The server has compacted the watch's resource version.
		<-time.After(missesSpan + time.Second)
		wantPresences(t, j, Served, Unclear, Absent)
	})
}

// While the watch is down, the detector cannot receive the deletion of the CRD. The detector waits for the watch,
// because controllers can reconcile the last deletions only after the detector has observed the deletion of the CRD.
func TestDeletionDuringALostWatchIsAwaited(t *testing.T) {
	for _, row := range []struct {
		name      string
		away      time.Duration
		late      time.Duration // time between the reconnection and the first event
		isDeleted bool
		change    func(s *simulatedServer, crd watchTarget)
	}{
		{"a CRD that was deleted: its deletion is reported", 20 * time.Second, 0, true, func(s *simulatedServer, crd watchTarget) { delete(s.objects, crd) }},
		{"a CRD that was deleted, with a late event: its deletion is reported", time.Second, 9 * time.Second, true, func(s *simulatedServer, crd watchTarget) { delete(s.objects, crd) }},
		{"a version that is no longer served: no deletion is reported", 20 * time.Second, 0, false, func(s *simulatedServer, crd watchTarget) { s.objects[crd].ResourceVersion = "2" }},
		{"a watch that does not reconnect: no deletion is reported", time.Hour, 0, false, func(s *simulatedServer, crd watchTarget) { delete(s.objects, crd) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				crd := crdNamed(plural(widgetKind()) + ".example.com")
				s.install(widgetKind(), "1", 0)
				j := s.follow(widgets())
				w := s.watches[watchTarget{resource: crdResource}]
				s.set(func() { row.change(s, crd) })
				s.serve(widgetKind(), "")
				w.noteDisconnect()
				<-time.After(min(row.away, watchGrace+longPause))
				if row.away < watchGrace {
					wantPresences(t, j, Served, Unclear)
					w.noteConnect()
					pass(row.late)
					wantPresences(t, j, Served, Unclear)
					s.list(w)
					<-time.After(missesSpan + time.Second)
				}
				wantPresences(t, j, Served, Unclear, Absent)
				if v := j.last(); v.Deleted != row.isDeleted {
					t.Errorf("expected that a deletion was seen: %t, found %+v", row.isDeleted, v)
				}
			})
		})
	}
}

func TestPollQueriesOnlyAtItsInterval(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		polls := widgets()
		polls.Poll = 5 * time.Second
		j := s.follow(polls)
		if n := s.looksIn(time.Hour + time.Second); n != 720 || len(s.watches) != 0 || s.checks != 0 {
			t.Errorf("%d polls in an hour, %d watches and %d checks, want 720, 0 and 0", n, len(s.watches), s.checks)
		}
		s.serve(widgetKind(), "widgets")
		<-time.After(5 * time.Second)
		s.serve(widgetKind(), "")
		if n := s.looksIn(time.Minute); n != 12 {
			t.Errorf("%d polls in a minute with a change, want 12", n)
		}
		wantPresences(t, j, Absent, Served, Unclear, Absent)

		s.sendEvent(crdNamed("widgets.example.com"), "1")
		s.serve(widgetKind(), "widgets")
		<-time.After(5 * time.Second)
		blind := j.last()
		w := s.follow(widgets()) // A subscriber that also watches CRDs adds the UID to the verdict. The UID causes no restart.
		<-time.After(time.Minute)
		if got := j.last(); got.UID != "1" || got.Identity != blind.Identity || w.last() != got {
			t.Errorf("got %+v and %+v after %+v", got, w.last(), blind)
		}
		w.cancel()
		<-time.After(time.Minute)
		if got := j.last(); got.UID != "1" || got.Identity != blind.Identity {
			t.Errorf("got %+v after the watch ended, before %+v", got, blind)
		}
		if n := s.looksIn(time.Hour); n < 719 || n > 721 {
			t.Errorf("%d polls in an hour, want 720", n)
		}
	})
}

func TestNamedCRDsAreWatchedOneByOne(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		named := widgets()
		named.CRDs = []string{plural(widgetKind()) + ".example.com", "gadgets.example.com"}
		j := s.follow(named)
		var got []string
		for of := range s.watches {
			got = append(got, of.name)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"gadgets.example.com", "plural-of-Widget.example.com"}, got); diff != "" {
			t.Errorf("watches (-want +got):\n%s", diff)
		}
		s.install(widgetKind(), "1", 0)
		s.sendEvent(crdNamed("others.example.com"), "2")
		<-time.After(time.Minute)
		s.serve(widgetKind(), "")
		s.uninstall(widgetKind(), 0)
		<-time.After(5 * time.Millisecond)
		wantPresences(t, j, Absent, Served, Absent)
	})
}

func TestAPIServicesTriggerDetectionOfKindsWithoutCRD(t *testing.T) {
	service := watchTarget{resource: apiServiceResource, name: "v1.example.com"}
	own := func(m *metav1.PartialObjectMetadata) { m.Labels = map[string]string{automanaged: "true"} }
	both := widgets()
	both.APIServices = true
	cases := map[string]struct {
		crd   string
		label []func(*metav1.PartialObjectMetadata)
		want  []Presence // in the first second after the deletion, while discovery does not list the kind
	}{
		"a deleted APIService of an aggregated API: absent":      {want: []Presence{Absent, Served, Absent}},
		"a deleted APIService of the API server itself: unclear": {label: []func(*metav1.PartialObjectMetadata){own}, want: []Presence{Absent, Served, Unclear}},
		"a deleted APIService of a kind with a CRD: unclear":     {crd: "1", want: []Presence{Absent, Served, Unclear}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
				if c.crd != "" {
					s.sendEvent(crdNamed("widgets.example.com"), c.crd)
				}
				j := s.follow(both)
				<-time.After(time.Minute)
				s.sendEvent(service, "1", c.label...)
				<-time.After(3 * time.Millisecond)
				s.serve(widgetKind(), "widgets")
				<-time.After(time.Minute)
				s.serve(widgetKind(), "")
				s.sendEvent(service, "", c.label...)
				<-time.After(time.Second)
				wantPresences(t, j, c.want...)
				// The server of an aggregated API still stores the objects.
				if v := j.last(); v.Deleted {
					t.Errorf("expected no deletion of objects, found %+v", v)
				}
			})
		})
	}
}

func TestFiveHundredSubscribersShareOneQueryAndOneWatch(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		for range 500 {
			s.follow(widgets())
		}
		synctest.Wait()
		if len(s.watches) != 1 || s.count() != 1 {
			t.Errorf("%d watches and %d looks, want one of each", len(s.watches), s.count())
		}
	})
}
