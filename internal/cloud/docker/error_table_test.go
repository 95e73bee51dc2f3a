// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.RunWithStatuses(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.Unreachable: {
			{Operation: list, Status: 500},
		},
		actuator.Other: {
			{Operation: start, Status: 500, Message: "error mounting a volume"},
			{Operation: stop, Status: 500, Message: "cannot kill container"},
		},
		actuator.NoCapacity: {
			{Operation: start, Status: 500, Message: "driver failed: Bind for 0.0.0.0:6443 failed: port is already allocated"},
			{Operation: start, Status: 500, Message: "listen tcp4 0.0.0.0:6443: bind: address already in use"},
			{Operation: start, Status: 500, Message: "failed to create task: write /run: no space left on device"},
			{Operation: start, Status: 500, Message: "fork/exec /proc/self/exe: cannot allocate memory"},
		},
	})
}
