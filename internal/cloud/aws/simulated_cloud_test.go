// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	goodKey    = testenv.AccessKey
	goodSecret = testenv.SecretKey
)

// simulatedCloud is this repository's simulated cloud in a separate process, with small pages, and the actuator under
// test.
type simulatedCloud struct {
	*testenv.CloudServer
	actuator *Actuator
	clusters int
}

// terminate is an operation that is not part of the contract of all actuators.
const terminate actuatortest.Operation = "terminate"

func startCloud(t *testing.T, flags ...string) *simulatedCloud {
	t.Helper()
	server := testenv.StartCloud(t, append([]string{"--start-latency", "50ms", "--stop-latency", "50ms", "--page-size", "5", "--access-keys", goodKey}, flags...)...)
	return &simulatedCloud{CloudServer: server, actuator: New(Options{Endpoint: server.URL, Attempts: 2})}
}

// newCluster returns a cluster with an infraID that begins with the previous cluster's infraID.
func (s *simulatedCloud) newCluster(t *testing.T) *simulatedCluster {
	t.Helper()
	s.clusters++
	return &simulatedCluster{cloud: s, infraID: "sleepy" + strings.Repeat("x", s.clusters)}
}

type simulatedCluster struct {
	cloud   *simulatedCloud
	infraID string
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.cloud.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Region: testenv.Region, Credentials: map[string][]byte{
		accessKeyID: []byte(goodKey), secretAccessKey: []byte(goodSecret + "\n"),
	}}
}

func (c *simulatedCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	return c.cloud.RunInstances(t, c.infraID, n)
}

func (c *simulatedCluster) Settle(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "no machine is in transition", func() error {
		for _, i := range c.cloud.ListInstances(t, c.infraID) {
			if !slices.Contains([]string{"running", "stopped", "terminated"}, i.State) {
				return fmt.Errorf("%s is %s", i.Name, i.State)
			}
		}
		return nil
	})
}

// Fail sends messages as EC2 does, with all texts that must not be shown.
func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	code, ok := map[actuator.ErrorClass]string{
		actuator.CredentialsInvalid: "AuthFailure",
		actuator.PermissionDenied:   "UnauthorizedOperation",
		actuator.Unreachable:        "Unavailable",
		actuator.Throttled:          "RequestLimitExceeded",
		actuator.NoCapacity:         "InsufficientInstanceCapacity",
		actuator.WrongState:         "IncorrectInstanceState",
		actuator.NotFound:           "InvalidInstanceID.NotFound",
		actuator.Other:              "OperationNotPermitted",
	}[class]
	if !ok {
		return false
	}
	action := map[actuatortest.Operation]string{
		actuatortest.Observe: "DescribeInstances", actuatortest.Stop: stopInstances, actuatortest.Start: startInstances, terminate: terminateInstances,
	}[op]
	c.cloud.InjectFault(t, testenv.CloudFault{
		Action: action, InstanceIDs: ids, Code: code,
		Message: "No way for " + goodKey + " with " + goodSecret + ". Encoded authorization failure message: 3xAmPle_bl0b-x",
	})
	t.Cleanup(func() { c.cloud.ClearFaults(t) })
	return true
}

// countCalls returns the number of calls of each action since the previous countCalls.
func (s *simulatedCloud) countCalls(t *testing.T) map[string]int {
	t.Helper()
	defer s.ResetCalls(t)
	return s.CountCalls(t)
}

func TestContract(t *testing.T) {
	cloud := startCloud(t)
	actuatortest.Run(t, func(t *testing.T) actuatortest.Cloud { return cloud.newCluster(t) })
}

