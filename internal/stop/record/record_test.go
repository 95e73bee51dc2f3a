// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func start() time.Time { return time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC) }

func TestNotesNameTheLastWriter(t *testing.T) {
	const until, note = "torpor.dev/clustering-until", "torpor.dev/clustering-until-noted"
	type annotations = map[string]string
	for name, row := range map[string]struct {
		before, after annotations
		want, by      string
	}{
		"new end: noted as alice's":                                      {nil, annotations{until: "8h"}, "8h by alice", "alice"},
		"changed end: noted as alice's":                                  {annotations{until: "8h", note: "8h by bob"}, annotations{until: "9h", note: "8h by bob"}, "9h by alice", "alice"},
		"unchanged end: noted as bob's":                                  {annotations{until: "8h", note: "8h by bob"}, annotations{until: "8h"}, "8h by bob", "bob"},
		"forged note of an unchanged end: noted as bob's":                {annotations{until: "8h", note: "8h by bob"}, annotations{until: "8h", note: "8h by the-ceo"}, "8h by bob", "bob"},
		"forged note of an end without a note: no author":                {annotations{until: "8h"}, annotations{until: "8h", note: "8h by the-ceo"}, "", ""},
		"removed end: no author":                                         {annotations{until: "8h", note: "8h by bob"}, annotations{note: "8h by bob"}, "", ""},
		"note about an earlier end: no author":                           {annotations{until: "9h", note: "8h by bob"}, annotations{until: "9h"}, "8h by bob", ""},
		"end with more than the maximum number of characters: no author": {nil, annotations{until: strings.Repeat("9h", 40)}, "", ""},
		"end with the maximum number of characters: noted as alice's":    {nil, annotations{until: strings.Repeat("ü", 64)}, strings.Repeat("ü", 64) + " by alice", "alice"},
		"empty end: no author":                                           {nil, annotations{until: ""}, " by alice", ""},
		"end that contains the separator of notes: noted as alice's":     {nil, annotations{until: "8h by bob"}, "8h by bob by alice", "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			found := stoprecord.NextAuthorNote(row.before, row.after, until, "alice")
			if by := stoprecord.ReadAuthor(annotations{until: row.after[until], note: found}, until); found != row.want || by != row.by {
				t.Errorf("expected the note %q by %q, found %q by %q", row.want, row.by, found, by)
			}
		})
	}
}

func TestParseUntil(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-23T22:00:00Z":      start().Add(13 * time.Hour),
		"2026-11-24T00:00:00+02:00": start().Add(13 * time.Hour),
		"8h":                        start().Add(8 * time.Hour),
		"1h30m":                     start().Add(90 * time.Minute),
	} {
		t.Run(text, func(t *testing.T) {
			found, err := stoprecord.ParseUntil(text, start())
			if err != nil || !found.Equal(want) {
				t.Errorf("expected %s, found %s: %v", want, found, err)
			}
		})
	}
	for _, text := range []string{"", "tomorrow", "8", "-8h", "0s", "2026-11-23", "2026-11-23 22:00", strings.Repeat("9h", 40)} {
		t.Run("invalid end "+text, func(t *testing.T) {
			_, err := stoprecord.ParseUntil(text, start())
			if err == nil || !strings.Contains(err.Error(), "expected a time such as") || len(err.Error()) > 300 {
				t.Errorf("found %v", err)
			}
			told := stoprecord.Records{{Requested: true, RequestedUntil: text}}.DescribeIgnored("torpor.dev/instances-until")
			isTold := strings.HasPrefix(told, "torpor.dev/instances-until is ignored: expected a time such as") && strings.HasSuffix(told, "correct or remove it")
			if isTold != (text != "") {
				t.Errorf("expected the annotation and what to do, found %q", told)
			}
		})
	}
}

// switchStory is a sequence of changes to a switch and of passes of the manager.
type switchStory struct {
	records stoprecord.Records
	now     time.Time
	asked   stoprecord.Request
	writes  int
}

