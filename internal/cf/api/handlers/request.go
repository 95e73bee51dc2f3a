// SPDX-License-Identifier: Apache-2.0

// Package handlers defines the route table and one function for each route. Each function parses the request, calls the
// repositories with the caller's rights, and presents the result.
package handlers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// API holds the dependencies of all handlers.
type API struct {
	Store *repositories.Store
	Clock clock.Clock
	Polls *PollTracker
	// Limits defines the maximum sizes of a process.
	Limits payloads.ProcessLimits
	// Manifests and Logs limit concurrent requests that need megabytes of memory. Uploads limits concurrent requests
	// that take minutes.
	Manifests, Logs, Uploads *RequestSlots
	// Builder receives code. It is nil if no builder is configured.
	Builder *CodeBuilder
}

// Request is an HTTP request with its caller and the dependencies of its handler.
type Request struct {
	*API
	HTTP *http.Request
	// Deadlines sets the deadlines of the connection.
	Deadlines *http.ResponseController
	// Caller is nil for public routes.
	Caller *authorization.Caller
	// Base is the URL at which the client reaches the API, such as https://cf.example.com.
	Base string
}

// Response is the response to a request.
type Response struct {
	Status int
	// Location is the Location header. If it is empty, the header is omitted.
	Location string
	// Warnings are sentences that clients print in addition to their own output.
	Warnings []string
	// Body is sent as JSON unless it is nil.
	Body any
	// YAML is sent unchanged instead of Body.
	YAML []byte
}

// Handler serves a request. Errors of any type other than CFError are converted to a CFError.
type Handler func(ctx context.Context, r *Request) (Response, error)

// withApp returns a Handler for the app in the path, if the app is visible to the caller.
func withApp(handle func(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error)) Handler {
	return func(ctx context.Context, r *Request) (Response, error) {
		app, err := r.Store.GetApp(ctx, r.Caller, r.guid())
		if err != nil {
			return Response{}, err
		}
		return handle(ctx, r, app)
	}
}

// withBody returns a Handler that decodes the request's JSON body.
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

// present responds with an object in the presenter's format, or with the error from reading the object.
func present[T, V any](r *Request, show func(base string, object T) V, object T, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return ok(show(r.Base, object))
}

// presentCreated is like present, with status 201.
func presentCreated[T, V any](r *Request, show func(base string, object T) V, object T, err error) (Response, error) {
	response, err := present(r, show, object, err)
	response.Status = http.StatusCreated
	return response, err
}

// respond responds with a body, or with the error from creating it.
func respond(body any, err error) (Response, error) {
	return Response{Status: http.StatusOK, Body: body}, err
}

// accepted responds with a job for the client to poll, or with the error from starting the job.
func (r *Request) accepted(job string, err error) (Response, error) {
	return Response{Status: http.StatusAccepted, Location: r.Base + "/v3/jobs/" + job}, err
}

func (r *Request) guid() string { return r.HTTP.PathValue("guid") }

func (r *Request) query() url.Values { return r.HTTP.URL.Query() }

// isReversed reports whether the query requests descending order.
func (r *Request) isReversed() bool { return strings.HasPrefix(r.query().Get("order_by"), "-") }

// resourceList is a list to which the request's query has not been applied yet.
type resourceList[T any] struct {
	items []T
	// filters maps each query parameter to a function, which returns the item's value that must match the parameter.
	filters map[string]func(T) string
	// labelsOf returns an item's labels. If it is nil, the labels of the item itself are used if the item is a
	// Kubernetes object.
	labelsOf func(T) map[string]string
	// compare defines a total order without ties. If it is nil, the order is kept.
	compare func(a, b T) int
	// reversed reverses the order.
	reversed bool
}

func (l resourceList[T]) labelSet(item T) labels.Set {
	if l.labelsOf != nil {
		return l.labelsOf(item)
	}
	if object, ok := any(item).(metav1.Object); ok {
		return payloads.OwnKeys(object.GetLabels())
	}
	return nil
}

// respondList responds with the requested page of the items selected by the query.
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
		// There may be thousands of items, so only the filters that the client has sent are evaluated.
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

// unchanged is the show function for items that are presented before they are filtered.
func unchanged[T any](item T) T { return item }

// listNothing returns an empty list for parts of CF that Torpor does not implement.
func listNothing(_ context.Context, r *Request) (Response, error) {
	return respondList(r, resourceList[struct{}]{}, unchanged)
}

// ignoreNotFound returns nil for a not-found error.
func ignoreNotFound(err error) error {
	if err == nil || apierrors.FromError(err, "").Code == apierrors.NewNotFound("").Code {
		return nil
	}
	return err
}
