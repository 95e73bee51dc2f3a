// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

func explainCloudError(err error) *hibernation.ObservationError {
	// A cloud's own words are shown only where the actuator vouches that they are stable and free of secrets.
	if e, ok := errors.AsType[*actuator.Error](err); ok {
		return &hibernation.ObservationError{Class: e.Class, Message: e.Message + adviceFor(e.Class)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &hibernation.ObservationError{Class: actuator.Unreachable, Message: "The cloud did not answer in time"}
	}
	return &hibernation.ObservationError{Class: actuator.Other, Message: "The cloud call ended with an error of an unknown kind"}
}

// adviceFor says what to do about errors whose words are the cloud's own.
func adviceFor(c actuator.ErrorClass) string {
	switch c {
	case actuator.CredentialsInvalid:
		return "; correct the credentials Secret or the region"
	case actuator.PermissionDenied:
		return "; allow it to the user of the credentials Secret"
	case actuator.Throttled:
		return "; it is tried again by itself"
	case actuator.CredentialsMissing, actuator.Unreachable, actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other:
		return ""
	default:
		return ""
	}
}