func (s *switchStory) stop(by, until string) {
	s.asked = stoprecord.Request{IsStopped: true, By: by, Version: s.nextVersion(), At: s.now, Until: until, UntilWrittenAt: s.now, Reason: "a change of disks"}
}

func (s *switchStory) start(by string) {
	s.asked.IsStopped, s.asked.By, s.asked.Version, s.asked.At = false, by, s.nextVersion(), s.now
}

// nextVersion returns the resource version after another write of the object.
func (s *switchStory) nextVersion() string {
	s.writes++
	return strconv.Itoa(s.writes)
}

func (s *switchStory) setUntil(until string) { s.asked.Until, s.asked.UntilWrittenAt = until, s.now }

func (s *switchStory) look() { s.records = stoprecord.NextRecords(s.records, s.asked, s.now) }

func (s *switchStory) wait(d time.Duration) { s.now = s.now.Add(d) }

func (s *switchStory) expect(t *testing.T, holds bool, what string) {
	t.Helper()
	s.look()
	if s.records.Holds() != holds {
		t.Errorf("%s: expected a stop that holds: %t; found %+v", what, holds, s.records)
	}
}

func stories() map[string]func(*testing.T, *switchStory) {
	return map[string]func(*testing.T, *switchStory){
		"a stop without an end is in effect until a start": func(t *testing.T, s *switchStory) {
			s.stop("alice", "")
			s.expect(t, true, "at once")
			s.wait(1000 * time.Hour)
			s.expect(t, true, "later")
			s.start("bob")
			s.expect(t, false, "after the start")
			if r := s.records[0]; r.By != "alice" || r.StartedBy != "bob" || !r.EndedAt.Equal(s.records[0].EndedAt) || r.EndedAt.Sub(r.Since.Time) != 1000*time.Hour || r.Requested {
				t.Errorf("found %+v", r)
			}
		},
		"a stop ends at its requested end, and remains ended": func(t *testing.T, s *switchStory) {
			s.stop("alice", "2026-11-23T10:00:00Z")
			s.expect(t, true, "at once")
			s.wait(time.Hour - time.Nanosecond)
			s.expect(t, true, "a moment before")
			if before := s.records; before.HasReachedEnd(s.now) || !before.HasReachedEnd(s.now.Add(time.Nanosecond)) {
				t.Error("expected the record of the last pass to show from the end on that the stop is over")
			}
			s.wait(time.Nanosecond)
			s.expect(t, false, "at its time")
			s.wait(time.Hour)
			s.expect(t, false, "later")
			if r := s.records[0]; r.StartedBy != torporv1alpha1.UntilAnnotation || !r.Requested || !s.records.HasExpired() {
				t.Errorf("found %+v", r)
			}
		},
		"a stop whose end passed before the first pass is recorded as ended": func(t *testing.T, s *switchStory) {
			s.stop("alice", "30m")
			s.wait(2 * time.Hour)
			s.expect(t, false, "after an outage")
		},
		"a duration counts from the time of its write, and other writes do not extend the stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "1h")
			s.wait(10 * time.Minute)
			s.expect(t, true, "at first")
			s.asked.UntilWrittenAt = s.now.Add(5 * time.Minute) // The same field manager writes another field.
			s.wait(50 * time.Minute)
			s.expect(t, false, "an hour after the stop")
		},
		"an end before the start of the stop is ignored and reported": func(t *testing.T, s *switchStory) {
			s.stop("alice", "2026-11-23T08:59:00Z")
			s.expect(t, true, "at once")
			if told := s.records.DescribeIgnored(torporv1alpha1.UntilAnnotation); !strings.Contains(told, "which an earlier stop left behind") {
				t.Errorf("found %q", told)
			}
		},
		"an end that applied to an earlier stop does not end a later stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "2026-11-23T10:00:00Z")
			s.look()
			s.wait(2 * time.Hour)
			s.expect(t, false, "after the first")
			s.start("dave")
			s.look()
			s.wait(time.Hour)
			s.stop("carol", "2026-11-23T10:00:00Z")
			s.expect(t, true, "the second")
			if s.records[0].By != "carol" || s.records[1].By != "alice" || s.records[1].StartedBy != torporv1alpha1.UntilAnnotation {
				t.Errorf("found %+v", s.records)
			}
		},
		"a later end extends a stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "1h")
			s.look()
			s.wait(59 * time.Minute)
			s.setUntil("3h")
			s.asked.UntilBy = "bob"
			s.expect(t, true, "prolonged")
			if stop := s.records[0]; stop.By != "alice" || stop.UntilBy != "bob" || !strings.HasSuffix(s.records.Describe(), ", which bob set") {
				t.Errorf("expected a stop by alice whose end bob set, found %+v: %s", stop, s.records.Describe())
			}
			s.wait(2 * time.Hour)
			s.expect(t, true, "after its first end")
			s.wait(time.Hour)
			s.expect(t, false, "after its second end")
			if len(s.records) != 1 {
				t.Errorf("expected one stop, found %+v", s.records)
			}
		},
		"a new end after the stop has expired begins another stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "1h")
			s.look()
			s.wait(2 * time.Hour)
			s.look()
			s.setUntil("2h")
			s.asked.UntilBy = "bob"
			s.expect(t, true, "again")
			if s.records[0].By != "bob" || s.records[0].UntilBy != "bob" || s.records[1].By != "alice" {
				t.Errorf("expected bob to have stopped it again, found %+v", s.records)
			}
			if len(s.records) != 2 || s.records[1].Requested || s.records[1].StartedBy != torporv1alpha1.UntilAnnotation || s.records[0].EndedAt != nil {
				t.Errorf("found %+v", s.records)
			}
		},
		"an invalid end is ignored and reported once": func(t *testing.T, s *switchStory) {
			s.stop("alice", "tomorrow")
			events := stoprecord.Events(nil, stoprecord.NextRecords(nil, s.asked, s.now), torporv1alpha1.UntilAnnotation, "Stop")
			s.expect(t, true, "at once")
			again := stoprecord.Events(s.records, stoprecord.NextRecords(s.records, s.asked, s.now), torporv1alpha1.UntilAnnotation, "Stop")
			if len(events) != 1 || events[0].Reason != stoprecord.EventAnnotationIgnored || !events[0].Warning || len(again) != 0 {
				t.Errorf("found %+v, and then %+v", events, again)
			}
		},
		"the expiry of a stop is reported once": func(t *testing.T, s *switchStory) {
			s.stop("alice", "1h")
			s.look()
			s.wait(time.Hour)
			before := s.records
			s.look()
			events, again := stoprecord.Events(before, s.records, torporv1alpha1.UntilAnnotation, "Stop"), stoprecord.Events(s.records, stoprecord.NextRecords(s.records, s.asked, s.now), torporv1alpha1.UntilAnnotation, "Stop")
			if len(events) != 1 || events[0].Reason != stoprecord.EventStopEnded || len(again) != 0 {
				t.Errorf("found %+v, and then %+v", events, again)
			}
		},
		"a stop without a recorded requester gets an unknown requester, not that of the previous stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "")
			s.look()
			s.start("bob")
			s.look()
			s.wait(time.Hour)
			s.asked.IsStopped, s.asked.FieldManager, s.asked.At = true, "kubectl-patch", s.now
			before := s.records
			s.expect(t, true, "the second")
			if r := s.records[0]; r.By != "unknown (field manager kubectl-patch)" || s.records[1].StartedBy != "bob" {
				t.Errorf("found %+v", s.records)
			}
			if events := stoprecord.Events(before, s.records, torporv1alpha1.UntilAnnotation, "Stop"); len(events) != 1 || events[0].Reason != stoprecord.EventRequesterUnknown {
				t.Errorf("found %+v", events)
			}
			s.asked.IsStopped = false
			s.expect(t, false, "a start that is not noted either")
			if by := s.records[0].StartedBy; by != "unknown (field manager kubectl-patch)" {
				t.Errorf("it was started by %q", by)
			}
		},
		"a start and a stop between two passes are recorded as another stop": func(t *testing.T, s *switchStory) {
			s.stop("alice", "1h")
			s.look()
			s.wait(2 * time.Hour)
			s.start("bob")
			s.stop("carol", "1h")
			s.expect(t, true, "the second")
			if r := s.records; len(r) != 2 || r[0].By != "carol" || r[1].By != "alice" || r[1].Requested {
				t.Errorf("found %+v", r)
			}
		},
		"a schema that drops the version does not cause a new stop in each pass": func(t *testing.T, s *switchStory) {
			s.stop("alice", "")
			for range 3 {
				s.look()
				s.records[0].RequestVersion = ""
			}
			if len(s.records) != 1 || s.records[0].By != "alice" {
				t.Errorf("found %+v", s.records)
			}
		},
		"a long reason is truncated in the record": func(t *testing.T, s *switchStory) {
			s.stop("alice", "")
			s.asked.Reason = strings.Repeat("é", 100_000)
			s.look()
			if reason := s.records[0].Reason; len(reason) > 520 || !utf8.ValidString(reason) {
				t.Errorf("found %d bytes", len(reason))
			}
		},
		"the record keeps the ten newest stops": func(t *testing.T, s *switchStory) {
			for i := range 12 {
				s.stop(fmt.Sprint("person ", i), "")
				s.look()
				s.wait(time.Hour)
				s.start("bob")
				s.look()
			}
			if len(s.records) != stoprecord.MaxRecords || s.records[0].By != "person 11" || s.records[9].By != "person 2" {
				t.Errorf("found %+v", s.records)
			}
		},
	}
}

