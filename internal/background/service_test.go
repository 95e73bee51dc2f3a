// SPDX-License-Identifier: Apache-2.0

package background

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const callTime = 10 * time.Second

// server simulates the server that the service calls. The service's lock guards its fields. The value of a key is the
// number of stored results.
type server struct {
	*Service[string, int]
	t *testing.T
	// begun lists the keys of the calls in the order in which they began. began contains the corresponding times since
	// the start of the test.
	begun   []string
	began   []time.Duration
	at      time.Time
	calling map[string]int
	dropped int
	// queues maps keys to their queues.
	queues map[string]Share
	// take, if set, replaces the call for a key.
	take func(key string, due time.Time, call Call) Call
}

// run runs a test in virtual time. At the end the service is stopped, and no goroutine may be left.
func run(t *testing.T, test func(*server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		test(s)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(s.calling) > 0 {
			t.Errorf("expected no call after the end, found %v", s.calling)
		}
	})
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, at: time.Now(), calling: map[string]int{}, queues: map[string]Share{}}
	s.Service = NewService(clock.RealClock{}, func(key string, value *int, due time.Time) Call {
		call := Call{Timeout: time.Minute, Do: s.call(key, value), Drop: func() { s.dropped++ }}
		if s.take != nil {
			call = s.take(key, due, call)
		}
		return call
	})
	s.Queue = func(key string, _ *int) Share { return s.queues[key] }
	return s
}

// call returns a call that takes callTime. If the key is "hangs", the call lasts until its context is cancelled.
func (s *server) call(key string, value *int) func(context.Context) func() {
	return func(ctx context.Context) func() {
		s.Lock()
		s.begun, s.began = append(s.begun, key), append(s.began, time.Since(s.at))
		if s.calling[key]++; s.calling[key] > 1 {
			s.t.Errorf("expected one call of %s at any time, found two", key)
		}
		s.Unlock()
		answer := time.After(callTime)
		if key == "hangs" {
			answer = nil
		}
		select {
		case <-answer:
		case <-ctx.Done():
		}
		s.Lock()
		defer s.Unlock()
		delete(s.calling, key)
		return func() { *value++ }
	}
}

// ask requests calls for keys in a queue after a delay.
func (s *server) ask(after time.Duration, queue Share, keys ...string) {
	s.Lock()
	defer s.Unlock()
	for _, key := range keys {
		if s.Get(key) == nil {
			s.Put(key, 0)
		}
		s.queues[key] = queue
		s.Ask(key, time.Now().Add(after))
	}
}

func (s *server) forget(key string) {
	s.Lock()
	defer s.Unlock()
	s.Forget(key)
}

// elapse advances the virtual time, and returns the calls that began in that time, in order.
func (s *server) elapse(d time.Duration) string {
	<-time.After(d)
	synctest.Wait()
	s.Lock()
	defer s.Unlock()
	begun := s.begun
	s.begun = nil
	return fmt.Sprint(begun)
}

func (s *server) expect(what, want, got string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: expected %s, found %s", what, want, got)
	}
}

func (s *server) answersOf(key string) int {
	s.Lock()
	defer s.Unlock()
	if value := s.Get(key); value != nil {
		return *value
	}
	return -1
}

func TestCallsBeginWhenTheyAreDue(t *testing.T) {
	run(t, func(s *server) {
		s.ask(3*time.Hour, Share{}, "late")
		s.ask(2*time.Second, Share{}, "second")
		s.ask(time.Second, Share{}, "first")
		s.ask(5*time.Second, Share{}, "first") // A later time does not postpone the call.
		s.expect("before the first is due", "[]", s.elapse(time.Second-1))
		s.expect("both in order", "[first second]", s.elapse(time.Minute))
		s.ask(time.Minute, Share{}, "late")
		s.expect("a call that became urgent", "[late]", s.elapse(time.Minute))
		s.expect("a call that was made", "[]", s.elapse(3*time.Hour))
		for _, key := range []string{"first", "second", "late"} {
			if got := s.answersOf(key); got != 1 {
				t.Errorf("%s: expected one answer, found %d", key, got)
			}
		}
		s.Lock()
		defer s.Unlock()
		s.Ask("unknown", time.Now())
		if s.Get("unknown") != nil || s.CountWaiting(Share{}) != 0 {
			t.Error("expected no call of an unknown key")
		}
	})
}

func TestCallsOfAKeyDoNotOverlap(t *testing.T) {
	run(t, func(s *server) {
		s.ask(0, Share{}, "a")
		s.expect("the first call", "[a]", s.elapse(time.Second))
		s.ask(0, Share{}, "a")
		s.ask(time.Hour, Share{}, "a")
		s.expect("during the first call", "[]", s.elapse(callTime-2*time.Second))
		s.expect("after it", "[a]", s.elapse(2*time.Second))
		s.forget("a")
		s.ask(0, Share{}, "a")
		s.expect("during the call of the forgotten key", "[]", s.elapse(callTime/2))
		s.expect("after it", "[a]", s.elapse(callTime))
		s.elapse(callTime)
		if got := s.answersOf("a"); got != 1 || s.dropped != 1 {
			t.Errorf("expected the answer for the forgotten key to be dropped, found %d answers and %d dropped", got, s.dropped)
		}
	})
}

