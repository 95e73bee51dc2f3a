// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestContract(t *testing.T) {
	cloud := startCloud(t)
	actuatortest.Run(t, func(t *testing.T) actuatortest.Cloud { return cloud.newCluster(t) })
}

func TestSimulatedCloud(t *testing.T) {
	cloud := startCloud(t)
	for name, row := range map[string]func(t *testing.T, c *simulatedCluster){
		"a throttled call is tried again, at most as often as allowed": func(t *testing.T, c *simulatedCluster) {
			c.Create(t, 1)
			c.Fail(t, actuator.Throttled, actuatortest.Observe)
			c.cloud.countCalls(t)
			if _, err := c.Actuator().Observe(t.Context(), c.Target()); actuator.ClassOf(err) != actuator.Throttled {
				t.Errorf("observe: %v, want class %q", err, actuator.Throttled)
			}
			if got := c.cloud.countCalls(t)["DescribeInstances"]; got != 2 {
				t.Errorf("DescribeInstances was called %d times, want 2", got)
			}
		},
		"a call that is throttled once works": func(t *testing.T, c *simulatedCluster) {
			c.cloud.InjectFault(t, testenv.CloudFault{Code: "RequestLimitExceeded", Times: 1})
			if _, err := c.Actuator().Observe(t.Context(), c.Target()); err != nil {
				t.Errorf("observe: %v", err)
			}
		},
		"eight machines stop in one call and one of them without capacity costs few": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 8)
			c.cloud.countCalls(t)
			if err := c.Actuator().Stop(t.Context(), c.Target(), ids); err != nil {
				t.Fatal(err)
			}
			if got := c.cloud.countCalls(t)[stopInstances]; got != 1 {
				t.Errorf("StopInstances was called %d times, want once", got)
			}
			c.Settle(t)
			c.cloud.countCalls(t)
			c.Fail(t, actuator.NoCapacity, actuatortest.Start, ids[5])
			if err := c.Actuator().Start(t.Context(), c.Target(), ids); actuator.ClassOf(err) != actuator.NoCapacity {
				t.Errorf("start: %v, want class %q", err, actuator.NoCapacity)
			}
			if got := c.cloud.countCalls(t)[startInstances]; got != 7 {
				t.Errorf("StartInstances was called %d times, want 7: 1 and 2 for each of 3 halvings", got)
			}
		},
		"a one-time spot machine keeps running, is named, and the others stop": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 2)
			spot := c.createSpot(t)
			err := c.Actuator().Stop(t.Context(), c.Target(), append(slices.Clone(ids), spot))
			want := "UnsupportedOperation for " + spot + ": spot machines cannot be stopped here"
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("stop: %v, want %q", err, want)
			}
			c.Settle(t)
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range machines {
				if (m.State == actuator.Running) != (m.ID == spot) {
					t.Errorf("machine %s is %s, want only the spot machine %s running", m.ID, m.State, spot)
				}
			}
		},
		"terminated machines are left out, and machines have their names": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 2)
			known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := known.api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids[:1]}); err != nil {
				t.Fatal(err)
			}
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			if err != nil || len(machines) != 1 || machines[0].ID != ids[1] || machines[0].Name != c.infraID+"-1" {
				t.Errorf("observe: %+v and error %v, want only %s", machines, err, ids[1])
			}
		},
	} {
		t.Run(name, func(t *testing.T) { row(t, cloud.newCluster(t)) })
	}
}

func (c *simulatedCluster) createSpot(t *testing.T) string {
	t.Helper()
	known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := known.api.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: awssdk.String("ami-1"), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		InstanceMarketOptions: &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
			{Key: awssdk.String("kubernetes.io/cluster/" + c.infraID), Value: awssdk.String("owned")},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Settle(t)
	return *answer.Instances[0].InstanceId
}
