// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPermissionsAreDocumented compares the permissions on the documentation page for AWS with two sets of calls:
// those of a hibernation and a resume of a cluster with a spot machine, and those of the changes to groups.
func TestPermissionsAreDocumented(t *testing.T) {
	c := startCloud(t).newCluster(t)
	ids, spot := c.Create(t, 2), c.createSpot(t)
	group, nodes := c.joinOwnGroup(t, c.Create(t, 1)[0]), c.joinNodeGroup(t, c.Create(t, 1)[0])
	created := c.cloud.countCalls(t) // The test itself has made these calls.
	a, target := c.cloud.actuator, c.Target()
	_, err := a.Observe(t.Context(), target)
	testenv.ExpectNoError(t, errors.Join(err, a.RequireStopRights(t.Context(), target, ids), a.RequireTerminateRights(t.Context(), target, []string{spot})))
	testenv.ExpectNoError(t, a.Stop(t.Context(), target, ids))
	testenv.ExpectNoError(t, errors.Join(a.TerminateAll(t.Context(), target, [][]string{{spot}})...))
	c.Settle(t)
	testenv.ExpectNoError(t, a.Start(t.Context(), target, ids))
	c.holdAndRelease(t, group)
	c.resize(t, nodes, actuator.GroupSize{})
	called := map[string]bool{}
	for action := range c.cloud.CountCalls(t) {
		action, _, _ = strings.Cut(action, ".") // Dry runs and refused calls are counted separately.
		service := "ec2:"
		switch {
		case strings.Contains(action, "AutoScaling") || strings.HasSuffix(action, "Processes"):
			service = "autoscaling:"
		case strings.Contains(action, "Nodegroup"):
			service = "eks:"
		}
		called[service+action] = true
	}
	t.Logf("calls of the test itself: %v", created)
	actuatortest.ExpectDocumented(t, "aws", `(ec2|autoscaling|eks):[A-Z]\w+`, called)
}
