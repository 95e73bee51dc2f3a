// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// explainError converts an error of a call to an *onebyone.RefusedError or an *actuator.Error. The message does not
// change when the error is repeated.
func (c *regionAccount) explainError(operation string, err error) error {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known
	}
	refusal, ok := errors.AsType[*cloudrest.StatusError](err)
	if !ok {
		return unreachableErrorf(operation, "%s", cloudrest.DescribeMissingAnswer(err))
	}
	code, message := readRefusal(refusal)
	class := errorTable().ClassOf(refusal.Describe(operation, code, message))
	code, message = cloudrest.Scrub(code, c.secret), cloudrest.Scrub(message, c.secret)
	switch {
	case class == actuator.Unreachable:
		return unreachableErrorf(operation, "the API responds with status %d", refusal.Status)
	case onebyone.IsOfMachine(class) && (operation == stop || operation == start):
		return &onebyone.RefusedError{Class: class, Code: code, Message: message}
	default:
		return &actuator.Error{Class: class, Message: fmt.Sprintf("%s: %s: %s", operation, code, message), RetryAfter: refusal.RetryAfter()}
	}
}

// readRefusal returns the code and the message of an error.
func readRefusal(refusal *cloudrest.StatusError) (code, message string) {
	var content struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	_ = json.Unmarshal(refusal.Body, &content) // A response without a message still has a status.
	if len(content.Errors) > 0 {
		code, message = content.Errors[0].Code, content.Errors[0].Message
	}
	if code == "" {
		code = "status " + strconv.Itoa(refusal.Status)
	}
	if message == "" {
		message = "without a message"
	}
	return code, message
}

// classOfReason returns the class of the reason why an instance did not start.
func classOfReason(code string) actuator.ErrorClass {
	return errorTable().ClassOf(errortable.Found{Operation: start, Code: code})
}

func unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "%s at IBM Cloud: %s; check the network and spec.platform.ibmcloud.region", operation, fmt.Sprintf(format, args...))
}
