// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// TestHostileEndpointsAreCut lists machines at endpoints that try to exhaust the manager's memory or time.
func TestHostileEndpointsAreCut(t *testing.T) {
	const (
		maxHeapGrowth = 200 << 20
		instance      = `<item><instanceId>i-%d</instanceId><instanceState><name>running</name></instanceState>` +
			`<tagSet><item><key>kubernetes.io/cluster/sleepy</key><value>owned</value></item></tagSet></item>`
	)
	repeat := func(w io.Writer, text string, atMost int) {
		text = strings.Repeat(text, 1+(64<<10)/len(text))
		for sent := 0; sent < atMost; sent += len(text) {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
	for name, row := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"compressed answer that grows a thousandfold is refused": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			g := gzip.NewWriter(w)
			_, _ = io.WriteString(g, `<DescribeInstancesResponse><nextToken>`)
			repeat(g, "A", 40<<20)
			_ = g.Close()
		}, "the response is not a valid EC2 response"},
		"endless element is refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><nextToken>`)
			repeat(w, "A", 200<<20)
		}, "the response is larger than allowed"},
		"very many empty elements are refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><reservationSet><item><instancesSet>`)
			repeat(w, "<Item/>", 3<<20)
			_, _ = io.WriteString(w, `</instancesSet></item></reservationSet></DescribeInstancesResponse>`)
		}, "the response is larger than allowed"},
		"endless error answer is refused": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			repeat(w, "<Response>", 200<<20)
		}, "the response is not a valid EC2 response"},
		"endless pages are refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><nextToken>same</nextToken></DescribeInstancesResponse>`)
		}, "more pages or machines than allowed"},
		"more machines than allowed for one cluster are refused": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `<DescribeInstancesResponse><reservationSet><item><instancesSet>`)
			for i := range maxMachines / 2 {
				_, _ = fmt.Fprintf(w, instance, i)
			}
			_, _ = io.WriteString(w, `</instancesSet></item></reservationSet><nextToken>more</nextToken></DescribeInstancesResponse>`)
		}, "more pages or machines than allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { row.answer(w) }))
			defer server.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := New(Options{Attempts: 1}).Observe(t.Context(), withCredential(testTarget(), endpointURL, server.URL))
			runtime.ReadMemStats(&after)
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) {
				t.Errorf("found %v, want an error with %q", err, row.want)
			}
			if got := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && got > maxHeapGrowth {
				t.Errorf("the heap grew by %d MiB, want at most %d", got>>20, maxHeapGrowth>>20)
			}
		})
	}
}

