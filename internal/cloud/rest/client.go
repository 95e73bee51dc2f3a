// SPDX-License-Identifier: Apache-2.0

// Package rest calls the REST APIs of clouds that need no SDK. Calls have deadlines and budgets, go only to hosts that
// the caller fixes, and carry a token that is fetched on demand. The package of each cloud interprets the errors.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// maxAnswerBytes allows a page of 500 machines of 16 KiB each.
const maxAnswerBytes = 8 << 20

// APIClient calls the API for one account. It follows neither redirects nor addresses in responses.
type APIClient struct {
	// HTTP sends the requests.
	HTTP *http.Client
	// Tokens provides the access tokens of the account.
	Tokens *TokenCache
	// Timeout limits one call, including the login.
	Timeout time.Duration
}

// NewHTTPClient returns a client that sends the requests of all accounts of a cloud.
func NewHTTPClient(endpoints httpguard.Endpoints) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: onebyone.ParallelCalls, IdleConnTimeout: 90 * time.Second,
	}
	httpguard.BoundTransport(transport)
	return BoundClient(transport)
}

// BoundClient returns a client that limits the size of responses. It does not follow redirects, because the token would
// be sent along.
func BoundClient(transport http.RoundTripper) *http.Client {
	return httpguard.NewClient(transport, maxAnswerBytes, 0)
}

// Call makes one call. It sends body as JSON unless body is nil, and decodes the JSON of the response into result
// unless result is nil. It returns the error of ctx if ctx has ended, a *StatusError if the cloud refused the call, and
// otherwise ErrNotJSON, httpguard.ErrAnswerTooLarge or another error.
func (c *APIClient) Call(ctx context.Context, method, url string, body, result any) error {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := c.callOnce(limited, method, url, body, result)
	// A token may be revoked before it expires. A second attempt uses a new token.
	if refusal, ok := errors.AsType[*StatusError](err); ok && refusal.Status == http.StatusUnauthorized && refusal.token != "" {
		c.Tokens.drop(refusal.token)
		err = c.callOnce(limited, method, url, body, result)
	}
	if err != nil && ctx.Err() != nil {
		// The caller ended the call, so the error does not describe the cloud.
		return ctx.Err()
	}
	return err
}

func (c *APIClient) callOnce(ctx context.Context, method, url string, body, result any) error {
	token, err := c.Tokens.get(ctx)
	if err != nil {
		return err
	}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return fmt.Errorf("create the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	err = Send(c.HTTP, request, result)
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		refusal.token = token
	}
	return err
}

// RequestSender sends a request, as an http.Client does.
type RequestSender interface {
	Do(request *http.Request) (*http.Response, error)
}

// Send sends one request to a host that the caller has fixed, without adding a token. It decodes the JSON of the
// response as Call does.
func Send(client RequestSender, request *http.Request, result any) error {
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "torpor/"+buildinfo.ReadVersion().Version)
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body) // The transport limits the size of the response.
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return &StatusError{Status: answer.StatusCode, Header: answer.Header, Body: content}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(content, result); err != nil {
		return ErrNotJSON
	}
	return nil
}
