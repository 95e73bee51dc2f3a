// SPDX-License-Identifier: Apache-2.0

// Package apierrors defines the errors of the CF API with their codes, titles and details. Clients compare some details
// literally, so these are identical to Cloud Foundry's.
package apierrors

import (
	"errors"
	"net/http"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
)

// CFError is an error of the CF API. Clients receive all fields except Cause, which is only logged.
type CFError struct {
	// Status is the HTTP status. Code and Title are defined by CF. Detail is a readable sentence.
	Status int
	Code   int
	Title  string
	Detail string
	// Cause is the underlying error, or nil.
	Cause error
}

// Error returns the detail and the cause, for the log.
func (f *CFError) Error() string {
	if f.Cause != nil {
		return f.Detail + ": " + f.Cause.Error()
	}
	return f.Detail
}

// Unwrap returns the cause.
func (f *CFError) Unwrap() error { return f.Cause }

// HasStatus reports whether err is a CFError with this status.
func HasStatus(err error, status int) bool {
	var known *CFError
	return errors.As(err, &known) && known.Status == status
}

// NewUnknownRequest returns the error for a path or a method that the API does not serve.
func NewUnknownRequest() *CFError {
	return &CFError{Status: http.StatusNotFound, Code: 10000, Title: "CF-NotFound", Detail: "Unknown request"}
}

// NewInvalidRequest returns the error for a request that the API cannot serve, such as a request of an old client.
func NewInvalidRequest(detail string) *CFError {
	return &CFError{Status: http.StatusBadRequest, Code: 10004, Title: "CF-InvalidRequest", Detail: detail}
}

// NewNotFound returns the error for a resource that does not exist or that the caller may not see. Both cases look the
// same to the caller. resourceType is a name such as "App".
func NewNotFound(resourceType string) *CFError {
	return &CFError{Status: http.StatusNotFound, Code: 10010, Title: "CF-ResourceNotFound", Detail: resourceType + " not found"}
}

// NewNotAuthenticated returns the error for missing, malformed or rejected credentials, with the argument as its
// detail.
func NewNotAuthenticated(what string) *CFError {
	return &CFError{Status: http.StatusUnauthorized, Code: 10002, Title: "CF-NotAuthenticated", Detail: what}
}

// NewNotAuthorized returns the error for a caller that may see a resource but lacks the right for this action.
func NewNotAuthorized(cause error) *CFError {
	return &CFError{
		Status: http.StatusForbidden, Code: 10003, Title: "CF-NotAuthorized",
		Detail: "You are not authorized to perform the requested action", Cause: cause,
	}
}

// NewUnprocessableEntity returns the error for an invalid request. Unless it is Cloud Foundry's own text, the detail
// contains the expected value, the found value and the next step.
func NewUnprocessableEntity(detail string) *CFError {
	return &CFError{Status: http.StatusUnprocessableEntity, Code: 10008, Title: "CF-UnprocessableEntity", Detail: detail}
}

// NewMessageParseError returns the error for a body or a query that cannot be parsed.
func NewMessageParseError(detail string) *CFError {
	return &CFError{Status: http.StatusBadRequest, Code: 1001, Title: "CF-MessageParseError", Detail: detail}
}

// NewRateLimitExceeded returns the error for a caller that has sent too many requests.
func NewRateLimitExceeded() *CFError {
	return &CFError{
		Status: http.StatusTooManyRequests, Code: 10013, Title: "CF-RateLimitExceeded",
		Detail: "Rate Limit Exceeded: too many requests were sent; wait a second and try again",
	}
}

// NewServiceUnavailable returns the error for a failure that the caller has not caused. The status is 503, because the
// client hides the detail of a 500.
func NewServiceUnavailable(detail string, cause error) *CFError {
	return &CFError{Status: http.StatusServiceUnavailable, Code: 10015, Title: "CF-ServiceUnavailable", Detail: detail, Cause: cause}
}

// ForbiddenAsNotFound is like FromError, but converts a forbidden read to a not-found error. So the caller cannot find
// out whether the resource exists.
func ForbiddenAsNotFound(err error, resourceType string) *CFError {
	if k8serrors.IsForbidden(err) {
		return NewNotFound(resourceType)
	}
	return FromError(err, resourceType)
}

// FromError converts any error to a CFError. resourceType is a name such as "App".
func FromError(err error, resourceType string) *CFError {
	var known *CFError
	var status k8serrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known
	case k8serrors.IsNotFound(err):
		return NewNotFound(resourceType)
	case k8serrors.IsUnauthorized(err):
		return NewNotAuthenticated("Authentication error: Kubernetes rejected these credentials; log in again")
	case k8serrors.IsForbidden(err):
		if quota := describeQuotaRefusal(err); quota != "" {
			return NewUnprocessableEntity(quota)
		}
		return NewNotAuthorized(err)
	case (k8serrors.IsInvalid(err) || k8serrors.IsBadRequest(err) || k8serrors.IsAlreadyExists(err)) && errors.As(err, &status):
		return NewUnprocessableEntity(status.Status().Message)
	case k8serrors.IsTooManyRequests(err):
		return NewRateLimitExceeded()
	case k8serrors.IsConflict(err):
		return NewServiceUnavailable("Another request changed this object at the same time, so this change was not made; try again", err)
	// The API server returns this error if the admission webhook of apps does not respond.
	case k8serrors.IsInternalError(err):
		return NewServiceUnavailable("Kubernetes could not process the request; check the current state, and try again. If the error persists, ask the platform team whether torpor manager, which admits changes to apps, is running", err)
	default:
		return NewServiceUnavailable("Kubernetes returned an unexpected error; try again, and if the error persists, ask the platform team for the log of torpor cf-api", err)
	}
}

// describeQuotaRefusal returns the exceeded quota and its numbers, or "" for any other refusal. The API server rejects
// objects over quota with the same reason as missing rights, and only the text differs.
func describeQuotaRefusal(err error) string {
	_, refusal, found := strings.Cut(err.Error(), " is forbidden: ")
	if !found || !strings.HasPrefix(refusal, "exceeded quota: ") {
		return ""
	}
	return "expected the request to fit into the quotas of the space, found that it does not: " + refusal + "; delete unused objects, or ask for a larger quota"
}
