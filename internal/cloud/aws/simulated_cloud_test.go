// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

const (
	goodKey    = "AKIATORPORTEST000001"
	goodSecret = "a-Secret/of+this=test"
	cloudsZone = "local-1"
)

// simulatedCloud is the repository's simulated cloud as a process of its own.
type simulatedCloud struct {
	url      string
	actuator *Actuator
	clusters int
}

// startCloud runs the binary that the environment variable TORPOR_LOCAL names.
func startCloud(t *testing.T) *simulatedCloud {
	t.Helper()
	binary := os.Getenv("TORPOR_LOCAL")
	if binary == "" {
		t.Skip("TORPOR_LOCAL is not set: it is the path of this repository's binary local, whose simulated cloud this test uses")
	}
	// The test's own context ends before its cleanups, so the process gets one that ends with them.
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, binary, "cloud", "--dir", t.TempDir(), "--address", "127.0.0.1", "--port", "0",
		"--start-latency", "50ms", "--stop-latency", "50ms", "--page-size", "5", "--region", cloudsZone, "--access-keys", goodKey)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	command.Stderr = t.Output()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait() // It was interrupted, and says so.
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "ready: ")
	if err != nil || !ok {
		t.Fatalf("the simulated cloud said %q and error %v, want \"ready: <url>\"", line, err)
	}
	return &simulatedCloud{url: url, actuator: New(Options{Endpoint: url, Attempts: 2})}
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
	return actuator.Target{InfraID: c.infraID, Region: cloudsZone, Credentials: map[string][]byte{
		accessKeyID: []byte(goodKey), secretAccessKey: []byte(goodSecret + "\n"),
	}}
}

func (c *simulatedCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	known, err := c.cloud.actuator.clientFor(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	// One call each, because pages are counted in reservations.
	for range n {
		answer, err := known.api.RunInstances(t.Context(), &ec2.RunInstancesInput{
			ImageId: awssdk.String("ami-1"), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
				{Key: awssdk.String("kubernetes.io/cluster/" + c.infraID), Value: awssdk.String("owned")},
				{Key: awssdk.String("Name"), Value: awssdk.String(c.infraID + "-worker")},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, *answer.Instances[0].InstanceId)
	}
	c.Settle(t)
	return ids
}

func (c *simulatedCluster) Settle(t *testing.T) {
	t.Helper()
	eventually(t, "no machine is in transition", func() bool {
		machines, err := c.cloud.actuator.Observe(t.Context(), c.Target())
		if err != nil {
			t.Fatalf("observe: %v", err)
		}
		return !slices.ContainsFunc(machines, func(m actuator.Machine) bool {
			return m.State == actuator.Starting || m.State == actuator.Stopping
		})
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
	c.cloud.admin(t, http.MethodPost, "faults", map[string]any{
		"action": action, "instanceIDs": ids, "code": code,
		"message": "No way for " + goodKey + " with " + goodSecret + ". Encoded authorization failure message: 3xAmPle_bl0b-x",
	}, nil)
	t.Cleanup(func() { c.cloud.admin(t, http.MethodDelete, "faults", nil, nil) })
	return true
}

// admin calls an endpoint of the cloud's own under /_local/ and reads the answer unless into is nil.
func (s *simulatedCloud) admin(t *testing.T, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+"/_local/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: status %d", method, path, answer.StatusCode)
	}
	if into == nil {
		return
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// calls returns how often each action was called since the last one asked.
func (s *simulatedCloud) calls(t *testing.T) map[string]int {
	t.Helper()
	var counts map[string]int
	s.admin(t, http.MethodGet, "calls", nil, &counts)
	s.admin(t, http.MethodDelete, "calls", nil, nil)
	return counts
}

// eventually polls with a deadline far above what is waited for.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}
