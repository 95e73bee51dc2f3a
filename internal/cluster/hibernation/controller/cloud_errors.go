// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

func explainCloudError(err error) *hibernation.ObservationError {
	// The cloud's own message is shown only if the actuator guarantees that it is stable and free of secrets.
	if e, ok := errors.AsType[*actuator.Error](err); ok {
		return &hibernation.ObservationError{Class: e.Class, Message: e.Message + adviceFor(e.Class)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &hibernation.ObservationError{Class: actuator.Unreachable, Message: "The cloud did not respond in time"}
	}
	return &hibernation.ObservationError{Class: actuator.Other, Message: "The request to the cloud failed with an unknown error"}
}

// adviceFor returns the remedy for errors that are shown with the cloud's own message.
func adviceFor(c actuator.ErrorClass) string {
	switch c {
	case actuator.CredentialsInvalid:
		return "; correct the credentials Secret or the region"
	case actuator.PermissionDenied:
		return "; grant this permission to the user of the credentials Secret"
	case actuator.Throttled:
		return "; Torpor retries the request automatically"
	case actuator.CredentialsMissing, actuator.Unreachable, actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other:
		return ""
	default:
		return ""
	}
}
