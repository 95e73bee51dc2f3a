// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes allows a page of 100 machines of 40 KiB each.
	maxAnswerBytes = 4 << 20
	// maxAnswerItems is the maximum number of list elements in an answer, doubled because each has an opening and a
	// closing tag. The SDK decodes an element of seven bytes to a structure of almost a kilobyte.
	maxAnswerItems = 100_000
	// largeAnswerBytes is the size above which only a few answers are decoded concurrently.
	largeAnswerBytes = 256 << 10
	largeAnswers     = 2
)

// newBoundedClient returns the client for all accounts. The author of a credentials Secret chooses the endpoint.
func newBoundedClient(endpoints httpguard.Endpoints) RequestSender {
	transport := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Control = endpoints.ControlDial }).
		WithTransportOptions(httpguard.BoundTransport).
		GetTransport()
	return &wholeAnswers{base: httpguard.NewClient(transport, maxAnswerBytes, 0), slots: make(chan struct{}, largeAnswers)}
}

// wholeAnswers reads each answer completely before the SDK decodes it. Answers that would grow too large are refused,
// and a slow server does not occupy a place that other requests wait for.
type wholeAnswers struct {
	base  RequestSender
	slots chan struct{}
}

// Do implements RequestSender.
func (w *wholeAnswers) Do(r *http.Request) (*http.Response, error) {
	answer, err := w.base.Do(r)
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err == nil && countItems(body) > maxAnswerItems {
		err = httpguard.ErrAnswerTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	release := func() {}
	if len(body) > largeAnswerBytes {
		w.slots <- struct{}{}
		release = sync.OnceFunc(func() { <-w.slots })
	}
	answer.Body = &wholeBody{Reader: bytes.NewReader(body), release: release}
	return answer, nil
}

// maxJSONBytes allows for a node group with all optional fields. The SDK decodes JSON that it does not use, too.
const maxJSONBytes = 256 << 10

// smallAnswers refuses larger answers than EKS sends.
type smallAnswers struct{ base RequestSender }

// Do implements RequestSender.
func (s smallAnswers) Do(r *http.Request) (*http.Response, error) {
	answer, err := s.base.Do(r)
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxJSONBytes+1))
	_ = answer.Body.Close()
	if err == nil && len(body) > maxJSONBytes {
		err = httpguard.ErrAnswerTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// countItems counts the names of list elements that the SDK decodes, ignoring case.
func countItems(body []byte) int {
	return bytes.Count(bytes.ToLower(body), []byte("item"))
}

// wholeBody releases its place when the SDK closes it, which happens after decoding.
type wholeBody struct {
	io.Reader
	release func()
}

// Close implements io.Closer.
func (b *wholeBody) Close() error {
	b.release()
	return nil
}
