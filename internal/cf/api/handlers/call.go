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
	// Patience remembers who has just started what.
	Patience *Patience
}

// Call is one request of a caller.
type Call struct {
	*API
	Request *http.Request
	// Caller is nil where the route is public.
	Caller *authorization.Caller
	// Base is the API's own address as the client knows it, such as https://cf.example.com.
	Base string
}

// Answer is what a request gets.
type Answer struct {
	Status int
	// Location is where to look next; empty for none.
	Location string
	// Warnings are sentences that clients show to people beside their own output.
	Warnings []string
	// Body is shown as JSON; nil for none.
	Body any
}

// Handler answers a request; its errors are faults, or become some.
type Handler func(ctx context.Context, c *Call) (Answer, error)

func ok(body any) (Answer, error) { return Answer{Status: http.StatusOK, Body: body}, nil }

func created(body any) (Answer, error) { return Answer{Status: http.StatusCreated, Body: body}, nil }

func (c *Call) guid() string { return c.Request.PathValue("guid") }

// app is the one in the path, if the caller may see it.
func (c *Call) app(ctx context.Context) (*korifiv1alpha1.CFApp, error) {
	return c.Store.App(ctx, c.Caller, c.guid())
}

// accepted is for work that goes on: the client follows the job.
func (c *Call) accepted(job string) (Answer, error) {
	return Answer{Status: http.StatusAccepted, Location: c.Base + "/v3/jobs/" + job}, nil
}

// page shows one page of a list.
func page[T, V any](c *Call, all []T, show func(T) V) (Answer, error) {
	at, err := url.Parse(c.Base)
	if err != nil {
		return Answer{}, err
	}
	at.Path, at.RawQuery = c.Request.URL.Path, c.Request.URL.RawQuery
	p, err := payloads.PageOf(c.Request.URL.Query())
	if err != nil {
		return Answer{}, err
	}
	wanted, err := payloads.Unlabelled(c.Request.URL.Query())
	if err != nil {
		return Answer{}, err
	}
	if !wanted {
		all = nil
	}
	return ok(presenter.PageOf(*at, p, all, show))
}

// nothing is an empty list, for what clients ask of everything and Torpor does not have.
func nothing(_ context.Context, c *Call) (Answer, error) {
	return page(c, nil, func(struct{}) struct{} { return struct{}{} })
}
