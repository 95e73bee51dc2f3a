// SPDX-License-Identifier: Apache-2.0

package onebyone

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func TestRefusalsOfOneCodeKeepTheirClasses(t *testing.T) {
	refusals := map[string]error{
		"m0": &RefusedError{Class: actuator.WrongState, Code: "OperationNotAllowed", Message: "it is being updated"},
		"m1": &RefusedError{Class: actuator.Other, Code: "OperationNotAllowed", Message: "not supported"},
		"m2": &RefusedError{Class: actuator.WrongState, Code: "OperationNotAllowed", Message: "it is starting"},
	}
	err := Run("stop", [][]string{{"m0", "m1", "m2"}}, func(id string) error { return refusals[id] })[0]
	const want = "other: stop: OperationNotAllowed for m1: not supported; OperationNotAllowed for m0, m2: it is being updated"
	if err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
}
