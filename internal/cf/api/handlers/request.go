// SPDX-License-Identifier: Apache-2.0

// Package handlers holds the table of what the API answers, and one function for each row: it reads a payload, asks the
// store with the caller's rights, and shows a view.
package handlers

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/utils/clock"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// API is what all routes share.
type API struct {
	Store *repositories.Store
	Clock clock.Clock
	// Polls remembers who has just started what.
	Polls *PollTracker
}

// Request is one request of a caller.
type Request struct {
	*API
	HTTP *http.Request
	// Caller is nil where the route is public.
	Caller *authorization.Caller
	// Base is the API's own address as the client knows it, such as https://cf.example.com.
	Base string
}

// Response is what a request gets.
type Response struct {
	Status int
	// Location is where to look next; empty for none.
	Location string
	// Warnings are sentences that clients show to people beside their own output.
	Warnings []string
	// Body is shown as JSON; nil for none.
	Body any
}

// Handler answers a request; its errors are faults, or become some.
type Handler func(ctx context.Context, c *Request) (Response, error)

func ok(body any) (Response, error) { return Response{Status: http.StatusOK, Body: body}, nil }

func created(body any) (Response, error) {
	return Response{Status: http.StatusCreated, Body: body}, nil
}

func (c *Request) guid() string { return c.HTTP.PathValue("guid") }

// app is the one in the path, if the caller may see it.
func (c *Request) app(ctx context.Context) (*korifiv1alpha1.CFApp, error) {
	return c.Store.GetApp(ctx, c.Caller, c.guid())
}

// accepted is for work that goes on: the client follows the job.
func (c *Request) accepted(job string) (Response, error) {
	return Response{Status: http.StatusAccepted, Location: c.Base + "/v3/jobs/" + job}, nil
}

// page shows one page of a list.
func page[T, V any](c *Request, all []T, show func(T) V) (Response, error) {
	at, err := url.Parse(c.Base)
	if err != nil {
		return Response{}, err
	}
	at.Path, at.RawQuery = c.HTTP.URL.Path, c.HTTP.URL.RawQuery
	p, err := payloads.ParsePage(c.HTTP.URL.Query())
	if err != nil {
		return Response{}, err
	}
	wanted, err := payloads.SelectsUnlabelled(c.HTTP.URL.Query())
	if err != nil {
		return Response{}, err
	}
	if !wanted {
		all = nil
	}
	return ok(presenter.ForList(*at, p, all, show))
}

// listNothing is an empty list, for what clients ask of everything and Torpor does not have.
func listNothing(_ context.Context, c *Request) (Response, error) {
	return page(c, nil, func(struct{}) struct{} { return struct{}{} })
}
