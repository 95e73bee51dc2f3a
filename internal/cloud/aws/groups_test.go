// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"slices"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// joinOwnGroup makes a machine a member of a group that only this cluster has.
func (c *simulatedCluster) joinOwnGroup(t *testing.T, id string) string {
	t.Helper()
	group := "workers-of-" + c.infraID
	c.JoinGroup(t, id, group)
	return group
}

// holdAndRelease changes a group in each possible way.
func (c *simulatedCluster) holdAndRelease(t *testing.T, group string) {
	t.Helper()
	for _, change := range []actuator.GroupChange{
		{Name: group, Suspend: []string{"Terminate", "HealthCheck"}},
		{Name: group, Size: &actuator.GroupSize{}},
		{Name: group, Size: &actuator.GroupSize{Min: 1, Desired: 1}},
		{Name: group, Resume: []string{"Terminate", "HealthCheck"}},
	} {
		testenv.ExpectNoError(t, c.cloud.actuator.ChangeGroups(t.Context(), c.Target(), []actuator.GroupChange{change}))
	}
	found := c.observeGroup(t, group)
	if len(found.Suspended) > 0 || found.Min != 1 || found.Desired != 1 {
		t.Errorf("expected a group as before, found %+v", found)
	}
}

func (c *simulatedCluster) observeGroup(t *testing.T, group string) actuator.Group {
	t.Helper()
	groups, err := c.cloud.actuator.ObserveGroups(t.Context(), c.Target(), []actuator.GroupQuery{{Name: "other", WantsSize: true}, {Name: group, WantsSize: true}})
	testenv.ExpectNoError(t, err)
	if len(groups) != 1 || groups[0].Name != group {
		t.Fatalf("expected the group %s, found %+v", group, groups)
	}
	return groups[0]
}

func TestGroups(t *testing.T) {
	cloud := startCloud(t)
	for name, row := range map[string]func(t *testing.T, c *simulatedCluster, group string){
		"repeated suspension of a group causes no error": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			for range 2 {
				testenv.ExpectNoError(t, c.change(t, actuator.GroupChange{Name: group, Suspend: heldProcesses()}))
			}
			if found := c.observeGroup(t, group); !found.IsSuspended() || !slices.Equal(found.Suspended, heldProcesses()) {
				t.Errorf("expected every process to be suspended, found %+v", found)
			}
		},
		"suspended processes that replace no machine are ignored": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.cloud.CallAutoScaling(t, "SuspendProcesses", group, "ScalingProcesses.member.1", "AddToLoadBalancer", "ScalingProcesses.member.2", "Launch")
			if found := c.observeGroup(t, group); !slices.Equal(found.Suspended, []string{"Launch"}) || found.Unscalable == "" {
				t.Errorf("expected only Launch, which prevents scaling, found %+v", found)
			}
		},
		"refused group is reported, and other groups are changed": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			err := c.change(t, actuator.GroupChange{Name: "gone", Size: &actuator.GroupSize{}}, actuator.GroupChange{Name: group, Size: &actuator.GroupSize{}})
			if known, ok := errors.AsType[*actuator.Error](err); !ok || !slices.Equal(known.RefusedIDs, []string{"gone"}) {
				t.Errorf("expected only the group gone to be refused, found %v", err)
			}
			if found := c.observeGroup(t, group); found.Desired != 0 {
				t.Errorf("expected the other group to be scaled, found %+v", found)
			}
		},
		"missing right to read groups is PermissionDenied": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.cloud.InjectFault(t, testenv.CloudFault{Action: describeGroups, Code: "AccessDenied", Message: "Not authorized.", Times: 1})
			if _, err := c.cloud.actuator.ObserveGroups(t.Context(), c.Target(), []actuator.GroupQuery{{Name: group}}); actuator.ClassOf(err) != actuator.PermissionDenied {
				t.Errorf("expected class %q, found %v", actuator.PermissionDenied, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloud.newCluster(t)
			row(t, c, c.joinOwnGroup(t, c.Create(t, 1)[0]))
		})
	}
}

func (c *simulatedCluster) change(t *testing.T, changes ...actuator.GroupChange) error {
	t.Helper()
	return c.cloud.actuator.ChangeGroups(t.Context(), c.Target(), changes)
}