func TestStories(t *testing.T) {
	for name, story := range stories() {
		t.Run(name, func(t *testing.T) {
			story(t, &switchStory{now: start()})
		})
	}
}

// TestAnyStory runs random sequences of requests by users and passes of the manager.
func TestAnyStory(t *testing.T) {
	for seed := range uint64(2000) {
		dice := rand.New(rand.NewPCG(seed, 0))
		s := &switchStory{now: start()}
		for range 40 {
			switch dice.IntN(5) {
			case 0:
				s.stop("alice", []string{"", "1h", "soon", start().Add(5 * time.Hour).Format(time.RFC3339)}[dice.IntN(4)])
			case 1:
				s.start("bob")
			case 2:
				s.setUntil([]string{"", "2h", start().Add(9 * time.Hour).Format(time.RFC3339)}[dice.IntN(3)])
			default:
				s.wait(time.Duration(dice.IntN(90)) * time.Minute)
			}
			before := s.records
			s.look()
			checkRecords(t, seed, s, before)
		}
	}
}

func checkRecords(t *testing.T, seed uint64, s *switchStory, before stoprecord.Records) {
	t.Helper()
	again := stoprecord.NextRecords(s.records, s.asked, s.now)
	if !reflect.DeepEqual(again, s.records) {
		t.Fatalf("seed %d: a second pass changes %+v to %+v", seed, s.records, again)
	}
	if len(s.records) > stoprecord.MaxRecords {
		t.Fatalf("seed %d: %d stops", seed, len(s.records))
	}
	if s.asked.IsStopped != (s.records.RequestedStop() != nil) {
		t.Fatalf("seed %d: asked %+v, found %+v", seed, s.asked, s.records)
	}
	for i, stop := range s.records {
		if i > 0 && (stop.Requested || stop.EndedAt == nil) || stop.EndedAt != nil && stop.EndedAt.Before(&stop.Since) {
			t.Fatalf("seed %d: stop %d is %+v", seed, i, stop)
		}
	}
	if n := s.records.RequestedStop(); n != nil && n.Until != nil && s.records.Holds() != s.now.Before(n.Until.Time) {
		t.Fatalf("seed %d: at %s found %+v after %+v", seed, s.now, n, before)
	}
}
