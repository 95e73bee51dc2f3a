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
	// maxAnswerItems is the maximum number of list elements in a response, doubled because each has an opening and a
	// closing tag. The SDK decodes an element of seven bytes to a structure of almost a kilobyte.
	maxAnswerItems = 100_000
	// largeAnswerBytes is the size above which only a few responses are decoded concurrently.
	largeAnswerBytes = 256 << 10
	largeAnswers     = 2
)

// newBoundedClient returns an HTTP client for all accounts. It limits responses, because the author of a credentials
// Secret chooses the endpoint.
func newBoundedClient(endpoints httpguard.Endpoints) RequestSender {
	transport := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Control = endpoints.ControlDial }).
		WithTransportOptions(httpguard.BoundTransport).
		GetTransport()
	return &wholeAnswers{base: httpguard.NewClient(transport, maxAnswerBytes, 0), slots: make(chan struct{}, largeAnswers)}
}

// wholeAnswers reads each response completely before the SDK decodes it. It refuses responses that the SDK would decode
// to too many items. A large response occupies a slot only once it is complete, so a slow server does not occupy a slot
// that other requests wait for.
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
		return nil, fmt.Errorf("read the response: %w", err)
	}
	release := func() {}
	if len(body) > largeAnswerBytes {
		w.slots <- struct{}{}
		release = sync.OnceFunc(func() { <-w.slots })
	}
	answer.Body = &wholeBody{Reader: bytes.NewReader(body), release: release}
	return answer, nil
}

// maxJSONBytes allows for a node group with all optional fields. The SDK also decodes JSON fields that it does not use.
const maxJSONBytes = 256 << 10

// smallAnswers refuses responses of more than maxJSONBytes. Responses of EKS are smaller.
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
		return nil, fmt.Errorf("read the response: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// countItems counts the occurrences of item, the name of list elements that the SDK decodes, ignoring case.
func countItems(body []byte) int {
	return bytes.Count(bytes.ToLower(body), []byte("item"))
}

// wholeBody releases its slot when the SDK closes it. The SDK does so after decoding.
type wholeBody struct {
	io.Reader
	release func()
}

// Close implements io.Closer.
func (b *wholeBody) Close() error {
	b.release()
	return nil
}
