// SPDX-License-Identifier: Apache-2.0

package ec2query

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
)

// The codes of EC2 the cloud answers by itself.
const (
	AuthFailure                         = "AuthFailure"
	DryRunOperation                     = "DryRunOperation"
	IdempotentParameterMismatch         = "IdempotentParameterMismatch"
	IncorrectInstanceState              = "IncorrectInstanceState"
	InsufficientFreeAddressesInSubnet   = "InsufficientFreeAddressesInSubnet"
	InsufficientInstanceCapacity        = "InsufficientInstanceCapacity"
	InternalError                       = "InternalError"
	InvalidAction                       = "InvalidAction"
	InvalidID                           = "InvalidID"
	InvalidInstanceIDMalformed          = "InvalidInstanceID.Malformed"
	InvalidInstanceIDNotFound           = "InvalidInstanceID.NotFound"
	InvalidParameterCombination         = "InvalidParameterCombination"
	InvalidParameterValue               = "InvalidParameterValue"
	MissingParameter                    = "MissingParameter"
	RequestLimitExceeded                = "RequestLimitExceeded"
	TagLimitExceeded                    = "TagLimitExceeded"
	UnauthorizedOperation               = "UnauthorizedOperation"
	Unavailable                         = "Unavailable"
	UnsupportedHibernationConfiguration = "UnsupportedHibernationConfiguration"
	UnsupportedOperation                = "UnsupportedOperation"
	ServerInsufficientInstanceCapacity  = "Server.InsufficientInstanceCapacity"
	ClientInstanceInitiatedShutdown     = "Client.InstanceInitiatedShutdown"
	ClientUserInitiatedShutdown         = "Client.UserInitiatedShutdown"
	ClientInternalError                 = "Client.InternalError"
)

// Error is an error as EC2 answers it.
type Error struct {
	Code, Message string
	// Status is the HTTP status; 0 means the usual one of the code.
	Status int
}

// NewErrorf returns an *Error with the usual status of its code.
func NewErrorf(code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) httpStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	switch e.Code {
	case AuthFailure, UnauthorizedOperation:
		return http.StatusForbidden
	case DryRunOperation:
		return http.StatusPreconditionFailed
	case InternalError, InsufficientInstanceCapacity:
		return http.StatusInternalServerError
	case RequestLimitExceeded, Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadRequest
	}
}

// WriteError answers with an error; one that is not an *Error becomes an InternalError.
func WriteError(w http.ResponseWriter, err error) {
	known, ok := errors.AsType[*Error](err)
	if !ok {
		known = &Error{Code: InternalError, Message: err.Error()}
	}
	id := newRequestID()
	writeXML(w, known.httpStatus(), id, errorAnswer{
		Errors: []errorItem{{Code: known.Code, Message: known.Message}}, RequestID: id,
	}, xml.StartElement{Name: xml.Name{Local: "Response"}})
}

type errorAnswer struct {
	Errors    []errorItem `xml:"Errors>Error"`
	RequestID string      `xml:"RequestID"`
}

type errorItem struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}