// TestEndpointsOfSecrets checks which endpoints a Secret may contain, and which endpoints' messages are shown.
func TestEndpointsOfSecrets(t *testing.T) {
	const secretWords = "a secret of the internal network"
	answer := func(*http.Request) (*http.Response, error) {
		return ec2Error(http.StatusBadRequest, "AuthFailure", secretWords), nil
	}
	for name, row := range map[string]struct {
		endpoint string
		listed   []string
		want     actuator.ErrorClass
		shown    bool
	}{
		"AWS endpoint is allowed":                                               {"https://ec2.eu-west-1.amazonaws.com", nil, actuator.CredentialsInvalid, true},
		"unlisted AWS endpoint is allowed":                                      {"https://ec2.eu-west-1.amazonaws.com", []string{"other.example.com"}, actuator.CredentialsInvalid, true},
		"AWS FIPS endpoint is allowed":                                          {"https://EC2-fips.eu-west-1.amazonaws.com:443/", []string{"other.example.com"}, actuator.CredentialsInvalid, true},
		"AWS IPv6 endpoint is allowed":                                          {"https://ec2.eu-west-1.api.aws", []string{"other.example.com"}, actuator.CredentialsInvalid, true},
		"AWS endpoint without TLS is refused":                                   {"http://ec2.eu-west-1.amazonaws.com", []string{"10.0.0.0/8"}, actuator.Other, false},
		"AWS endpoint at another port is refused":                               {"https://ec2.eu-west-1.amazonaws.com:8443", []string{"10.0.0.0/8"}, actuator.Other, false},
		"host name of an EC2 instance is refused":                               {"http://ec2-203-0-113-5.compute-1.amazonaws.com", []string{"10.0.0.0/8"}, actuator.Other, false},
		"host name of an API Gateway API is allowed and its message is hidden":  {"https://abc.execute-api.eu-west-1.amazonaws.com", nil, actuator.CredentialsInvalid, false},
		"listed host is allowed":                                                {"https://ec2.example.com", []string{"*.example.com"}, actuator.CredentialsInvalid, true},
		"host without a list of endpoints is allowed and its message is hidden": {"https://ec2.example.com", nil, actuator.CredentialsInvalid, false},
		"unlisted host is refused":                                              {"https://ec2.example.com", []string{"10.0.0.0/8"}, actuator.Other, false},
		"listed address is allowed":                                             {"http://10.1.2.3", []string{"10.0.0.0/8"}, actuator.CredentialsInvalid, true},
		"metadata service is refused":                                           {"http://169.254.169.254/latest", nil, actuator.Other, false},
		"metadata service over IPv6 is refused":                                 {"http://[fd00:ec2::254]/latest", nil, actuator.Other, false},
		"listed metadata service is allowed":                                    {"http://169.254.169.254", []string{"169.254.169.254"}, actuator.CredentialsInvalid, true},
		"unlisted endpoint of the manager's flag is allowed":                    {"http://ec2.internal", []string{"other.example.com"}, actuator.CredentialsInvalid, true},
	} {
		t.Run(name, func(t *testing.T) {
			listed, err := httpguard.ParseEndpoints(row.listed)
			if err != nil {
				t.Fatal(err)
			}
			a := New(Options{HTTPClient: clientFunc(answer), Endpoints: listed, Endpoint: "http://ec2.internal"})
			_, err = a.Observe(t.Context(), withCredential(testTarget(), endpointURL, row.endpoint))
			if actuator.ClassOf(err) != row.want || strings.Contains(err.Error(), secretWords) != row.shown {
				t.Errorf("found %v, want class %q and the endpoint's message shown: %t", err, row.want, row.shown)
			}
		})
	}
}

// TestAccountsOfAWSAreThoseOfItsOwnEndpoints checks that a server hosted on AWS cannot claim that its machines belong
// to an AWS account.
func TestAccountsOfAWSAreThoseOfItsOwnEndpoints(t *testing.T) {
	for _, row := range []struct{ region, endpoint, want string }{
		{"eu-west-1", "", "aws/1"},
		{"cn-north-1", "", "aws/1"},
		{"cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn", "aws/1"},
		{"us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com", "aws/1"},
		{"us-gov-west-1", "https://ec2.us-gov-west-1.api.aws", "aws/1"},
		{"eu-west-1", "https://ec2.us-east-1.amazonaws.com", "ec2.us-east-1.amazonaws.com/1"},
		{"eu-west-1", "http://ec2-203-0-113-5.compute-1.amazonaws.com", "ec2-203-0-113-5.compute-1.amazonaws.com/1"},
	} {
		target := testTarget()
		target.Region = row.region
		if row.endpoint != "" {
			target = withCredential(target, endpointURL, row.endpoint)
		}
		c, err := New(Options{}).clientFor(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.accountName("1"); got != row.want {
			t.Errorf("%s in %s: found the account %q, want %q", row.endpoint, row.region, got, row.want)
		}
	}
}

// TestCloudRedirectsAreNotFollowed redirects to another host.
func TestCloudRedirectsAreNotFollowed(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("expected no request to another host, found %s %s", r.Method, r.URL)
	}))
	defer stranger.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	_, err := New(Options{Attempts: 1}).Observe(t.Context(), withCredential(testTarget(), endpointURL, server.URL))
	if actuator.ClassOf(err) != actuator.Unreachable {
		t.Errorf("found %v, want class %q", err, actuator.Unreachable)
	}
}
