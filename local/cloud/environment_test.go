// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary run as a separate cloud process that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CLOUD_TEST_DIR"); dir != "" {
		if err := serveUntilInputEnds(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const authorized = "AWS4-HMAC-SHA256 Credential=AKIDTEST/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=00"

type env struct {
	t     *testing.T
	url   string
	cloud *Cloud
}

func newEnv(t *testing.T, config Config) *env {
	t.Helper()
	if config.Dir == "" {
		config.Dir = t.TempDir()
	}
	c, err := New(config)
	if err != nil {
		t.Fatalf("new cloud: %v", err)
	}
	c.gracePeriod = 2 * time.Second
	server := httptest.NewServer(c.HTTPHandler())
	t.Cleanup(func() {
		server.Close()
		if err := c.Close(); err != nil {
			t.Errorf("close the cloud: %v", err)
		}
	})
	return &env{t: t, url: server.URL, cloud: c}
}

// parsedAnswer contains the fields of all kinds of answers.
type parsedAnswer struct {
	status       int
	Code         string `xml:"Errors>Error>Code"`
	Message      string `xml:"Errors>Error>Message"`
	ErrorRequest string `xml:"RequestID"`
	Request      string `xml:"requestId"`
	Return       bool   `xml:"return"`
	NextToken    string `xml:"nextToken"`

	ReservationID string              `xml:"reservationId"`
	Instances     []parsedInstance    `xml:"instancesSet>item"`
	Reservations  []parsedReservation `xml:"reservationSet>item"`
	Tags          []parsedTag         `xml:"tagSet>item"`
}

type parsedReservation struct {
	ID        string           `xml:"reservationId"`
	Owner     string           `xml:"ownerId"`
	Instances []parsedInstance `xml:"instancesSet>item"`
}

type parsedInstance struct {
	ID         string      `xml:"instanceId"`
	State      string      `xml:"instanceState>name"`
	StateCode  int         `xml:"instanceState>code"`
	Current    string      `xml:"currentState>name"`
	Previous   string      `xml:"previousState>name"`
	DNS        string      `xml:"privateDnsName"`
	IP         string      `xml:"privateIpAddress"`
	Type       string      `xml:"instanceType"`
	Image      string      `xml:"imageId"`
	Launched   time.Time   `xml:"launchTime"`
	Zone       string      `xml:"placement>availabilityZone"`
	Reason     string      `xml:"reason"`
	ReasonCode string      `xml:"stateReason>code"`
	Lifecycle  string      `xml:"instanceLifecycle"`
	Tags       []parsedTag `xml:"tagSet>item"`
}

type parsedTag struct {
	Resource string `xml:"resourceId"`
	Key      string `xml:"key"`
	Value    string `xml:"value"`
}

// call posts an action with pairs of parameter names and values.
func (r *env) call(action string, pairs ...string) parsedAnswer {
	r.t.Helper()
	return r.callAs(authorized, action, pairs...)
}

func (r *env) callAs(authorization, action string, pairs ...string) parsedAnswer {
	r.t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for n := 0; n < len(pairs); n += 2 {
		form.Set(pairs[n], pairs[n+1])
	}
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/", strings.NewReader(form.Encode()))
	expectNoError(r.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	return r.send(request)
}

func (r *env) send(request *http.Request) parsedAnswer {
	r.t.Helper()
	response, err := http.DefaultClient.Do(request)
	expectNoError(r.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	expectNoError(r.t, err)
	answer := parsedAnswer{status: response.StatusCode}
	if err := xml.Unmarshal(text, &answer); err != nil {
		r.t.Fatalf("answer %q: %v", text, err)
	}
	if answer.Request == "" && answer.ErrorRequest == "" {
		r.t.Errorf("answer without a request id: %s", text)
	}
	return answer
}

// callAdmin calls an admin endpoint, decodes the answer into `into` unless `into` is nil, and returns the status.
func (r *env) callAdmin(method, path string, body, into any) int {
	r.t.Helper()
	text, err := json.Marshal(body)
	expectNoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+"/_local/"+path, bytes.NewReader(text))
	expectNoError(r.t, err)
	response, err := http.DefaultClient.Do(request)
	expectNoError(r.t, err)
	defer func() { _ = response.Body.Close() }()
	if into != nil {
		expectNoError(r.t, json.NewDecoder(response.Body).Decode(into))
	}
	return response.StatusCode
}

func (r *env) launchInstances(count int, pairs ...string) []string {
	r.t.Helper()
	number := fmt.Sprint(count)
	answer := r.call("RunInstances", append([]string{"ImageId", "ami-1", "MinCount", number, "MaxCount", number}, pairs...)...)
	if answer.status != http.StatusOK || len(answer.Instances) != count {
		r.t.Fatalf("run %d instances: %+v", count, answer)
	}
	var ids []string
	for _, i := range answer.Instances {
		ids = append(ids, i.ID)
	}
	return ids
}

func (r *env) describeInstance(id string) parsedInstance {
	r.t.Helper()
	answer := r.call("DescribeInstances", "InstanceId.1", id)
	if answer.status != http.StatusOK {
		r.t.Fatalf("describe %s: %+v", id, answer)
	}
	return answer.Reservations[0].Instances[0]
}

func (r *env) awaitState(id string, wanted powerState) parsedInstance {
	r.t.Helper()
	var last parsedInstance
	eventually(r.t, fmt.Sprintf("%s is %s", id, wanted), func() bool {
		last = r.describeInstance(id)
		return last.State == string(wanted)
	})
	return last
}

func (r *env) listInstances() map[string]shownInstance {
	r.t.Helper()
	var list []shownInstance
	r.callAdmin(http.MethodGet, "instances", nil, &list)
	byID := map[string]shownInstance{}
	for _, i := range list {
		byID[i.ID] = i
	}
	return byID
}

func expectNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until the condition holds, with a deadline far above the expected duration.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(5 * time.Minute) // Far above every expected duration.
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}
