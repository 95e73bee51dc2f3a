// SPDX-License-Identifier: Apache-2.0

// Package exit defines errors with the exit codes that plugins document in their help.
package exit

import (
	"errors"
	"fmt"
	"slices"
)

// Code is the exit code of a program.
type Code int

// The exit codes of every plugin.
const (
	Done Code = iota
	Failed
	Usage
	TimedOut
	Refused
)

// Error is an error with an exit code. If Err is nil, the text is empty, and kubectl moco prints nothing.
type Error struct {
	Code Code
	Err  error
}

func (e Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e Error) Unwrap() error { return e.Err }

// WrongUsage returns an error about an invalid command line.
func WrongUsage(format string, args ...any) error {
	return Error{Usage, fmt.Errorf(format, args...)}
}

// SplitErrors returns the errors that errors.Join has joined, or the error itself.
func SplitErrors(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// CodeOf returns the exit code of an error, or Failed if it has none. For joined errors, it returns the most urgent
// code: Failed, then Refused, TimedOut and Usage.
func CodeOf(err error) Code {
	var found []Code
	for _, each := range SplitErrors(err) {
		code := Failed
		if coded, ok := errors.AsType[Error](each); ok {
			code = coded.Code
		}
		found = append(found, code)
	}
	for _, code := range []Code{Failed, Refused, TimedOut, Usage} {
		if slices.Contains(found, code) {
			return code
		}
	}
	if len(found) > 0 {
		return found[0]
	}
	return Done
}
