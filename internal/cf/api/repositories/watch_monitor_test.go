// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestWatchesThatEndAreNoticed(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	m := newWatchMonitor(clock, time.Minute)
	status := http.StatusOK
	transport := m.wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("event"))}, nil
	}))
	send := func(query string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub/apis/cfapps"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	expect := func(what string, isFresh bool) {
		t.Helper()
		if err := m.check(); (err == nil) != isFresh {
			t.Errorf("%s: found %v", what, err)
		}
	}
	later := func(after time.Duration) { clock.SetTime(clock.Now().Add(after)) }
	_ = send("").Body.Close()
	later(time.Hour)
	expect("a list does not count as a watch", true)
	watch := send("?watch=true")
	later(time.Hour)
	expect("an open watch without events", true)
	if _, err := io.ReadAll(watch.Body); err != nil {
		t.Fatal(err)
	}
	_ = watch.Body.Close()
	later(time.Minute)
	expect("a watch ended a minute ago", true)
	status = http.StatusForbidden
	_ = send("?watch=true").Body.Close()
	later(time.Second)
	expect("a refused watch", false)
	status = http.StatusOK
	watch = send("?watch=true")
	expect("a new watch", true)
	_ = watch.Body.Close()
	expect("a watch that has just ended", true)
}
