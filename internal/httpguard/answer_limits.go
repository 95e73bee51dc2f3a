// SPDX-License-Identifier: Apache-2.0

// Package httpguard limits which servers the manager's HTTP clients can reach, and how much the clients read from them.
// Users of the hub specify clouds and target clusters in Secrets, so a server may send an endless response, or may be a
// server that users must not reach.
package httpguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// ErrAnswerTooLarge means that a response is larger than allowed.
var ErrAnswerTooLarge = errors.New("the server's response is larger than allowed")

const (
	maxHeaderBytes = 64 << 10
	// maxFailureBytes is the number of bytes that are read of a response with an error status. The rest is ignored.
	maxFailureBytes = 64 << 10
)

// BoundTransport limits the size of response headers. It also disables compression, because a gzip of 400 KiB may
// expand to a thousand times its size.
func BoundTransport(t *http.Transport) {
	t.DisableCompression, t.MaxResponseHeaderBytes = true, maxHeaderBytes
}

// NewClient returns a client that does not follow redirects, because a redirect would send credentials to a host that
// the server chooses. Each successful response is limited to perAnswer bytes. If total is not zero, all successful
// responses together are limited to total bytes. A response that ends after the context of its request is an error.
func NewClient(base http.RoundTripper, perAnswer, total int64) *http.Client {
	return &http.Client{
		Transport:     LimitTransport(base, perAnswer, total),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// LimitTransport returns a transport with the limits of NewClient, for libraries that create their own clients. Such
// clients follow redirects.
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

// endOf returns an error if the context of a request was cancelled. A server whose handler returns when the client
// disconnects sends an empty response with status 200. http.Transport may still return this response, which would then
// count as a success.
func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the response is too late: %w", context.Cause(ctx))
}

// timelyBody is a body that ends with an error if the context of its request was already cancelled.
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
