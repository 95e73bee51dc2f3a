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

	"github.com/torpor-dev/torpor/internal/egress"
)

const (
	// maxAnswerBytes is for a page of 100 machines of 40 KiB each.
	maxAnswerBytes = 4 << 20
	// maxAnswerItems is how many lists' elements an answer has, twice because each is opened and closed. The SDK makes a
	// structure of almost a kilobyte of an element of seven bytes.
	maxAnswerItems = 100_000
	// largeAnswerBytes is from where on few answers are decoded at the same time.
	largeAnswerBytes = 256 << 10
	largeAnswers     = 2
)

// newBoundedClient returns the client for all accounts. Whoever writes a credentials Secret chooses the endpoint.
func newBoundedClient(endpoints egress.Endpoints) RequestSender {
	transport := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Control = endpoints.ControlDial }).
		WithTransportOptions(egress.BoundTransport).
		GetTransport()
	return &wholeAnswers{base: egress.NewClient(transport, maxAnswerBytes, 0), slots: make(chan struct{}, largeAnswers)}
}

// wholeAnswers reads each answer before the SDK decodes it, so that an answer that would grow too much is refused and a slow
// server holds nothing that others wait for.
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
		err = egress.ErrAnswerTooLarge
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

// countItems counts the names of list elements as the SDK knows them, in any case.
func countItems(body []byte) int {
	return bytes.Count(bytes.ToLower(body), []byte("item"))
}

// wholeBody gives its place back when the SDK closes it, which is after decoding.
type wholeBody struct {
	io.Reader
	release func()
}

// Close implements io.Closer.
func (b *wholeBody) Close() error {
	b.release()
	return nil
}
