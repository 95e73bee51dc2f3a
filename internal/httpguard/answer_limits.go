// SPDX-License-Identifier: Apache-2.0

// Package httpguard bounds what the manager's HTTP requests to foreign servers can cost and reach. Users of the
// hub name clouds and target clusters in Secrets, so a server may send an endless answer, or be one that no
// user may reach.
package httpguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// ErrAnswerTooLarge means that a server sent more than allowed.
var ErrAnswerTooLarge = errors.New("the server's answer is larger than allowed")

const (
	maxHeaderBytes = 64 << 10
	// maxFailureBytes is how much is read of answers that only report a failure; the rest is cut off.
	maxFailureBytes = 64 << 10
)

// BoundTransport limits a transport to a few headers and to uncompressed answers: a gzip of 400 KiB may
// expand to a thousand times as much.
func BoundTransport(t *http.Transport) {
	t.DisableCompression, t.MaxResponseHeaderBytes = true, maxHeaderBytes
}

// NewClient returns a client that follows no redirect, because a redirect would carry credentials to a host
// that the server chooses. Each answer has a budget of bytes, and so have all answers together unless total
// is zero. An answer that ends after the context of its request is an error.
func NewClient(base http.RoundTripper, perAnswer, total int64) *http.Client {
	return &http.Client{
		Transport:     LimitTransport(base, perAnswer, total),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// LimitTransport returns a transport whose answers have the budgets of NewClient, for libraries that create
// their own clients. Those follow redirects.
func LimitTransport(base http.RoundTripper, perAnswer, total int64) http.RoundTripper {
	limited := &limitedTransport{base: base, perAnswer: perAnswer, isTotalLimited: total > 0}
	limited.total.Store(total)
	return limited
}

type limitedTransport struct {
	base           http.RoundTripper
	perAnswer      int64
	isTotalLimited bool
	total          atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if err := endOf(ctx); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	answer.Body = &timelyBody{ReadCloser: answer.Body, end: func() error { return endOf(ctx) }}
	if answer.StatusCode >= http.StatusMultipleChoices {
		answer.Body = &cutBody{Reader: io.LimitReader(answer.Body, maxFailureBytes), Closer: answer.Body}
		return answer, nil
	}
	answer.Body = &limitedBody{ReadCloser: answer.Body, transport: t, left: t.perAnswer}
	return answer, nil
}

// endOf returns an error if the context of a request has ended. A server whose handler returns when the client
// disconnects answers with an empty 200. http.Transport still returns what it reads between the server's close_notify
// and the close of the connection, so such an answer would count as a success.
func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the answer is too late: %w", context.Cause(ctx))
}

// timelyBody is a body that is complete only if it ends before the context of its request.
type timelyBody struct {
	io.ReadCloser
	end func() error
}

// Read implements io.Reader.
func (b *timelyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if late := b.end(); late != nil {
			return n, late
		}
	}
	return n, err
}

type cutBody struct {
	io.Reader
	io.Closer
}

type limitedBody struct {
	io.ReadCloser
	transport *limitedTransport
	left      int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 || b.transport.isTotalLimited && b.transport.total.Add(-int64(n)) < 0 {
		return 0, ErrAnswerTooLarge
	}
	return n, err
}
