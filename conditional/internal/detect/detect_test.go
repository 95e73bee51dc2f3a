// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestLateSubscriberReceivesTheStateWithoutARequest(t *testing.T) {
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
		wantPresences(t, first, Served)
	})
}

func TestSubscriberReceivesOnlyItsKindsInOrder(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		gadget := widgetKind()
		gadget.Kind = "Gadget"
		j := s.follow(widgets())
		var pairs [][]Presence
		verdicts, cancel := s.Subscribe(Interest{Kinds: []schema.GroupVersionKind{gadget, widgetKind(), gadget}}, nil)
		go func() {
			for v := range verdicts {
				pairs = append(pairs, []Presence{v[0].Presence, v[1].Presence, v[2].Presence})
			}
		}()
		synctest.Wait()
		s.install(gadget, "1", 0)
		<-time.After(time.Minute)
		wantPresences(t, j, Absent)
		cancel()
		s.uninstall(gadget, 0)
		<-time.After(time.Minute)
		want := [][]Presence{{Absent, Absent, Absent}, {Served, Absent, Served}}
		if diff := cmp.Diff(want, pairs[len(pairs)-2:]); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestLastCancelEndsDetectionAndTheNextSubscriberRestartsIt(t *testing.T) {
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

func TestCancelDuringASlowQuery(t *testing.T) {
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

func TestASubscriberThatDoesNotReadDelaysNoOther(t *testing.T) {
	withSimulatedServer(t, func(t *testing.T, s *simulatedServer) {
		verdicts, cancel := s.Subscribe(widgets(), nil)
		j := s.follow(widgets())
		s.install(widgetKind(), "1", 0)
		<-time.After(5 * time.Millisecond)
		wantPresences(t, j, Absent, Served)
		if v := <-verdicts; v[0].Presence != Served {
			t.Errorf("got %+v, want the latest verdict only", v)
		}
		cancel()
		if _, open := <-verdicts; open {
			t.Error("the channel is open after the cancel")
		}
	})
}

func TestMain(m *testing.M) {
	// One of these handlers limits the rate of errors with the process's clock, which is decades ahead of the clock in
	// a synctest bubble.
	utilruntime.ErrorHandlers = nil
	os.Exit(testenv.RunWithoutLeaks(m, func() error { return goleak.Find() }))
}

func TestStripKeepsUsedFields(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1000, 0))
	full := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", UID: "1", ResourceVersion: "7", DeletionTimestamp: &deleted, Finalizers: []string{"a"},
			Labels:        map[string]string{automanaged: "true", "app": "b"},
			Annotations:   map[string]string{"schema": "very long"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "c"}},
		},
	}
	got, err := stripMetadata(full)
	testenv.Must(t, err)
	want := &metav1.PartialObjectMetadata{
		TypeMeta: full.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", UID: "1", ResourceVersion: "7", DeletionTimestamp: &deleted, Labels: map[string]string{automanaged: "true"},
		},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
	other := &metav1.PartialObjectMetadataList{}
	if same, err := stripMetadata(other); err != nil || same != any(other) {
		t.Errorf("got %v, %v, want that other objects stay as they are", same, err)
	}
}
