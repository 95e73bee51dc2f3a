// SPDX-License-Identifier: Apache-2.0

// Package rest asks the REST APIs of clouds that need no SDK: within deadlines and budgets, at hosts that the caller fixes, with a token
// that is fetched when it is needed. What an error means is the cloud's own matter.
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
	"github.com/torpor-dev/torpor/internal/cloud/orders"
	"github.com/torpor-dev/torpor/internal/egress"
)

// maxAnswerBytes is for a page of 500 machines of 16 KiB each.
const maxAnswerBytes = 8 << 20

// APIClient asks one account. It follows no redirect and no address out of an answer.
type APIClient struct {
	// HTTP sends the requests.
	HTTP *http.Client
	// Tokens open the account.
	Tokens *TokenCache
	// Timeout bounds one call, the login included.
	Timeout time.Duration
}

// NewHTTPClient returns what sends the requests of all accounts of a cloud.
func NewHTTPClient(endpoints egress.Endpoints) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: orders.ParallelCalls, IdleConnTimeout: 90 * time.Second,
	}
	egress.BoundTransport(transport)
	return BoundClient(transport)
}

// BoundClient returns a client whose answers have a budget, and which follows no redirect: a token would go along.
func BoundClient(transport http.RoundTripper) *http.Client {
	return egress.NewClient(transport, maxAnswerBytes, 0)
}

// Call makes one call, with body as JSON unless it is nil, and reads the JSON of the answer into result unless that is nil. It returns the
// error of ctx if that ended, a *StatusError if the cloud refused, and ErrNotJSON, egress.ErrAnswerTooLarge or another error otherwise.
func (c *APIClient) Call(ctx context.Context, method, url string, body, result any) error {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := c.callOnce(limited, method, url, body, result)
	// A token may end before its time; whoever has another then gets in.
	if refusal, ok := errors.AsType[*StatusError](err); ok && refusal.Status == http.StatusUnauthorized && refusal.token != "" {
		c.Tokens.drop(refusal.token)
		err = c.callOnce(limited, method, url, body, result)
	}
	if err != nil && ctx.Err() != nil {
		// The caller ended the call, and that says nothing about the cloud.
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
		return fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	err = Send(c.HTTP, request, result)
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		refusal.token = token
	}
	return err
}

// RequestSender is an http.Client.
type RequestSender interface {
	Do(request *http.Request) (*http.Response, error)
}

// Send sends one request, whose host the caller has fixed, and reads the JSON of the answer as Call does, without a token.
func Send(client RequestSender, request *http.Request, result any) error {
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "torpor/"+buildinfo.ReadVersion().Version)
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body) // Its size is the transport's matter.
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
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
