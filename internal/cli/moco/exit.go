// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"errors"
	"fmt"
	"slices"
)

// exitCode is what the program returns.
type exitCode int

// The exit codes, as the help lists them.
const (
	done exitCode = iota
	failed
	usage
	timedOut
	refused
)

// exitError is an error that has an exit code of its own.
type exitError struct {
	code exitCode
	error
}

func (e exitError) Unwrap() error { return e.error }

func wrongUsage(format string, args ...any) error {
	return exitError{usage, fmt.Errorf(format, args...)}
}

// separate takes apart what errors.Join has joined.
func separate(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what was joined last is taken apart
		return many.Unwrap()
	}
	return []error{err}
}

// codeOf is the exit code of an error. Of several it is that which somebody has to look at first.
func codeOf(err error) exitCode {
	var found []exitCode
	for _, each := range separate(err) {
		code := failed
		if coded, ok := errors.AsType[exitError](each); ok {
			code = coded.code
		}
		found = append(found, code)
	}
	for _, code := range []exitCode{failed, refused, timedOut, usage} {
		if slices.Contains(found, code) {
			return code
		}
	}
	if len(found) > 0 {
		return found[0]
	}
	return done
}
