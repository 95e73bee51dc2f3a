// SPDX-License-Identifier: Apache-2.0

package httpguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestAnswersAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		status, sent     int
		perAnswer, total int64
		requests         int
		want             error
	}{
		"a response of exactly the limit: accepted":              {status: http.StatusOK, sent: 1000, perAnswer: 1000, requests: 3},
		"a response one byte above the limit: refused":           {status: http.StatusOK, sent: 1001, perAnswer: 1000, requests: 1, want: ErrAnswerTooLarge},
		"a long response with an error status: truncated":        {status: http.StatusNotFound, sent: maxFailureBytes + 1, perAnswer: 1000, requests: 1},
		"several responses above the total limit: refused":       {status: http.StatusOK, sent: 1000, perAnswer: 1000, total: 2999, requests: 3, want: ErrAnswerTooLarge},
		"several responses of exactly the total limit: accepted": {status: http.StatusOK, sent: 1000, perAnswer: 1000, total: 3000, requests: 3},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
					t.Errorf("expected no compression to be asked for, found %q", encoding)
				}
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, strings.Repeat("x", row.sent))
			}))
			defer server.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			BoundTransport(transport)
			c := NewClient(transport, row.perAnswer, row.total)
			var last error
			for range row.requests {
				if last != nil {
					t.Fatalf("expected only the last request to fail, found %v before", last)
				}
				answer, err := c.Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				var n int64
				if n, last = io.Copy(io.Discard, answer.Body); n > max(row.perAnswer, maxFailureBytes) {
					t.Errorf("expected the answer to be cut, found %d bytes", n)
				}
				_ = answer.Body.Close()
			}
			if !errors.Is(last, row.want) {
				t.Errorf("expected %v, found %v", row.want, last)
			}
		})
	}
}

// TestAnswersAfterTheEndOfTheRequestAreErrors covers responses that end because the client has cancelled the request.
func TestAnswersAfterTheEndOfTheRequestAreErrors(t *testing.T) {
	errEnded := errors.New("the caller has ended the request")
	for name, row := range map[string]struct {
		status int
		// endsInBody is true if the request ends after the headers of the response, and before the end of its body.
		endsInBody bool
	}{
		"the request ends before an empty response with status 200":      {http.StatusOK, false},
		"the request ends within the body of a response with status 200": {http.StatusOK, true},
		"the request ends before an empty response with status 503":      {http.StatusServiceUnavailable, false},
		"the request ends within the body of a response with status 503": {http.StatusServiceUnavailable, true},
		"the request ends before an empty response with status 304":      {http.StatusNotModified, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			end := func() { cancel(errEnded) }
			c := NewClient(roundTripper(func(r *http.Request) (*http.Response, error) {
				answer := &http.Response{StatusCode: row.status, Body: http.NoBody, Request: r}
				if row.endsInBody {
					rest := readerFunc(func([]byte) (int, error) {
						end()
						return 0, io.EOF
					})
					answer.Body = io.NopCloser(io.MultiReader(strings.NewReader("half an answer"), rest))
				} else {
					end()
				}
				return answer, nil
			}), 1000, 0)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://cloud.example.com", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := c.Do(request)
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
			if !errors.Is(err, errEnded) {
				t.Errorf("expected %v, found %v", errEnded, err)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestEndpoints(t *testing.T) {
	listed, err := ParseEndpoints([]string{"*.example.com", "one.example.org", "169.254.1.0/24", "fe80::1", "10.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]struct{ includes, denied, deniedByDefault bool }{
		"a.example.com":          {includes: true},
		"A.Example.Com":          {includes: true},
		"example.com":            {},
		"one.example.org":        {includes: true},
		"two.example.org":        {},
		"10.0.0.9":               {includes: true},
		"::ffff:10.0.0.9":        {includes: true},
		"10.0.0.8":               {},
		"169.254.1.7":            {includes: true, deniedByDefault: true},
		"169.254.169.254":        {denied: true, deniedByDefault: true},
		"::ffff:169.254.169.254": {denied: true, deniedByDefault: true},
		"64:ff9b::a9fe:a9fe":     {denied: true, deniedByDefault: true},
		"64:ff9b::a00:1":         {},
		"fe80::1":                {includes: true, deniedByDefault: true},
		"fe80::1%eth0":           {includes: true, deniedByDefault: true},
		"fe80::2":                {denied: true, deniedByDefault: true},
		"fd00:ec2::254":          {denied: true, deniedByDefault: true},
		"168.63.129.16":          {denied: true, deniedByDefault: true},
		"100.100.100.200":        {denied: true, deniedByDefault: true},
		"192.0.0.192":            {denied: true, deniedByDefault: true},
		"0.0.0.0":                {denied: true, deniedByDefault: true},
		"::":                     {denied: true, deniedByDefault: true},
		"224.0.0.1":              {denied: true, deniedByDefault: true},
		"127.0.0.1":              {},
	} {
		if got := listed.Includes(host); got != want.includes {
			t.Errorf("%s: listed %t, want %t", host, got, want.includes)
		}
		if got := listed.ControlDial("tcp", net.JoinHostPort(host, "443"), nil); (got != nil) != want.denied {
			t.Errorf("%s: found %v, want it to be denied: %t", host, got, want.denied)
		}
		if got := (Endpoints{}).CheckHost(host); errors.Is(got, ErrAddressDenied) != want.deniedByDefault {
			t.Errorf("%s: without a list found %v, want it to be denied: %t", host, got, want.deniedByDefault)
		}
	}
	for _, bad := range []string{"", "https://example.com", "example.com:443", "[", "a b", "10.0.0.0/99"} {
		if _, err := ParseEndpoints([]string{bad}); err == nil {
			t.Errorf("%q: expected an error", bad)
		}
	}
	if !(Endpoints{}).IsEmpty() || listed.IsEmpty() {
		t.Error("expected only the list without entries to be empty")
	}
}

func TestPublicAddressesAreThoseOfTheInternet(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700:4700::1111": true, "64:ff9b::808:808": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.0.1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false,
		"fd00::1": false, "fe80::1%eth0": false, "fec0::1": false, "169.254.169.254": false, "100.64.0.1": false, "100.100.100.200": false, "168.63.129.16": false,
		"0.0.0.0": false, "0.1.2.3": false, "::": false, "::8.8.8.8": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"192.0.0.1": false, "198.18.0.1": false, "2001::1": false, "2001:db8::1": false, "2002:a00:1::": false, "64:ff9b:1::1": false,
	} {
		if got := IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: expected public %t, found %t", text, want, got)
		}
	}
}
