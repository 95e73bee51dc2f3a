// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

func TestObserveErrorsNameEndpointAndNextStep(t *testing.T) {
	const where = "DescribeInstances: ec2.eu-west-1.amazonaws.com in region eu-west-1: "
	const check = "; check the region, the endpoint and the network"
	for name, row := range map[string]struct {
		response *http.Response
		err      error
		want     actuator.Error
	}{
		"expired signature is CredentialsInvalid": {
			response: ec2Error(http.StatusForbidden, "SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than 20260102T000000Z"),
			want:     actuator.Error{Class: actuator.CredentialsInvalid, Message: "DescribeInstances: SignatureDoesNotMatch: Signature expired: <time> is now earlier than <time>"},
		},
		"keys in the cloud's message are hidden": {
			response: ec2Error(http.StatusForbidden, "AuthFailure", "key "+goodKey+" and ASIAABCDEFGHIJKLMNOP are unknown"),
			want:     actuator.Error{Class: actuator.CredentialsInvalid, Message: "DescribeInstances: AuthFailure: key <hidden> and <access key> are unknown"},
		},
		"missing permission is PermissionDenied": {
			response: ec2Error(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized. Encoded authorization failure message: abc_DEF-1"),
			want:     actuator.Error{Class: actuator.PermissionDenied, Message: "DescribeInstances: UnauthorizedOperation: You are not authorized."},
		},
		"throttled call is Throttled": {
			response: ec2Error(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded. (Request ID: 7a62c49f-347e-4fc4-9331-6e8e00000000)"),
			want:     actuator.Error{Class: actuator.Throttled, Message: "DescribeInstances: RequestLimitExceeded: Request limit exceeded."},
		},
		"unknown refusal is Other": {
			response: ec2Error(http.StatusBadRequest, "InvalidParameterValue", "what\n is  this"),
			want:     actuator.Error{Class: actuator.Other, Message: "DescribeInstances: InvalidParameterValue: what is this"},
		},
		"unknown error of the server is Unreachable": {
			response: ec2Error(http.StatusInternalServerError, "InternalError", "random text 17"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "the API responds with status 500" + check},
		},
		"error of a gateway is Unreachable": {
			response: httpAnswer(http.StatusBadGateway, "<html>bad gateway"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "the API responds with status 502" + check},
		},
		"login page is Unreachable": {
			response: httpAnswer(http.StatusOK, "<html>please log in"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "the response is not a valid EC2 response" + check},
		},
		"host that does not exist is Unreachable": {
			err:  &net.DNSError{Err: "no such host", Name: "x", Server: "10.0.0.1:53", IsNotFound: true},
			want: actuator.Error{Class: actuator.Unreachable, Message: where + "the host is unknown" + check},
		},
		"refused connection is Unreachable": {
			err:  &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused 127.0.0.1:41234")},
			want: actuator.Error{Class: actuator.Unreachable, Message: where + "the API does not respond" + check},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{Attempts: 1, HTTPClient: clientFunc(func(*http.Request) (*http.Response, error) { return row.response, row.err })})
			_, err := a.Observe(t.Context(), testTarget())
			got, ok := errors.AsType[*actuator.Error](err)
			if !ok {
				t.Fatalf("observe: %v, want an *actuator.Error", err)
			}
			if diff := cmp.Diff(row.want, *got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUntrustedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	_, err := New(Options{Attempts: 1, Endpoint: server.URL}).Observe(t.Context(), testTarget())
	want := "unreachable: DescribeInstances: 127.0.0.1 in region eu-west-1: the certificate of the API is not trusted; check the region, the endpoint and the network"
	if err == nil || err.Error() != want {
		t.Errorf("observe: %v, want %q", err, want)
	}
}

func TestSilentServer(t *testing.T) {
	silent := clientFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	t.Run("call that times out gets the error of a missing answer", func(t *testing.T) {
		// The observation may take twice as long as a call, so it does not time out first on a busy machine.
		a := New(Options{HTTPClient: silent, CallTimeout: time.Second})
		_, err := a.Observe(t.Context(), testTarget())
		if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "the API does not respond") {
			t.Errorf("observe: %v, want class %q", err, actuator.Unreachable)
		}
	})
	t.Run("cancelled call gets the error of its context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := New(Options{HTTPClient: silent}).Stop(ctx, testTarget(), []string{"i-1", "i-2"})
		if !errors.Is(err, context.DeadlineExceeded) || actuator.ClassOf(err) != actuator.Other {
			t.Errorf("stop: %v, want the context's error", err)
		}
	})
}

func TestMissingCapacityIsNotRetried(t *testing.T) {
	calls := 0
	a := New(Options{HTTPClient: clientFunc(func(*http.Request) (*http.Response, error) {
		calls++
		return ec2Error(http.StatusInternalServerError, "InsufficientInstanceCapacity", "none left"), nil
	})})
	err := a.Start(t.Context(), testTarget(), []string{"i-1"})
	want := "no capacity: StartInstances: InsufficientInstanceCapacity for i-1: none left"
	if err == nil || err.Error() != want || calls != 1 {
		t.Errorf("start: %v after %d calls, want %q after one", err, calls, want)
	}
}

func TestClassOf(t *testing.T) {
	for code, want := range map[string]actuator.ErrorClass{
		"InvalidClientTokenId":                actuator.CredentialsInvalid,
		"ExpiredToken":                        actuator.CredentialsInvalid,
		"AccessDenied":                        actuator.PermissionDenied,
		"Client.UnauthorizedOperation":        actuator.PermissionDenied,
		"ThrottlingException":                 actuator.Throttled,
		"Throttling":                          actuator.Throttled,
		"Server.InsufficientInstanceCapacity": actuator.NoCapacity,
		"VcpuLimitExceeded":                   actuator.NoCapacity,
		"IncorrectInstanceState":              actuator.WrongState,
		"InvalidInstanceID.NotFound":          actuator.NotFound,
		"InvalidInstanceID.Malformed":         actuator.NotFound,
		"InvalidInstanceAttributeValue":       actuator.Other,
		"":                                    actuator.Other,
	} {
		if got := classOf(code, 0); got != want {
			t.Errorf("class of %q: %q, want %q", code, got, want)
		}
	}
}

func TestScrubMessageCutsLongMessages(t *testing.T) {
	if got := []rune(scrubMessage(strings.Repeat("ä", 5000), nil)); len(got) != 401 {
		t.Errorf("scrub left %d letters, want 400 and a mark", len(got))
	}
}

// clientFunc answers requests without a network.
type clientFunc func(*http.Request) (*http.Response, error)

func (f clientFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

func httpAnswer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func ec2Error(status int, code, message string) *http.Response {
	return httpAnswer(status, fmt.Sprintf("<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors>"+
		"<RequestID>7a62c49f-347e-4fc4-9331-6e8eexample</RequestID></Response>", code, message))
}

func machinesNamedBy(t *testing.T, r *http.Request) (ids []string, isDryRun bool) {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; form.Has(fmt.Sprintf("InstanceId.%d", n)); n++ {
		ids = append(ids, form.Get(fmt.Sprintf("InstanceId.%d", n)))
	}
	return ids, form.Get("DryRun") == "true"
}

func testTarget() actuator.Target {
	return actuator.Target{InfraID: "sleepy", Region: "eu-west-1", Credentials: map[string][]byte{
		accessKeyID: []byte(goodKey), secretAccessKey: []byte(goodSecret),
	}}
}

func TestChangePower(t *testing.T) {
	const ok = `<StopInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"></StopInstancesResponse>`
	machines := func(n int) []string {
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("i-%04d", i))
		}
		return ids
	}
	for name, row := range map[string]struct {
		ids       []string
		bad       map[string]string
		batches   []int
		wantClass actuator.ErrorClass
		want      []string
	}{
		"more than 900 machines need more than one call": {
			ids: machines(1801), batches: []int{900, 900, 1},
		},
		"batch with a refused machine is halved until the other machines are accepted": {
			ids: machines(4), bad: map[string]string{"i-0002": "IncorrectInstanceState"},
			batches: []int{4, 2, 2, 1, 1}, wantClass: actuator.WrongState,
			want: []string{"IncorrectInstanceState for i-0002: no"},
		},
		"machines with the same error code share a message, and the error has the most urgent class": {
			ids:     machines(3),
			bad:     map[string]string{"i-0000": "IncorrectInstanceState", "i-0001": "InsufficientInstanceCapacity", "i-0002": "IncorrectInstanceState"},
			batches: []int{3, 1, 2, 1, 1}, wantClass: actuator.NoCapacity,
			want: []string{"IncorrectInstanceState for i-0000, i-0002: no; InsufficientInstanceCapacity for i-0001: no"},
		},
		"missing right for the first machine keeps all machines running": {
			ids: machines(901), bad: map[string]string{"i-0000": "UnauthorizedOperation"},
			wantClass: actuator.PermissionDenied, want: []string{"StopInstances: UnauthorizedOperation: no; no machine is stopped without"},
		},
		"missing right for the last machine keeps all machines running": {
			ids: machines(901), bad: map[string]string{"i-0900": "UnauthorizedOperation"},
			wantClass: actuator.PermissionDenied, want: []string{"UnauthorizedOperation: no"},
		},
		"machine that can never be stopped keeps its cluster running": {
			ids: machines(4), bad: map[string]string{"i-0002": "OperationNotPermitted"},
			batches: []int{4}, wantClass: actuator.Other, want: []string{"OperationNotPermitted for one of i-0000, i-0001, i-0002, i-0003: no"},
		},
		"unknown machines are reported in one message": {
			ids: machines(2), bad: map[string]string{"i-0000": "InvalidInstanceID.NotFound", "i-0001": "InvalidInstanceID.NotFound"},
			batches: []int{2, 1, 1}, wantClass: actuator.NotFound, want: []string{"for i-0000, i-0001: no"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var batches []int
			a := New(Options{HTTPClient: clientFunc(func(r *http.Request) (*http.Response, error) {
				ids, isDryRun := machinesNamedBy(t, r)
				if !isDryRun {
					mu.Lock()
					batches = append(batches, len(ids))
					mu.Unlock()
				}
				for _, id := range ids {
					// A dry run checks only rights.
					if code := row.bad[id]; code != "" && (!isDryRun || code == "UnauthorizedOperation") {
						return ec2Error(http.StatusBadRequest, code, "no"), nil
					}
				}
				if isDryRun {
					return ec2Error(http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded."), nil
				}
				return httpAnswer(http.StatusOK, ok), nil
			})})
			err := a.Stop(t.Context(), testTarget(), row.ids)
			if (err != nil) != (row.bad != nil) || (err != nil && actuator.ClassOf(err) != row.wantClass) {
				t.Fatalf("stop: %v, want class %q", err, row.wantClass)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
			slices.Sort(batches)
			slices.Sort(row.batches)
			if !slices.Equal(batches, row.batches) {
				t.Errorf("calls with %v machines, want %v", batches, row.batches)
			}
		})
	}
}

func TestMissingRightsForOneClusterDoNotDelayOtherStarts(t *testing.T) {
	const clusters = 40
	for name, row := range map[string]struct {
		refused  func(id string) bool
		maxCalls int
	}{
		"missing rights for one cluster are found with 13 calls":         {func(id string) bool { return id == "i-0017" }, 13},
		"missing rights for all clusters take a limited number of calls": {func(string) bool { return true }, maxPermissionRefusals + 5}, // Each half of the machines that is left gets one call.
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			a := New(Options{HTTPClient: clientFunc(func(r *http.Request) (*http.Response, error) {
				calls++
				ids, _ := machinesNamedBy(t, r)
				if slices.ContainsFunc(ids, row.refused) {
					return ec2Error(http.StatusForbidden, "UnauthorizedOperation", "no"), nil
				}
				return httpAnswer(http.StatusOK, `<StartInstancesResponse></StartInstancesResponse>`), nil
			})})
			var orders [][]string
			for i := range clusters {
				orders = append(orders, []string{fmt.Sprintf("i-%04d", i)})
			}
			for i, err := range a.StartAll(t.Context(), testTarget(), orders) {
				if isRefused := row.refused(orders[i][0]); (err != nil) != isRefused || isRefused && actuator.ClassOf(err) != actuator.PermissionDenied {
					t.Errorf("%s: found %v, want a refusal: %t", orders[i][0], err, isRefused)
				}
			}
			if calls > row.maxCalls {
				t.Errorf("found %d calls, want at most %d", calls, row.maxCalls)
			}
		})
	}
}

func TestJoinIDsNamesTwenty(t *testing.T) {
	var ids []string
	for n := range 23 {
		ids = append(ids, fmt.Sprintf("i-%d", n))
	}
	if got := joinIDs(ids); !strings.HasSuffix(got, ", i-19 and 3 more") {
		t.Errorf("few: %q, want 20 names and 3 more", got)
	}
}

func TestObserveReadsOnly(t *testing.T) {
	const instance = `<item><instancesSet><item><instanceId>%s</instanceId><instanceState><name>%s</name></instanceState>` +
		`<tagSet><item><key>%s</key><value>%s</value></item></tagSet></item></instancesSet></item>`
	const mine = "kubernetes.io/cluster/sleepy"
	for name, row := range map[string]struct {
		state, key, value string
		want              int
		wantErr           bool
	}{
		"owned machine is listed":                                  {state: "running", key: mine, value: "owned", want: 1},
		"machine that is only shared is not listed":                {state: "running", key: mine, value: "shared"},
		"machine of a cluster with a longer infraID is not listed": {state: "running", key: mine + "-2", value: "owned"},
		"machine that is being terminated is not listed":           {state: "shutting-down", key: mine, value: "owned"},
		"terminated machine is not listed":                         {state: "terminated", key: mine, value: "owned"},
		"machine in an unknown state is an error":                  {state: "suspended", key: mine, value: "owned", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			// The endpoint ignores filters.
			a := New(Options{HTTPClient: clientFunc(func(*http.Request) (*http.Response, error) {
				return httpAnswer(http.StatusOK, "<DescribeInstancesResponse><reservationSet>"+
					fmt.Sprintf(instance, "i-1", row.state, row.key, row.value)+"</reservationSet></DescribeInstancesResponse>"), nil
			})})
			machines, err := a.Observe(t.Context(), testTarget())
			if len(machines) != row.want || (err != nil) != row.wantErr {
				t.Errorf("observe: %v and error %v, want %d machines, error %t", machines, err, row.want, row.wantErr)
			}
		})
	}
}