func TestSimulatedCloud(t *testing.T) {
	cloud := startCloud(t)
	for name, row := range map[string]func(t *testing.T, c *simulatedCluster){
		"throttled call is retried up to the limit": func(t *testing.T, c *simulatedCluster) {
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
		"call that is throttled once succeeds": func(t *testing.T, c *simulatedCluster) {
			c.cloud.InjectFault(t, testenv.CloudFault{Code: "RequestLimitExceeded", Times: 1})
			if _, err := c.Actuator().Observe(t.Context(), c.Target()); err != nil {
				t.Errorf("observe: %v", err)
			}
		},
		"stop of eight machines takes one call, and a start with one refused machine takes seven": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 8)
			c.cloud.countCalls(t)
			testenv.ExpectNoError(t, c.Actuator().Stop(t.Context(), c.Target(), ids))
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
		"one-time spot machine keeps its cluster running": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 2)
			spot := c.createSpot(t)
			err := c.Actuator().Stop(t.Context(), c.Target(), append(slices.Clone(ids), spot))
			if want := "spot machines of one-time requests cannot be stopped"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), spot) {
				t.Errorf("stop: %v, want %q and %s", err, want, spot)
			}
			c.Settle(t)
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			testenv.ExpectNoError(t, err)
			for _, m := range machines {
				if m.State != actuator.Running {
					t.Errorf("machine %s is %s, want none stopped before all can be", m.ID, m.State)
				}
			}
		},
		"spot machines are listed, and terminated even if others are refused or missing": func(t *testing.T, c *simulatedCluster) {
			ids, protected, spot := c.Create(t, 1), c.createSpot(t), c.createSpot(t)
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			testenv.ExpectNoError(t, err)
			for _, m := range machines {
				if isSpot := m.ID != ids[0]; m.Spot != isSpot {
					t.Errorf("%s is a spot machine: %t, want %t", m.ID, m.Spot, isSpot)
				}
			}
			c.Fail(t, actuator.Other, terminate, protected)
			const gone = "i-0123456789abcdef0"
			err = c.cloud.actuator.TerminateAll(t.Context(), c.Target(), [][]string{{protected, spot, gone}})[0]
			if known, ok := errors.AsType[*actuator.Error](err); !ok || !slices.Equal(known.RefusedIDs, []string{protected}) {
				t.Errorf("terminate: %v, want only %s to be refused", err, protected)
			}
			machines, err = c.Actuator().Observe(t.Context(), c.Target())
			if err != nil || slices.ContainsFunc(machines, func(m actuator.Machine) bool { return m.ID == spot }) || len(machines) != 2 {
				t.Errorf("observe: %+v and error %v, want all but %s", machines, err, spot)
			}
		},
		"dry run checks the rights to terminate": func(t *testing.T, c *simulatedCluster) {
			spot := c.createSpot(t)
			c.cloud.countCalls(t)
			testenv.ExpectNoError(t, c.cloud.actuator.RequireTerminateRights(t.Context(), c.Target(), []string{spot}))
			if calls := c.cloud.countCalls(t); calls[terminateInstances] > 0 || calls[terminateInstances+".dryRun"] != 1 {
				t.Errorf("found the calls %v, want one dry run", calls)
			}
			c.Fail(t, actuator.PermissionDenied, terminate)
			err := c.cloud.actuator.RequireTerminateRights(t.Context(), c.Target(), []string{spot})
			if actuator.ClassOf(err) != actuator.PermissionDenied || !strings.Contains(err.Error(), "no machine is stopped without the rights") {
				t.Errorf("found %v, want class %q", err, actuator.PermissionDenied)
			}
		},
		"terminated machines are omitted, and machines have their names": func(t *testing.T, c *simulatedCluster) {
			ids := c.Create(t, 2)
			known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
			testenv.ExpectNoError(t, err)
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

// JoinGroup implements actuatortest.GroupCloud with an Auto Scaling group, which replaces each stopped member.
func (c *simulatedCluster) JoinGroup(t *testing.T, id, group string) {
	t.Helper()
	known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	_, err = known.api.CreateTags(t.Context(), &ec2.CreateTagsInput{
		Resources: []string{id}, Tags: []types.Tag{{Key: awssdk.String("local:auto-scaling-group"), Value: &group}},
	})
	testenv.ExpectNoError(t, err)
}

func (c *simulatedCluster) createSpot(t *testing.T) string {
	t.Helper()
	known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	answer, err := known.api.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: awssdk.String("ami-1"), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		InstanceMarketOptions: &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
			{Key: awssdk.String("kubernetes.io/cluster/" + c.infraID), Value: awssdk.String("owned")},
		}}},
	})
	testenv.ExpectNoError(t, err)
	c.Settle(t)
	return *answer.Instances[0].InstanceId
}