func TestAnswersOfForgottenKeysAreDropped(t *testing.T) {
	run(t, func(s *server) {
		s.ask(0, Share{}, "called")
		s.ask(time.Second, Share{}, "waiting")
		s.elapse(time.Second / 2)
		s.forget("called")
		s.forget("waiting")
		s.forget("unknown")
		s.expect("a withdrawn call", "[]", s.elapse(time.Hour))
		if s.answersOf("called") != -1 || s.answersOf("waiting") != -1 || s.dropped != 1 {
			t.Errorf("expected no values and one dropped answer, found %d dropped", s.dropped)
		}
		s.Lock()
		defer s.Unlock()
		if keys := s.ListKeys(); len(keys) > 0 {
			t.Errorf("expected no keys, found %v", keys)
		}
	})
}

func TestQueuesDoNotDelayEachOther(t *testing.T) {
	prompt, patient := Share{"prompt", 2}, Share{"patient", 1}
	run(t, func(s *server) {
		s.ask(0, patient, "hangs", "slow")
		s.ask(0, prompt, "a", "b", "c")
		s.elapse(0)
		s.Lock()
		if s.CountWaiting(prompt) != 1 || s.CountWaiting(patient) != 1 {
			t.Errorf("expected one that waits in each queue, found %d and %d", s.CountWaiting(prompt), s.CountWaiting(patient))
		}
		s.Unlock()
		s.elapse(callTime)
		s.Lock()
		s.expect("calls in progress", "map[c:1 hangs:1]", fmt.Sprint(s.calling))
		s.Unlock()
		s.ask(0, prompt, "slow") // The next call of the key is in another queue.
		s.expect("a key that moved", "[slow]", s.elapse(callTime))
		s.elapse(time.Minute)
		for _, key := range []string{"hangs", "slow", "a", "b", "c"} {
			if got := s.answersOf(key); got != 1 {
				t.Errorf("%s: expected one answer, found %d", key, got)
			}
		}
		if i := slices.Index(s.began, callTime); i < 0 {
			t.Errorf("expected a call at the end of the first ones, found %v", s.began)
		}
	})
}

func TestCallsWithoutRoomDoNotDelayOthers(t *testing.T) {
	queue := Share{"all", 3}
	run(t, func(s *server) {
		s.take = func(key string, _ time.Time, call Call) Call {
			call.Shares = []Share{{key[:1], 1}}
			return call
		}
		s.ask(0, queue, "a1", "a2", "b1", "b2", "c1", "d1")
		s.expect("one call of each share, up to the limit of the queue", "[a1 b1 c1]", sorted(s.elapse(1)))
		s.expect("the next ones", "[a2 b2 d1]", sorted(s.elapse(callTime)))
	})
}

// sorted sorts the calls that began at the same time.
func sorted(begun string) string {
	return fmt.Sprint(slices.Sorted(strings.FieldsSeq(strings.Trim(begun, "[]"))))
}

func TestTakePostponesForgetsAndCalls(t *testing.T) {
	run(t, func(s *server) {
		s.take = func(key string, due time.Time, call Call) Call {
			switch {
			case key == "calm" && time.Since(due) < 5*time.Second:
				return Call{Again: time.Now().Add(time.Second)}
			case key == "over":
				s.Forget(key)
				return Call{Again: time.Now().Add(time.Second)}
			case key == "none":
				return Call{}
			case key == "asks" && time.Since(due) == 0:
				s.Ask(key, time.Now().Add(time.Minute))
				return Call{}
			case key == "asks":
				s.take = nil
			}
			return call
		}
		s.ask(0, Share{}, "calm", "over", "none")
		s.expect("a postponed call", "[]", s.elapse(5*time.Second-1))
		s.expect("the postponed call is made later", "[calm]", s.elapse(1))
		s.expect("calls that Take has withdrawn", "[]", s.elapse(time.Hour))
		s.ask(0, Share{}, "asks")
		s.expect("a call that Take postpones by a minute", "[]", s.elapse(time.Minute-1))
	})
}

