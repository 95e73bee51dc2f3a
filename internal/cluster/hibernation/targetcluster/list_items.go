// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	pageSize = 500
	// maxPages and maxItems limit one list. 5,000 nodes, the maximum that Kubernetes supports, are ten pages.
	maxPages = 40
	maxItems = 10_000
	// maxItemBytes exceeds the JSON size of any object that etcd can store.
	maxItemBytes = 3 << 20
	// maxListBytes limits the lists inside an item. Short elements such as {} need the most memory per byte when they
	// are decoded.
	maxListBytes = 64 << 10
)

var (
	errTooManyItems = errors.New("the server's list has more pages or items than allowed")
	errTooManyNodes = errors.New("the server has more nodes than the hibernation record can contain")
	// errTooMuchToKeep is the error of lists with elements that grow when they are decoded.
	errTooMuchToKeep = errors.New("the items of the server's list need more memory than allowed")
	errMalformed     = errors.New("the server's response is malformed")
)

// listQuery describes a list request: its path, its label selector and its field selector.
type listQuery struct{ path, selector, fields string }

// listItems calls visit with each item of a list when it is received. It keeps at most one undecoded item in memory,
// so the memory of a list depends only on visit.
func (c *ClusterClient) listItems(ctx context.Context, path string, visit func(item []byte) error) error {
	return c.listSelected(ctx, listQuery{path: path}, visit)
}

func (c *ClusterClient) listSelected(ctx context.Context, q listQuery, visit func(item []byte) error) error {
	items, next := 0, ""
	count := func(item []byte) error {
		if items++; items > maxItems {
			return errTooManyItems
		}
		return visit(item)
	}
	for range maxPages {
		var err error
		if next, err = c.readPage(ctx, q, next, count); err != nil || next == "" {
			return err
		}
	}
	return errTooManyItems
}

// readPage returns the token of the next page; empty after the last page.
func (c *ClusterClient) readPage(ctx context.Context, q listQuery, from string, visit func(item []byte) error) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	// client-go must not wait for a retry that the server requests. The next pass retries.
	request := c.rest.Get().AbsPath(q.path).Param("limit", strconv.Itoa(pageSize)).MaxRetries(0)
	if q.selector != "" {
		request = request.Param("labelSelector", q.selector)
	}
	if q.fields != "" {
		request = request.Param("fieldSelector", q.fields)
	}
	if from != "" {
		request = request.Param("continue", from)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("query the server: %w", err)
	}
	defer func() { _ = body.Close() }()
	p := &pageReader{body: body}
	p.decoder = json.NewDecoder(p)
	return p.readList(visit)
}

// pageReader decodes a list, with a budget of bytes for each of its values.
type pageReader struct {
	body    io.Reader
	left    int
	decoder *json.Decoder
}

// Read implements io.Reader.
func (p *pageReader) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, httpguard.ErrAnswerTooLarge
	}
	n, err := p.body.Read(b[:min(len(b), p.left)])
	p.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read the response: %w", err)
	}
	return n, err
}

func (p *pageReader) readList(visit func(item []byte) error) (next string, err error) {
	if err := p.expectToken('{'); err != nil {
		return "", err
	}
	for p.hasMore() {
		p.left = maxItemBytes
		key, err := p.decoder.Token()
		if err != nil {
			return "", malformedUnlessBroken(err)
		}
		if key == "items" {
			if err := p.readItems(visit); err != nil {
				return "", err
			}
			continue
		}
		value, err := p.readValue()
		if err != nil {
			return "", err
		}
		var metadata struct {
			Continue string `json:"continue"`
		}
		if key == "metadata" {
			if err := json.Unmarshal(value, &metadata); err != nil {
				return "", errMalformed
			}
			next = metadata.Continue
		}
	}
	return next, p.expectToken('}')
}

func (p *pageReader) readItems(visit func(item []byte) error) error {
	p.left = maxItemBytes
	token, err := p.decoder.Token()
	switch {
	case err != nil:
		return malformedUnlessBroken(err)
	case token == nil: // An empty list may be null.
		return nil
	case token != json.Delim('['):
		return errMalformed
	}
	for p.hasMore() {
		item, err := p.readValue()
		if err != nil {
			return err
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	return p.expectToken(']')
}

// hasMore also needs a budget, because it skips white space.
func (p *pageReader) hasMore() bool {
	p.left = maxItemBytes
	return p.decoder.More()
}

func (p *pageReader) readValue() (json.RawMessage, error) {
	p.left = maxItemBytes
	var value json.RawMessage
	return value, malformedUnlessBroken(p.decoder.Decode(&value))
}

func (p *pageReader) expectToken(want json.Delim) error {
	p.left = maxItemBytes
	token, err := p.decoder.Token()
	if err == nil && token != want {
		return errMalformed
	}
	return malformedUnlessBroken(err)
}

// malformedUnlessBroken replaces errors of invalid JSON with errMalformed. It keeps errors of the connection and of
// budgets, because users need their causes.
func malformedUnlessBroken(err error) error {
	_, isSyntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		return nil
	case isSyntax, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errMalformed
	default:
		return fmt.Errorf("read the list: %w", err)
	}
}

// objectMetadata contains the fields that are read from an object's metadata.
type objectMetadata struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp *metav1.Time      `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
}

// decodeInnerList decodes a list inside an item. A list that exceeds any plausible length is an error.
func decodeInnerList[T any](raw json.RawMessage) ([]T, error) {
	if len(raw) > maxListBytes {
		return nil, httpguard.ErrAnswerTooLarge
	}
	if len(raw) == 0 {
		return nil, nil
	}
	var list []T
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errMalformed
	}
	return list, nil
}
