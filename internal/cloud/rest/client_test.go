// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// newClient returns a client with tokens that are valid for the given time, and a counter of fetched tokens.
func newClient(good time.Duration) (APIClient, *atomic.Int32) {
	var fetched atomic.Int32
	tokens := NewTokenCache(clock.RealClock{}, func(context.Context) (AccessToken, error) {
		return AccessToken{Value: fmt.Sprintf("token-%d", fetched.Add(1)), Expires: time.Now().Add(good)}, nil
	})
	return APIClient{HTTP: BoundClient(http.DefaultTransport), Tokens: tokens, Timeout: time.Minute}, &fetched
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestTokensAreFetchedWhenTheyAreNeeded(t *testing.T) {
	for name, row := range map[string]struct {
		good    time.Duration
		refused string
		calls   int
		fetched int32
	}{
		"valid token serves all calls":                {time.Hour, "", 3, 1},
		"expiring token is replaced before each call": {tokenRenewal / 2, "", 3, 3},
		"refused token is replaced once":              {time.Hour, "Bearer token-1", 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			client, fetched := newClient(row.good)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == row.refused {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				_, _ = w.Write([]byte(`{}`))
			})
			for range row.calls {
				if err := client.Call(t.Context(), http.MethodGet, url, nil, &struct{}{}); err != nil {
					t.Error(err)
				}
			}
			if got := fetched.Load(); got != row.fetched {
				t.Errorf("%d tokens for %d calls, want %d", got, row.calls, row.fetched)
			}
		})
	}
}

func TestRefusedRequestsAreRetriedOnce(t *testing.T) {
	client, _ := newClient(time.Hour)
	var calls atomic.Int32
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	})
	err := client.Call(t.Context(), http.MethodGet, url, nil, nil)
	refusal, ok := errors.AsType[*StatusError](err)
	if !ok || refusal.Class() != actuator.CredentialsInvalid || calls.Load() != 2 {
		t.Errorf("found %v after %d calls, want class %q after two", err, calls.Load(), actuator.CredentialsInvalid)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	stranger := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("expected no request to another host, found %s %s", r.Method, r.URL)
	})
	client, _ := newClient(time.Hour)
	err := client.Call(t.Context(), http.MethodPost, serve(t, http.RedirectHandler(stranger, http.StatusTemporaryRedirect).ServeHTTP), map[string]string{"a": "b"}, nil)
	if refusal, ok := errors.AsType[*StatusError](err); !ok || refusal.Class() != actuator.Unreachable {
		t.Errorf("found %v, want class %q", err, actuator.Unreachable)
	}
}

func TestCallsEnd(t *testing.T) {
	ended := make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	t.Cleanup(func() { close(ended) }) // The handlers return before the server closes, because the server waits for them.
	client, _ := newClient(time.Hour)
	client.Timeout = 10 * time.Millisecond
	if err := client.Call(t.Context(), http.MethodGet, url, nil, nil); err == nil || DescribeMissingAnswer(err) != "the API does not respond" {
		t.Errorf("after its timeout: %v, want that it does not answer", err)
	}
	client.Timeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := client.Call(ctx, http.MethodGet, url, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's deadline: %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestMissingAnswersAreDescribed(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"oversized answer is reported as too large":      {fmt.Errorf("read: %w", httpguard.ErrAnswerTooLarge), "the response is larger than allowed"},
		"denied address is reported":                     {fmt.Errorf("dial: %w", httpguard.ErrAddressDenied), httpguard.ErrAddressDenied.Error()},
		"answer that is not JSON is reported as invalid": {ErrNotJSON, "the response is not the JSON that the API returns"},
		"unknown error is reported as a missing answer":  {errors.New("dial tcp 10.0.0.1:4711: refused"), "the API does not respond"},
	} {
		if got := DescribeMissingAnswer(row.err); got != row.want {
			t.Errorf("%s: found %q, want %q", name, got, row.want)
		}
	}
}

func TestRefusalsAreSorted(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		after  string
		class  actuator.ErrorClass
		pause  time.Duration
	}{
		"429 with a Retry-After in seconds is Throttled with this pause":           {http.StatusTooManyRequests, "30", actuator.Throttled, 30 * time.Second},
		"429 without a Retry-After is Throttled without a pause":                   {http.StatusTooManyRequests, "", actuator.Throttled, 0},
		"429 with an excessive Retry-After is Throttled with the maximum pause":    {http.StatusTooManyRequests, "99999999", actuator.Throttled, maxRetryAfter},
		"429 with a negative Retry-After is Throttled without a pause":             {http.StatusTooManyRequests, "-1", actuator.Throttled, 0},
		"429 with a Retry-After that is not a number is Throttled without a pause": {http.StatusTooManyRequests, "soon", actuator.Throttled, 0},
		"503 with a Retry-After is Throttled with this pause":                      {http.StatusServiceUnavailable, "5", actuator.Throttled, 5 * time.Second},
		"503 without a Retry-After is Unreachable":                                 {http.StatusServiceUnavailable, "", actuator.Unreachable, 0},
		"401 is CredentialsInvalid":                                                {http.StatusUnauthorized, "", actuator.CredentialsInvalid, 0},
		"403 is PermissionDenied":                                                  {http.StatusForbidden, "", actuator.PermissionDenied, 0},
		"410 is NotFound":                                                          {http.StatusGone, "", actuator.NotFound, 0},
		"409 is WrongState":                                                        {http.StatusConflict, "", actuator.WrongState, 0},
		"302 is Unreachable":                                                       {http.StatusFound, "", actuator.Unreachable, 0},
		"400 is Other":                                                             {http.StatusBadRequest, "", actuator.Other, 0},
	} {
		refusal := StatusError{Status: row.status, Header: http.Header{"Retry-After": {row.after}}}
		if class, pause := refusal.Class(), refusal.RetryAfter(); class != row.class || pause != row.pause {
			t.Errorf("%s: found %q and %s, want %q and %s", name, class, pause, row.class, row.pause)
		}
	}
}

func TestCloudMessagesAreScrubbed(t *testing.T) {
	found := Scrub("hush\n at 2026-11-24T10:00:01.5+01:00 for 0af1b2c3-1111-2222-3333-444455556666 "+strings.Repeat("ä", 2*maxMessageLetters), "hush", "")
	if !strings.HasPrefix(found, "<hidden> at <time> for <id> ä") || len([]rune(found)) != maxMessageLetters+1 {
		t.Errorf("found %q, want neither the secret nor what changes, and %d letters", found, maxMessageLetters)
	}
}

func TestOnlyUnreachableCloudsAreCalledAgain(t *testing.T) {
	for class, want := range map[actuator.ErrorClass]int{actuator.Unreachable: 2, actuator.Throttled: 1, actuator.Other: 1, "": 1} {
		tries := 0
		_, err := RetryUnreachable(t.Context(), 2, func() (int, error) {
			tries++
			if class == "" {
				return 1, nil
			}
			return 0, &actuator.Error{Class: class}
		})
		if tries != want || (err == nil) != (class == "") {
			t.Errorf("class %q: %d tries and %v, want %d", class, tries, err, want)
		}
	}
}