func TestPostponedCallsAreTakenWhenRequestedAgain(t *testing.T) {
	run(t, func(s *server) {
		var taken []time.Duration
		s.take = func(_ string, due time.Time, call Call) Call {
			if due.Sub(s.at) != time.Second {
				t.Errorf("expected the time of the first request, found %s", due.Sub(s.at))
			}
			if taken = append(taken, time.Since(s.at)); len(taken) < 3 {
				return Call{Again: s.at.Add(time.Hour)}
			}
			return call
		}
		s.ask(time.Second, Share{}, "a")
		s.elapse(time.Minute)
		s.ask(2*time.Hour, Share{}, "a") // A later time changes nothing.
		s.ask(time.Minute, Share{}, "a")
		s.expect("before the call is taken again", "[]", s.elapse(time.Hour-time.Minute-1))
		s.expect("the call", "[a]", s.elapse(1))
		if want := []time.Duration{time.Second, 2 * time.Minute, time.Hour}; !slices.Equal(taken, want) {
			t.Errorf("expected it to be taken after %v, found %v", want, taken)
		}
	})
}

func TestEndOfTheServiceEndsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ctx, stop := context.WithCancel(t.Context())
		s.ask(0, Share{"one", 1}, "a", "b")
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		s.elapse(time.Second)
		stop()
		if err := <-ended; err != nil || time.Since(s.at) > time.Second {
			t.Errorf("expected the end at once, found %v after %s", err, time.Since(s.at))
		}
		if s.answersOf("a") != 0 || s.answersOf("b") != 0 || s.dropped != 1 || len(s.calling) > 0 {
			t.Errorf("expected one call without an answer, found %d dropped and %v", s.dropped, s.calling)
		}
		s.ask(0, Share{}, "c")
		s.expect("a service that has ended", "[]", s.elapse(time.Hour))
	})
}

func TestCallsEndWithTheirTimeout(t *testing.T) {
	run(t, func(s *server) {
		s.ask(0, Share{}, "hangs")
		s.elapse(time.Minute)
		if got := s.answersOf("hangs"); got != 1 {
			t.Errorf("expected an answer at the timeout, found %d", got)
		}
	})
}

func TestRunDueFollowsTheClock(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	isPutOff := true
	s := NewService(now, func(_ string, value *int, _ time.Time) Call {
		if isPutOff {
			return Call{Again: now.Now().Add(time.Second)}
		}
		return Call{Timeout: time.Minute, Do: func(context.Context) func() { return func() { *value++ } }}
	})
	value := s.Put("a", 0)
	s.Ask("a", now.Now().Add(time.Second))
	expectRun := func(want bool) {
		t.Helper()
		if got := s.RunDue(t.Context(), "a"); got != want {
			t.Errorf("expected a call: %t, found %t", want, got)
		}
	}
	expectRun(false)
	now.SetTime(now.Now().Add(time.Second))
	expectRun(false)
	isPutOff = false
	expectRun(false)
	now.SetTime(now.Now().Add(time.Second))
	expectRun(true)
	expectRun(false)
	if *value != 1 {
		t.Errorf("expected one answer, found %d", *value)
	}
}

// TestRandomRequestsKeepTheLimits requests, forgets and postpones calls at random. The limits are never exceeded, and
// the last call requested for each key is made.
func TestRandomRequestsKeepTheLimits(t *testing.T) {
	queues := []Share{{"prompt", 3}, {"patient", 2}, {}}
	shares := []Share{{"x", 2}, {"y", 1}}
	for seed := range uint64(50) {
		random, randomTakes := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
		run(t, func(s *server) {
			wanted := map[string]int{}
			s.take = func(_ string, _ time.Time, call Call) Call {
				switch randomTakes.IntN(4) {
				case 0:
					return Call{Again: time.Now().Add(time.Duration(randomTakes.IntN(5000)+1) * time.Millisecond)}
				case 1:
					call.Shares = []Share{shares[randomTakes.IntN(len(shares))]}
				}
				return call
			}
			for range 300 {
				key := fmt.Sprint(random.IntN(12))
				if random.IntN(5) == 0 {
					s.forget(key)
					delete(wanted, key)
				} else {
					s.ask(time.Duration(random.IntN(30_000))*time.Millisecond, queues[random.IntN(len(queues))], key)
					wanted[key] = s.answersOf(key)
				}
				s.elapse(time.Duration(random.IntN(2000)) * time.Millisecond)
				s.Lock()
				for share, busy := range s.busy {
					if share.Limit > 0 && busy > share.Limit {
						t.Errorf("seed %d: expected at most %d of %s, found %d", seed, share.Limit, share.Name, busy)
					}
				}
				s.Unlock()
			}
			s.elapse(10 * time.Minute)
			for key, before := range wanted {
				if got := s.answersOf(key); got <= before {
					t.Errorf("seed %d: expected an answer of %s after the last request, found %d", seed, key, got-before)
				}
			}
			s.Lock()
			defer s.Unlock()
			for _, queue := range queues {
				if waiting := s.CountWaiting(queue); waiting > 0 || len(s.busy)+len(s.Service.calling) > 0 {
					t.Errorf("seed %d: expected an idle service, found %d that wait and %v", seed, waiting, s.busy)
				}
			}
		})
	}
}
