// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

const (
	// Region is the simulated cloud's only region.
	Region = "local-1"
	// AccessKey is an access key id that tests use; a cloud started without --access-keys accepts any.
	AccessKey = "AKIATORPORTEST000001"
	// SecretKey is the secret that must never show up anywhere.
	SecretKey = "s3cr3t-Of/torpor+tests"
)

// CloudServer is a simulated cloud as a process of its own.
type CloudServer struct {
	*Process
	// URL is its endpoint.
	URL string

	http *http.Client
}

// StartCloud starts a simulated cloud whose machines take 100 ms to start and to stop; flags of `local cloud` come on top.
func StartCloud(t testing.TB, flags ...string) *CloudServer {
	t.Helper()
	args := append([]string{
		"cloud", "--dir", t.TempDir(), "--port", "0", "--region", Region, "--start-latency", "100ms", "--stop-latency", "100ms",
	}, flags...)
	c := &CloudServer{
		Process: StartProcess(t, localBinary(t), args, nil),
		// Without idle connections: some tests count goroutines.
		http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	c.URL = c.WaitForLine(t, "ready: ")
	return c
}

// CredentialsData are the keys of a Secret that lets in to this cloud.
func (c *CloudServer) CredentialsData() map[string][]byte {
	return map[string][]byte{
		"aws_access_key_id": []byte(AccessKey), "aws_secret_access_key": []byte(SecretKey), "endpoint_url": []byte(c.URL),
	}
}

// CountCalls returns how often each action was called; "<action>.errors" of them were refused.
func (c *CloudServer) CountCalls(t testing.TB) map[string]int {
	t.Helper()
	var counts map[string]int
	c.callAdmin(t, http.MethodGet, "calls", nil, &counts)
	return counts
}

// ResetCalls counts from zero.
func (c *CloudServer) ResetCalls(t testing.TB) {
	t.Helper()
	c.callAdmin(t, http.MethodDelete, "calls", nil, nil)
}

// CloudFault is something that goes wrong on demand; see `local cloud`, which refuses what makes no sense.
type CloudFault struct {
	// Kind is empty for a call that is refused or delayed, or stuckPending, stuckStopping, lostStart.
	Kind string `json:"kind,omitempty"`
	// Action limits a fault of calls to one action; empty is every action.
	Action string `json:"action,omitempty"`
	// InstanceIDs limits the fault to these machines; empty is all.
	InstanceIDs []string `json:"instanceIDs,omitempty"`
	// Code and Message are the error to answer.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Times is how often the fault strikes; 0 means until it is cleared.
	Times int `json:"times,omitempty"`
	// Delay is how much later the answer leaves, as "1.5s".
	Delay string `json:"delay,omitempty"`
}

// InjectFault adds a fault.
func (c *CloudServer) InjectFault(t testing.TB, f CloudFault) {
	t.Helper()
	c.callAdmin(t, http.MethodPost, "faults", f, nil)
}

// ClearFaults ends all faults.
func (c *CloudServer) ClearFaults(t testing.TB) {
	t.Helper()
	c.callAdmin(t, http.MethodDelete, "faults", nil, nil)
}

// SetLatency sets how long machines take from now on to start and to stop.
func (c *CloudServer) SetLatency(t testing.TB, start, stop time.Duration) {
	t.Helper()
	c.callAdmin(t, http.MethodPost, "latency", map[string]string{"start": start.String(), "stop": stop.String()}, nil)
}

// callAdmin calls the cloud's own interface and reads the answer unless into is nil. It serves cleanups too.
func (c *CloudServer) callAdmin(t testing.TB, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.URL+"/_local/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c.sendRequest(t, request, func(answer []byte) error {
		if into == nil {
			return nil
		}
		return json.Unmarshal(answer, into)
	})
}

// sendRequest sends a request and has the answer read; anything but success fails the test.
func (c *CloudServer) sendRequest(t testing.TB, request *http.Request, read func([]byte) error) {
	t.Helper()
	answer, err := c.http.Do(request)
	if err != nil {
		t.Fatalf("call the cloud: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("read the cloud's answer: %v", err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %s: %s", request.Method, request.URL.Path, answer.Status, text)
	}
	if err := read(text); err != nil {
		t.Fatalf("understand the cloud's answer: %v: %s", err, text)
	}
}
