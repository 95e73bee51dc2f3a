// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// joinNodeGroup makes a machine a member of a node group of EKS that only its cluster has.
func (c *simulatedCluster) joinNodeGroup(t *testing.T, id string) string {
	t.Helper()
	group := "nodes-of-" + c.infraID
	c.JoinGroup(t, id, group)
	c.cloud.MarkNodeGroup(t, id, group)
	return group
}

// resize changes the size of a node group, and waits until EKS has finished the update.
func (c *simulatedCluster) resize(t *testing.T, group string, size actuator.GroupSize) {
	t.Helper()
	testenv.ExpectNoError(t, c.change(t, actuator.GroupChange{Name: group, Size: &size}))
	testenv.Eventually(t, "EKS has updated the node group", func() error {
		found := c.observeGroup(t, group)
		return testenv.ErrorIf(found.Unsettled != "" || found.Min != size.Min || found.Desired != size.Desired, "found %+v", found)
	})
}

func TestNodeGroups(t *testing.T) {
	cloud := startCloud(t)
	for name, row := range map[string]func(t *testing.T, c *simulatedCluster, group string){
		"EKS sets the size to zero and back": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			for _, size := range []int32{0, 1} {
				c.resize(t, group, actuator.GroupSize{Min: size, Desired: size})
				testenv.Eventually(t, "EKS has set the size of the Auto Scaling group", func() error {
					found := c.cloud.DescribeGroup(t, group)
					return testenv.ErrorIf(found.Min != int(size) || found.Desired != int(size) || found.Members != int(size), "found %+v", found)
				})
			}
			testenv.ExpectEqual(t, "maximum", 1, c.cloud.DescribeNodeGroup(t, group).Size.Max)
		},
		"an update in progress is reported, and no second one is started": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.cloud.SetLatency(t, testenv.ChangeTime, testenv.ChangeTime)
			testenv.ExpectNoError(t, c.change(t, actuator.GroupChange{Name: group, Size: &actuator.GroupSize{}}))
			found := c.observeGroup(t, group)
			if want := "EKS is updating its node group eks-" + group + "/" + group; found.Unsettled != want || found.Unscalable != want || found.Min != 0 || found.Desired != 1 {
				t.Errorf("expected the former size and %q, found %+v", want, found)
			}
			c.cloud.countCalls(t)
			err := c.change(t, actuator.GroupChange{Name: group, Size: &actuator.GroupSize{}})
			if calls := c.cloud.countCalls(t); actuator.ClassOf(err) != actuator.WrongState || calls["UpdateNodegroupConfig"] > 0 {
				t.Errorf("expected class %q and no update, found %v and %v", actuator.WrongState, err, calls)
			}
		},
		"a repeated change starts no update": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.resize(t, group, actuator.GroupSize{})
			c.cloud.countCalls(t)
			c.resize(t, group, actuator.GroupSize{})
			if calls := c.cloud.countCalls(t); calls["UpdateNodegroupConfig"] > 0 {
				t.Errorf("expected no update, found %v", calls)
			}
		},
		"a conflict at EKS is WrongState": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.cloud.InjectFault(t, testenv.CloudFault{Action: "UpdateNodegroupConfig", Code: "ResourceInUseException", Message: "In use.", Times: 1})
			if err := c.change(t, actuator.GroupChange{Name: group, Size: &actuator.GroupSize{}}); actuator.ClassOf(err) != actuator.WrongState {
				t.Errorf("expected class %q, found %v", actuator.WrongState, err)
			}
		},
		"missing right to read node groups makes only the size unknown": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			c.cloud.InjectFault(t, testenv.CloudFault{Action: describeNodegroup, Code: "AccessDeniedException", Message: "Not authorized to perform eks:DescribeNodegroup."})
			defer c.cloud.ClearFaults(t)
			for _, reason := range []string{c.observeGroup(t, group).Unscalable, c.observeGroup(t, group).Unsettled} {
				if !strings.Contains(reason, "cannot be read") || !strings.Contains(reason, "eks:DescribeNodegroup") {
					t.Errorf("expected the missing permission, found %q", reason)
				}
			}
			groups, err := c.cloud.actuator.ObserveGroups(t.Context(), c.Target(), []actuator.GroupQuery{{Name: group}})
			if err != nil || len(groups) != 1 || groups[0].Unscalable+groups[0].Manager != "" {
				t.Errorf("expected EKS not to be called for a group whose size is not wanted, found %+v and %v", groups, err)
			}
		},
		"Auto Scaling group with the tags of a node group to which it does not belong: cannot be scaled": func(t *testing.T, c *simulatedCluster, group string) {
			t.Helper()
			other := c.Create(t, 1)[0]
			c.JoinGroup(t, other, "other-"+group)
			c.cloud.MarkNodeGroup(t, other, group)
			if found := c.observeGroup(t, "other-"+group); !strings.Contains(found.Unscalable, "expected a node group with only the Auto Scaling group other-") {
				t.Errorf("expected a group that cannot be scaled, found %+v", found)
			}
			if err := c.change(t, actuator.GroupChange{Name: "other-" + group, Size: &actuator.GroupSize{}}); err == nil {
				t.Error("expected an error, found none")
			}
			testenv.ExpectEqual(t, "size of the node group", 1, c.cloud.DescribeNodeGroup(t, group).Size.Desired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer cloud.SetLatency(t, 50*time.Millisecond, 50*time.Millisecond)
			c := cloud.newCluster(t)
			row(t, c, c.joinNodeGroup(t, c.Create(t, 1)[0]))
		})
	}
}
