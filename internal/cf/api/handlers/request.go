// SPDX-License-Identifier: Apache-2.0

// Package handlers holds the table of routes, and one function for each of them: it parses the payload, asks the repositories
// with the caller's rights, and presents what they return.
package handlers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// API is what all handlers share.
type API struct {
	Store *repositories.Store
	Clock clock.Clock
	Polls *PollTracker
	// Limits are what a process may ask for.
	Limits payloads.ProcessLimits
	// Manifests are for reading manifests, Logs for reading logs: both take megabytes. Uploads take minutes.
	Manifests, Logs, Uploads *RequestSlots
	// Builder takes code; nil if there is none.
	Builder *CodeBuilder
}

// Request is one request of a caller.
type Request struct {
	*API
	HTTP *http.Request
	// Deadlines are those of the connection.
	Deadlines *http.ResponseController
	// Caller is nil where the route is public.
	Caller *authorization.Caller
	// Base is the API's own address as the client knows it, such as https://cf.example.com.
	Base string
}

// Response is the answer to a request.
type Response struct {
	Status int
	// Location is the address to look at next; empty for none.
	Location string
	// Warnings are sentences that clients show beside their own output.
	Warnings []string
	// Body is sent as JSON; nil for none.
	Body any
	// YAML is sent as it is, instead of a body.
	YAML []byte
}

// Handler answers a request. Errors that are no CFError are turned into one.
type Handler func(ctx context.Context, r *Request) (Response, error)

// withApp returns a Handler for the app in the path, if the caller may see it.
func withApp(handle func(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error)) Handler {
	return func(ctx context.Context, r *Request) (Response, error) {
		app, err := r.Store.GetApp(ctx, r.Caller, r.guid())
		if err != nil {
			return Response{}, err
		}
		return handle(ctx, r, app)
	}
}

// withBody returns a Handler for the request's body of JSON.
func withBody[B any](handle func(ctx context.Context, r *Request, body B) (Response, error)) Handler {
	return func(ctx context.Context, r *Request) (Response, error) {
		var body B
		if err := payloads.DecodeJSON(r.HTTP.Body, &body); err != nil {
			return Response{}, err
		}
		return handle(ctx, r, body)
	}
}

func ok(body any) (Response, error) { return respond(body, nil) }

// present answers with an object as the presenter shows it, or with the error of finding it.
func present[T, V any](r *Request, show func(base string, object T) V, object T, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return ok(show(r.Base, object))
}

// presentCreated answers like present, with 201.
func presentCreated[T, V any](r *Request, show func(base string, object T) V, object T, err error) (Response, error) {
	response, err := present(r, show, object, err)
	response.Status = http.StatusCreated
	return response, err
}

// respond answers with a body, or with the error of getting it.
func respond(body any, err error) (Response, error) {
	return Response{Status: http.StatusOK, Body: body}, err
}

// accepted answers with the job that the client has to follow, or with the error of beginning it.
func (r *Request) accepted(job string, err error) (Response, error) {
	return Response{Status: http.StatusAccepted, Location: r.Base + "/v3/jobs/" + job}, err
}

func (r *Request) guid() string { return r.HTTP.PathValue("guid") }

func (r *Request) query() url.Values { return r.HTTP.URL.Query() }

// isReversed reports whether the client wants a list in descending order.
func (r *Request) isReversed() bool { return strings.HasPrefix(r.query().Get("order_by"), "-") }

// resourceList is a list before the request's query is applied to it.
type resourceList[T any] struct {
	items []T
	// filters are the query parameters that select items, each with the value of an item that it is compared with.
	filters map[string]func(T) string
	// labelsOf returns the labels of an item; nil if none can have any.
	labelsOf func(T) map[string]string
	// compare orders the items and takes no two for equal; nil leaves them in their order.
	compare func(a, b T) int
	// reversed turns the order round.
	reversed bool
}

func (l resourceList[T]) labelSet(item T) labels.Set {
	if l.labelsOf == nil {
		return nil
	}
	return l.labelsOf(item)
}

// respondList answers with the page that the query asks for, of the items that it selects.
func respondList[T, V any](r *Request, l resourceList[T], show func(T) V) (Response, error) {
	requestURL, err := url.Parse(r.Base)
	if err != nil {
		return Response{}, err
	}
	requestURL.Path, requestURL.RawQuery = r.HTTP.URL.Path, r.HTTP.URL.RawQuery
	page, err := payloads.ParsePage(r.query())
	if err != nil {
		return Response{}, err
	}
	selector, err := payloads.ParseLabelSelector(r.query())
	if err != nil {
		return Response{}, err
	}
	if !selector.Empty() {
		l.items = slices.DeleteFunc(l.items, func(item T) bool { return !selector.Matches(l.labelSet(item)) })
	}
	for parameter, valueOf := range l.filters {
		// Thousands of items are only looked at for the filters that the client sends.
		if wanted := payloads.ParseFilter(r.query(), parameter); wanted != nil {
			l.items = slices.DeleteFunc(l.items, func(item T) bool { return !wanted.Matches(valueOf(item)) })
		}
	}
	if l.compare != nil {
		slices.SortFunc(l.items, l.compare)
	}
	if l.reversed {
		slices.Reverse(l.items)
	}
	return ok(presenter.ForList(*requestURL, page, l.items, show))
}

// unchanged shows items that were presented before they were filtered.
func unchanged[T any](item T) T { return item }

// listNothing answers with an empty list, where clients ask for a part of CF that Torpor does not have.
func listNothing(_ context.Context, r *Request) (Response, error) {
	return respondList(r, resourceList[struct{}]{}, unchanged)
}

// ignoreNotFound returns nil for the error of something that is not there.
func ignoreNotFound(err error) error {
	if err == nil || apierrors.FromError(err, "").Code == apierrors.NewNotFound("").Code {
		return nil
	}
	return err
}
