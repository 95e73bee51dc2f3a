// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// explainError converts an error of a call to an *onebyone.RefusedError or an *actuator.Error. The message does not
// change when the error is repeated.
func (c *projectAccount) explainError(operation string, err error) error {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known
	}
	refusal, ok := errors.AsType[*cloudrest.StatusError](err)
	if !ok {
		return unreachableErrorf(operation, "%s", cloudrest.DescribeMissingAnswer(err))
	}
	reason, message := readRefusal(refusal)
	class := errorTable().ClassOf(refusal.Describe(operation, reason, message))
	reason, message = cloudrest.Scrub(reason, c.secret), cloudrest.Scrub(message, c.secret)
	switch {
	case class == actuator.Unreachable:
		return unreachableErrorf(operation, "the API responds with status %d", refusal.Status)
	case isLocalSSD(message) && operation == stop:
		return &onebyone.RefusedError{Class: actuator.Other, Code: "localSSD", Message: "Google Cloud does not stop instances with local SSDs without a decision about " +
			"their data: set spec.platform.gcp.discardLocalSsdOnHibernate to true, which loses the data, or to false, which keeps it"}
	case onebyone.IsOfMachine(class) && (operation == stop || operation == start):
		return &onebyone.RefusedError{Class: class, Code: reason, Message: message}
	default:
		return &actuator.Error{Class: class, Message: fmt.Sprintf("%s: %s: %s", operation, reason, message), RetryAfter: refusal.RetryAfter()}
	}
}

// explainOrder returns the error of an accepted order, or nil if the order did not fail.
func (c *projectAccount) explainOrder(operation string, taken *takenOrder) error {
	if !taken.hasEnded() || taken.Error == nil || len(taken.Error.Errors) == 0 {
		return nil
	}
	failure := taken.Error.Errors[0]
	class := errorTable().ClassOf(errortable.Found{Operation: operation, Code: failure.Code, Message: failure.Message})
	if !onebyone.IsOfMachine(class) {
		return actuator.Errorf(class, "%s: %s: %s", operation, cloudrest.Scrub(failure.Code), cloudrest.Scrub(failure.Message, c.secret))
	}
	return &onebyone.RefusedError{Class: class, Code: cloudrest.Scrub(failure.Code), Message: cloudrest.Scrub(failure.Message, c.secret)}
}

// readRefusal returns the reason and the message of an error.
func readRefusal(refusal *cloudrest.StatusError) (reason, message string) {
	var content struct {
		Error struct {
			Message string `json:"message"`
			Status  string `json:"status"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	_ = json.Unmarshal(refusal.Body, &content) // A response without a message still has a status.
	reason, message = content.Error.Status, content.Error.Message
	if len(content.Error.Errors) > 0 && content.Error.Errors[0].Reason != "" {
		reason = content.Error.Errors[0].Reason
	}
	if reason == "" {
		reason = "status " + strconv.Itoa(refusal.Status)
	}
	if message == "" {
		message = "without a message"
	}
	return reason, message
}

// isLocalSSD reports whether Google Cloud requires a decision about the data on local SSDs. This error has no code.
func isLocalSSD(message string) bool {
	return strings.Contains(strings.ToLower(strings.NewReplacer("-", "", " ", "", "_", "").Replace(message)), "localssd")
}

func unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "%s at Google Cloud: %s; check the network", operation, fmt.Sprintf(format, args...))
}
