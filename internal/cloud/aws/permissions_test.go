// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPermissionsAreDocumented compares the permissions on the documentation page for AWS with two sets of calls:
// those of a hibernation and a resume of a cluster with a spot machine, and those of the changes of a group.
func TestPermissionsAreDocumented(t *testing.T) {
	c := startCloud(t).newCluster(t)
	ids, spot := c.Create(t, 2), c.createSpot(t)
	group := c.joinOwnGroup(t, c.Create(t, 1)[0])
	created := c.cloud.countCalls(t) // The test itself has made these calls.
	a, target := c.cloud.actuator, c.Target()
	_, err := a.Observe(t.Context(), target)
	testenv.ExpectNoError(t, errors.Join(err, a.RequireStopRights(t.Context(), target, ids), a.RequireTerminateRights(t.Context(), target, []string{spot})))
	testenv.ExpectNoError(t, a.Stop(t.Context(), target, ids))
	testenv.ExpectNoError(t, errors.Join(a.TerminateAll(t.Context(), target, [][]string{{spot}})...))
	c.Settle(t)
	testenv.ExpectNoError(t, a.Start(t.Context(), target, ids))
	c.holdAndRelease(t, group)
	called := map[string]bool{}
	for action := range c.cloud.CountCalls(t) {
		action, _, _ = strings.Cut(action, ".") // Dry runs and refused calls are counted separately.
		service := "ec2:"
		if strings.Contains(action, "AutoScaling") || strings.HasSuffix(action, "Processes") {
			service = "autoscaling:"
		}
		called[service+action] = true
	}
	page, err := os.ReadFile("../../../docs/clouds/aws.md")
	testenv.ExpectNoError(t, err)
	documented := map[string]bool{}
	for _, permission := range regexp.MustCompile(`(ec2|autoscaling):[A-Z]\w+`).FindAllString(string(page), -1) {
		documented[permission] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(called)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("permissions (-calls +documented), after %v by the test:\n%s", created, diff)
	}
}
