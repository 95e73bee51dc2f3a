// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// caller sends requests to a replica with one user's credentials.
type caller struct {
	*replica
	authorization string
}

// callerNamed returns a caller with a token of a service account in the system namespace.
func (e *testEnv) callerNamed(t *testing.T, name string) caller {
	t.Helper()
	return e.callerOf(t, system, name)
}

// callerOf returns a caller with a token of the service account.
func (e *testEnv) callerOf(t *testing.T, namespace, name string) caller {
	t.Helper()
	return caller{replica: e.replica, authorization: "Bearer " + e.requestToken(t, namespace, name)}
}

// at returns a caller with the same credentials for another replica.
func (c caller) at(r *replica) caller { return caller{replica: r, authorization: c.authorization} }

// response is the response to a request.
type response struct {
	status   int
	header   http.Header
	location string
	body     string
	took     time.Duration
}

// field returns the value at a path in the body, such as resources.0.state.
func (r response) field(t *testing.T, path string) string {
	t.Helper()
	return conversation.JSONField(t, r.body, path)
}

func (c caller) get(t *testing.T, path string) response {
	t.Helper()
	return c.send(t, http.MethodGet, path, "")
}

func (c caller) send(t *testing.T, method, path, body string) response {
	t.Helper()
	r, err := c.try(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// expect sends a request, and compares the response's status and fields with the expected ones, such as
// "state=COMPLETE".
func (c caller) expect(t *testing.T, status int, request, body string, fields ...string) response {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r := c.send(t, method, path, body)
	r.expect(t, request, status, fields...)
	return r
}

func (r response) expect(t *testing.T, request string, status int, fields ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: found %d %s, want %d", request, r.status, r.body, status)
		return
	}
	for _, field := range fields {
		path, want, _ := strings.Cut(field, "=")
		if found := r.field(t, path); found != want {
			t.Errorf("%s: found %s %q, want %q in %s", request, path, found, want, r.body)
		}
	}
}

// try sends a request and returns an error if it fails. It may be called from any goroutine.
func (c caller) try(ctx context.Context, method, path, body string) (response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if c.authorization != "" {
		request.Header.Set("Authorization", c.authorization)
	}
	begin := time.Now()
	answer, err := c.client.Do(request)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	return response{status: answer.StatusCode, header: answer.Header, location: answer.Header.Get("Location"), body: string(raw), took: time.Since(begin)}, err
}

// getLater sends a request in the background, because its response is held. It returns a channel that receives the
// response.
func (c caller) getLater(t *testing.T, path string) <-chan response {
	t.Helper()
	answers := make(chan response, 1)
	ctx := t.Context()
	go func() {
		r, err := c.try(ctx, http.MethodGet, path, "")
		if err != nil {
			r.body = err.Error()
		}
		answers <- r
	}()
	return answers
}

// errorFound returns an error that describes a response.
func errorFound(r response) error { return fmt.Errorf("found %d %s", r.status, r.body) }

// awaitStatus repeats a request until its response has the status.
func (c caller) awaitStatus(t *testing.T, status int, path string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s returns %d", path, status), func() error {
		if r := c.get(t, path); r.status != status {
			return errorFound(r)
		}
		return nil
	})
}
