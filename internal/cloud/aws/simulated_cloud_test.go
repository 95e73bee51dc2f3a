// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	goodKey    = testenv.AccessKey
	goodSecret = testenv.SecretKey
)

// simulatedCloud is the repository's simulated cloud as a process of its own, with small pages, and the actuator under test.
type simulatedCloud struct {
	*testenv.CloudServer
	actuator *Actuator
	clusters int
}

func startCloud(t *testing.T) *simulatedCloud {
	t.Helper()
	server := testenv.StartCloud(t, "--start-latency", "50ms", "--stop-latency", "50ms", "--page-size", "5", "--access-keys", goodKey)
	return &simulatedCloud{CloudServer: server, actuator: New(Options{Endpoint: server.URL, Attempts: 2})}
}

// newCluster is a cluster whose infraID begins with the infraIDs of those before it.
func (s *simulatedCloud) newCluster(t *testing.T) *simulatedCluster {
	t.Helper()
	s.clusters++
	return &simulatedCluster{cloud: s, infraID: "sleepy" + strings.Repeat("-x", s.clusters)}
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

// Fail sends messages as EC2 does, with everything in them that must not be shown.
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
		actuatortest.Observe: "DescribeInstances", actuatortest.Stop: stopInstances, actuatortest.Start: startInstances,
	}[op]
	c.cloud.InjectFault(t, testenv.CloudFault{
		Action: action, InstanceIDs: ids, Code: code,
		Message: "No way for " + goodKey + " with " + goodSecret + ". Encoded authorization failure message: 3xAmPle_bl0b-x",
	})
	t.Cleanup(func() { c.cloud.ClearFaults(t) })
	return true
}

// countCalls returns how often each action was called since it was asked last.
func (s *simulatedCloud) countCalls(t *testing.T) map[string]int {
	t.Helper()
	defer s.ResetCalls(t)
	return s.CountCalls(t)
}
