// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

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

func machinesNamedBy(t *testing.T, r *http.Request) []string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for n := 1; form.Has(fmt.Sprintf("InstanceId.%d", n)); n++ {
		ids = append(ids, form.Get(fmt.Sprintf("InstanceId.%d", n)))
	}
	return ids
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
		"more than 500 machines are more than one call": {
			ids: machines(1001), batches: []int{500, 500, 1},
		},
		"a bad machine costs halvings, and the rest is asked": {
			ids: machines(4), bad: map[string]string{"i-0002": "IncorrectInstanceState"},
			batches: []int{4, 2, 2, 1, 1}, wantClass: actuator.WrongState,
			want: []string{"IncorrectInstanceState for i-0002: no"},
		},
		"machines with one trouble are told together, and the class is the most urgent": {
			ids:     machines(3),
			bad:     map[string]string{"i-0000": "IncorrectInstanceState", "i-0001": "InsufficientInstanceCapacity", "i-0002": "IncorrectInstanceState"},
			batches: []int{3, 1, 2, 1, 1}, wantClass: actuator.NoCapacity,
			want: []string{"IncorrectInstanceState for i-0000, i-0002: no; InsufficientInstanceCapacity for i-0001: no"},
		},
		"what no machine can mend ends it at once": {
			ids: machines(501), bad: map[string]string{"i-0000": "UnauthorizedOperation"},
			batches: []int{500}, wantClass: actuator.PermissionDenied, want: []string{"UnauthorizedOperation: no"},
		},
		"all machines are unknown": {
			ids: machines(2), bad: map[string]string{"i-0000": "InvalidInstanceID.NotFound", "i-0001": "InvalidInstanceID.NotFound"},
			batches: []int{2, 1, 1}, wantClass: actuator.NotFound, want: []string{"for i-0000, i-0001: no"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var batches []int
			a := New(Options{HTTPClient: clientFunc(func(r *http.Request) (*http.Response, error) {
				ids := machinesNamedBy(t, r)
				batches = append(batches, len(ids))
				for _, id := range ids {
					if code := row.bad[id]; code != "" {
						return ec2Error(http.StatusBadRequest, code, "no"), nil
					}
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
			if !slices.Equal(batches, row.batches) {
				t.Errorf("calls with %v machines, want %v", batches, row.batches)
			}
		})
	}
}

func TestJoinMachineIDsNamesTwenty(t *testing.T) {
	var machines []refusedMachine
	for n := range 23 {
		machines = append(machines, refusedMachine{id: fmt.Sprintf("i-%d", n)})
	}
	if got := joinMachineIDs(machines); !strings.HasSuffix(got, ", i-19 and 3 more") {
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
		"an owned machine":                     {state: "running", key: mine, value: "owned", want: 1},
		"a machine that is only shared":        {state: "running", key: mine, value: "shared"},
		"a machine of a cluster with a prefix": {state: "running", key: mine + "-2", value: "owned"},
		"a machine that shuts down for good":   {state: "shutting-down", key: mine, value: "owned"},
		"a terminated machine":                 {state: "terminated", key: mine, value: "owned"},
		"a state of the future":                {state: "suspended", key: mine, value: "owned", wantErr: true},
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
