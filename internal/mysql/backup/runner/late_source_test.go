// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestALateReplicaIsReadOnlyIfNoOtherCan(t *testing.T) {
	replica := func(index int, uuid string) binlogFacts {
		return binlogFacts{index: index, uuid: uuid, replicating: true}
	}
	all := []binlogFacts{replica(0, "a"), {index: 1, uuid: "p", writable: true}, replica(2, "b"), {index: 3}, {index: 4, replicating: true, err: errors.New("down")}}
	for late, want := range map[string][]int{"": {0, 2, 1}, "a": {2, 1, 0}, "b": {0, 1, 2}, "p": {0, 2, 1}} {
		var found []int
		for _, f := range orderCandidates(all, func(f binlogFacts) bool { return f.uuid == late }) {
			found = append(found, f.index)
		}
		testenv.ExpectEqual(t, "instances if "+late+" was late", want, found)
	}
}

func TestProblemIsReportedUntilShippingIsComplete(t *testing.T) {
	s := &shippingStatus{clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	for complete, want := range map[bool]string{false: "too slow", true: ""} {
		s.setProblem(errors.New("too slow"))
		s.setShipped(backup.ShippedState{}, complete)
		if s.last.Problem != want {
			t.Errorf("complete %v: expected the problem %q, found %q", complete, want, s.last.Problem)
		}
	}
}
