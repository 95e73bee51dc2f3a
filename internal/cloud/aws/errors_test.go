// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

func TestObserveExplains(t *testing.T) {
	const where = "DescribeInstances: ec2.eu-west-1.amazonaws.com in region eu-west-1: "
	const check = "; check the region, the endpoint and the network"
	for name, row := range map[string]struct {
		response *http.Response
		err      error
		want     actuator.Error
	}{
		"a wrong secret": {
			response: ec2Error(http.StatusForbidden, "SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than 20260102T000000Z"),
			want:     actuator.Error{Class: actuator.CredentialsInvalid, Message: "DescribeInstances: SignatureDoesNotMatch: Signature expired: <time> is now earlier than <time>"},
		},
		"a key echoed by the cloud": {
			response: ec2Error(http.StatusForbidden, "AuthFailure", "key "+goodKey+" and ASIAABCDEFGHIJKLMNOP are unknown"),
			want:     actuator.Error{Class: actuator.CredentialsInvalid, Message: "DescribeInstances: AuthFailure: key <hidden> and <access key> are unknown"},
		},
		"a missing permission": {
			response: ec2Error(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized. Encoded authorization failure message: abc_DEF-1"),
			want:     actuator.Error{Class: actuator.PermissionDenied, Message: "DescribeInstances: UnauthorizedOperation: You are not authorized."},
		},
		"throttling": {
			response: ec2Error(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded. (Request ID: 7a62c49f-347e-4fc4-9331-6e8e00000000)"),
			want:     actuator.Error{Class: actuator.Throttled, Message: "DescribeInstances: RequestLimitExceeded: Request limit exceeded."},
		},
		"an unknown refusal": {
			response: ec2Error(http.StatusBadRequest, "InvalidParameterValue", "what\n is  this"),
			want:     actuator.Error{Class: actuator.Other, Message: "DescribeInstances: InvalidParameterValue: what is this"},
		},
		"an unknown error of the server": {
			response: ec2Error(http.StatusInternalServerError, "InternalError", "random text 17"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "it answers with status 500" + check},
		},
		"a gateway that is no EC2": {
			response: httpAnswer(http.StatusBadGateway, "<html>bad gateway"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "it answers with status 502" + check},
		},
		"a login page": {
			response: httpAnswer(http.StatusOK, "<html>please log in"),
			want:     actuator.Error{Class: actuator.Unreachable, Message: where + "its answer is not one of EC2" + check},
		},
		"a host that does not exist": {
			err:  &net.DNSError{Err: "no such host", Name: "x", Server: "10.0.0.1:53", IsNotFound: true},
			want: actuator.Error{Class: actuator.Unreachable, Message: where + "the host is unknown" + check},
		},
		"a refused connection": {
			err:  &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused 127.0.0.1:41234")},
			want: actuator.Error{Class: actuator.Unreachable, Message: where + "it does not answer" + check},
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
	want := "unreachable: DescribeInstances: 127.0.0.1 in region eu-west-1: its certificate is not trusted; check the region, the endpoint and the network"
	if err == nil || err.Error() != want {
		t.Errorf("observe: %v, want %q", err, want)
	}
}

func TestSilentServer(t *testing.T) {
	silent := clientFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	t.Run("a call ends with its own timeout and says that nothing answers", func(t *testing.T) {
		a := New(Options{HTTPClient: silent, CallTimeout: 50 * time.Millisecond})
		_, err := a.Observe(t.Context(), testTarget())
		if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "it does not answer") {
			t.Errorf("observe: %v, want class %q", err, actuator.Unreachable)
		}
	})
	t.Run("a caller that leaves gets its own error", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := New(Options{HTTPClient: silent}).Stop(ctx, testTarget(), []string{"i-1", "i-2"})
		if !errors.Is(err, context.DeadlineExceeded) || actuator.ClassOf(err) != actuator.Other {
			t.Errorf("stop: %v, want the context's error", err)
		}
	})
}

func TestCapacityIsNotTriedAgain(t *testing.T) {
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
		if got := classOf(code); got != want {
			t.Errorf("class of %q: %q, want %q", code, got, want)
		}
	}
}

func TestScrubMessageCutsLongMessages(t *testing.T) {
	if got := []rune(scrubMessage(strings.Repeat("ä", 5000), nil)); len(got) != 401 {
		t.Errorf("scrub left %d letters, want 400 and a mark", len(got))
	}
}
