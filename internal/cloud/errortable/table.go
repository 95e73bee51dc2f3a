// SPDX-License-Identifier: Apache-2.0

// Package errortable classifies errors of clouds with tables. Each cloud, or each protocol of a cloud, has one table,
// which is part of its page in docs/clouds.
package errortable

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// anything matches any text in codes and phrases.
	anything = "*"
	// lowestStatus and highestStatus are the limits of HTTP statuses.
	lowestStatus, highestStatus = 1, 999
)

// Row assigns a class to errors. An error matches if it matches every field that is set.
type Row struct {
	// Codes are the cloud's names for errors, such as QuotaExceeded. An asterisk matches any text.
	Codes []string
	// Lowest and Highest are the limits of the HTTP status.
	Lowest, Highest int
	// HasPause matches only responses that request a pause.
	HasPause bool
	// Phrases are parts of the message in lower case, one of which must occur. An asterisk matches any text.
	Phrases []string
	// Operations are the operations whose errors match.
	Operations []string
	// Class is the class of the errors.
	Class actuator.ErrorClass
}

// Found describes an error that a cloud returned.
type Found struct {
	// Operation is the operation that failed.
	Operation string
	// Code and Message are the cloud's name for the error and its description.
	Code, Message string
	// Status is the HTTP status; 0 if the error has none.
	Status int
	// HasPause reports whether the cloud requests a pause.
	HasPause bool
}

// Table lists rows in the order of precedence.
type Table []Row

// ClassOf returns the class of the first row that matches, or Other.
func (t Table) ClassOf(found Found) actuator.ErrorClass {
	if i := t.IndexOf(found); i >= 0 {
		return t[i].Class
	}
	return actuator.Other
}

// IndexOf returns the index of the first row that matches, or -1.
func (t Table) IndexOf(found Found) int {
	return slices.IndexFunc(t, func(r Row) bool { return r.matches(found) })
}

func (r Row) matches(found Found) bool {
	message := strings.ToLower(found.Message)
	isCode := slices.ContainsFunc(r.Codes, func(pattern string) bool { return matchesAll(pattern, found.Code) })
	isSaid := slices.ContainsFunc(r.Phrases, func(pattern string) bool { return matchesAll(anything+pattern+anything, message) })
	return (isCode || len(r.Codes) == 0) && (isSaid || len(r.Phrases) == 0) &&
		(len(r.Operations) == 0 || slices.Contains(r.Operations, found.Operation)) &&
		(r.Highest == 0 || found.Status >= r.Lowest && found.Status <= r.Highest) &&
		(!r.HasPause || found.HasPause)
}

// matchesAll reports whether a pattern matches a whole text.
func matchesAll(pattern, text string) bool {
	parts := strings.Split(pattern, anything)
	rest, isPrefixed := strings.CutPrefix(text, parts[0])
	if !isPrefixed {
		return false
	}
	if len(parts) == 1 {
		return rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, isFound := strings.Cut(rest, part)
		if !isFound {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// Status returns a row for a range of HTTP statuses.
func Status(lowest, highest int, class actuator.ErrorClass) Row {
	return Row{Lowest: lowest, Highest: highest, Class: class}
}

// StatusFrom returns a row for an HTTP status and all higher ones.
func StatusFrom(lowest int, class actuator.ErrorClass) Row {
	return Status(lowest, highestStatus, class)
}

// ByStatus returns rows that classify responses by their HTTP status. They come after the rows with codes.
func ByStatus() Table {
	return Table{
		Status(http.StatusUnauthorized, http.StatusUnauthorized, actuator.CredentialsInvalid),
		Status(http.StatusForbidden, http.StatusForbidden, actuator.PermissionDenied),
		Status(http.StatusNotFound, http.StatusNotFound, actuator.NotFound),
		Status(http.StatusGone, http.StatusGone, actuator.NotFound),
		Status(http.StatusConflict, http.StatusConflict, actuator.WrongState),
		Status(http.StatusPreconditionFailed, http.StatusPreconditionFailed, actuator.WrongState),
		Status(http.StatusTooManyRequests, http.StatusTooManyRequests, actuator.Throttled),
		// The cloud responds and requests a pause.
		{Lowest: http.StatusServiceUnavailable, Highest: http.StatusServiceUnavailable, HasPause: true, Class: actuator.Throttled},
		// A retry cannot succeed, unlike for other server errors.
		Status(http.StatusNotImplemented, http.StatusNotImplemented, actuator.Other),
		StatusFrom(http.StatusInternalServerError, actuator.Unreachable),
		Status(http.StatusRequestTimeout, http.StatusRequestTimeout, actuator.Unreachable),
		Status(lowestStatus, http.StatusBadRequest-1, actuator.Unreachable), // A redirect is not followed.
	}
}

// Describe describes the rows for the documentation of a cloud.
func (t Table) Describe() []actuator.ErrorDescription {
	described := make([]actuator.ErrorDescription, 0, len(t)+1)
	for _, row := range t {
		described = append(described, actuator.ErrorDescription{Errors: row.describe(), Class: row.Class})
	}
	return append(described, actuator.ErrorDescription{Errors: "any other error", Class: actuator.Other})
}

func (r Row) describe() string {
	var parts []string
	if len(r.Codes) > 0 {
		parts = append(parts, quoteAll(r.Codes))
	}
	switch {
	case r.Highest == 0:
	case r.Lowest == r.Highest:
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("status %d %s", r.Lowest, http.StatusText(r.Lowest))))
	case r.Lowest < http.StatusContinue:
		parts = append(parts, fmt.Sprintf("status below %d", r.Highest+1))
	case r.Highest == highestStatus:
		parts = append(parts, fmt.Sprintf("status %d and above", r.Lowest))
	default:
		parts = append(parts, fmt.Sprintf("status %d to %d", r.Lowest, r.Highest))
	}
	if r.HasPause {
		parts = append(parts, "with `Retry-After`")
	}
	if len(r.Phrases) > 0 {
		parts = append(parts, "with "+quoteAll(r.Phrases)+" in the message")
	}
	if len(r.Operations) > 0 {
		parts = append(parts, "of "+quoteAll(r.Operations))
	}
	return strings.Join(parts, " ")
}

func quoteAll(texts []string) string { return "`" + strings.Join(texts, "`, `") + "`" }
