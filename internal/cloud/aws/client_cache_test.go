// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func withCredential(t actuator.Target, key, value string) actuator.Target {
	t.Credentials = maps.Clone(t.Credentials)
	t.Credentials[key] = []byte(value)
	return t
}

func TestClientIsSharedByAccountRegionAndEndpoint(t *testing.T) {
	elsewhere, otherCluster := testTarget(), testTarget()
	elsewhere.Region, otherCluster.InfraID = "eu-west-2", "other"
	for name, row := range map[string]struct {
		target actuator.Target
		shared bool
	}{
		"the same again":      {target: testTarget(), shared: true},
		"another cluster":     {target: otherCluster, shared: true},
		"another region":      {target: elsewhere},
		"another key":         {target: withCredential(testTarget(), accessKeyID, "AKIAOTHER")},
		"another secret":      {target: withCredential(testTarget(), secretAccessKey, "other")},
		"a token":             {target: withCredential(testTarget(), sessionToken, "token")},
		"another endpoint":    {target: withCredential(testTarget(), endpointURL, "http://127.0.0.1:1")},
		"an unrelated change": {target: withCredential(testTarget(), "note", "x"), shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{})
			first, err := a.clientFor(t.Context(), testTarget())
			if err != nil {
				t.Fatal(err)
			}
			other, err := a.clientFor(t.Context(), row.target)
			if err != nil || (first == other) != row.shared {
				t.Errorf("shared: %t and error %v, want %t", first == other, err, row.shared)
			}
		})
	}
}

func TestClientsAreBounded(t *testing.T) {
	a := New(Options{})
	numbered := func(n int) actuator.Target {
		return withCredential(testTarget(), accessKeyID, fmt.Sprintf("AKIA%d", n))
	}
	get := func(n int) *accountClient {
		c, err := a.clientFor(t.Context(), numbered(n))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	favourite, neglected := get(0), get(1)
	for n := 2; n < maxCachedClients+1; n++ {
		get(0)
		get(n)
	}
	if got := len(a.clients.known); got != maxCachedClients {
		t.Errorf("%d clients are kept, want %d", got, maxCachedClients)
	}
	if get(0) != favourite {
		t.Error("the client in use was dropped")
	}
	if get(1) == neglected {
		t.Error("the client that was not used for longest was kept")
	}
}

func TestClientsFromManyGoroutines(t *testing.T) {
	a := New(Options{})
	var work sync.WaitGroup
	for n := range 20 {
		work.Go(func() {
			if _, err := a.clientFor(t.Context(), withCredential(testTarget(), accessKeyID, fmt.Sprintf("AKIA%d", n%3))); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if got := len(a.clients.known); got != 3 {
		t.Errorf("%d clients for 3 accounts", got)
	}
}

func TestClientRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*actuator.Target)
		want   string
	}{
		"no region":                    {func(t *actuator.Target) { t.Region = "" }, `the region must be one such as us-east-1, found ""`},
		"a region that is a host":      {func(t *actuator.Target) { t.Region = "evil.example.com/" }, "the region must be one such as us-east-1"},
		"an endpoint without a scheme": {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "localhost:80") }, "the endpoint must be a URL"},
		"an endpoint that is a file":   {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "file:///etc/passwd") }, "the endpoint must be a URL"},
		"an endpoint with a password":  {func(t *actuator.Target) { *t = withCredential(*t, endpointURL, "http://u:hush@host") }, "the endpoint must be a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			target := testTarget()
			row.change(&target)
			_, err := New(Options{}).clientFor(t.Context(), target)
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}
