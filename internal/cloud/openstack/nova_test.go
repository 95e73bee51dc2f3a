// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// novaImage and novaFlavor are those of nova's own functional tests.
	novaImage, novaFlavor = "155d900f-4e14-4e4c-a73d-069cbf4541e6", "1"
	// novaVersion is an API version in which a server needs no network.
	novaVersion = "compute 2.90"
)

// startNova starts a real nova behind the simulated login and the simulated faults.
func startNova(t *testing.T) *simulatedOpenStack {
	t.Helper()
	tree := os.Getenv("TORPOR_NOVA")
	linker, python, libraries := findOne(tree, "usr/lib*/ld-linux-*"), findOne(tree, "usr/bin/python3.??"), findOne(tree, "usr/lib/*-linux-gnu")
	if linker == "" || python == "" {
		t.Skipf("no real nova: TORPOR_NOVA is %q and names no folder with usr/bin/python3: run make e2e-clouds on Debian", tree)
	}
	cloud := startOpenStack(t)
	nova := testenv.StartProcess(t, linker, []string{"--library-path", libraries, python, "testdata/serve_nova.py", goodProject}, []string{
		"HOME=" + t.TempDir(), "PYTHONHOME=" + filepath.Join(tree, "usr"), "PYTHONPATH=" + filepath.Join(tree, "usr/lib/python3/dist-packages"), "PYTHONDONTWRITEBYTECODE=1",
	})
	target := &url.URL{Scheme: "http", Host: "127.0.0.1:" + nova.WaitForLine(t, "SERVING ")}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target) // The Host header is kept, so the links in nova's answers refer to this server.
		r.Out.Host = r.In.Host
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/compute")
		if query := r.Out.URL.Query(); query.Has("limit") {
			query.Set("limit", strconv.Itoa(serverPageSize))
			r.Out.URL.RawQuery = query.Encode()
		}
	}}
	var one sync.Mutex
	cloud.nova = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock() // The in-memory database fails with concurrent writers.
		defer one.Unlock()
		proxy.ServeHTTP(w, r)
	})
	return cloud
}

func findOne(tree, pattern string) string {
	found, err := filepath.Glob(filepath.Join(tree, pattern))
	if tree == "" || err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// novaCluster is a cluster with servers in nova.
type novaCluster struct{ cluster *simulatedCluster }

func (c novaCluster) Actuator() actuator.Actuator { return c.cluster.actuator }
func (c novaCluster) Target() actuator.Target     { return c.cluster.Target() }
func (novaCluster) TakesOrdersOneByOne()          {}

func (c novaCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	return c.cluster.Fail(t, class, op, ids...)
}

// Create creates servers one by one, and waits until they run. The test removes the servers at its end, because the
// fake hypervisor is small.
func (c novaCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		var made struct{ Server struct{ ID string } }
		c.ask(t, http.MethodPost, "servers", map[string]any{"server": map[string]any{
			"name": fmt.Sprintf("%s-%d", c.cluster.infraID, i), "imageRef": novaImage, "flavorRef": novaFlavor, "networks": "none",
			"metadata": map[string]string{clusterProperty: c.cluster.infraID},
		}}, &made)
		ids = append(ids, made.Server.ID)
		t.Cleanup(func() { c.ask(t, http.MethodDelete, "servers/"+made.Server.ID, nil, nil) })
	}
	c.Settle(t)
	expectStates(t, c.cluster, actuator.Running)
	return ids
}

func (c novaCluster) Settle(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "no server of "+c.cluster.infraID+" has a task", func() error {
		machines, err := c.cluster.actuator.Observe(t.Context(), c.Target())
		for _, m := range machines {
			if m.State == actuator.Starting || m.State == actuator.Stopping {
				return fmt.Errorf("server %s is %s", m.ID, m.State)
			}
		}
		return err
	})
}

// ask sends a request directly to nova, without the actuator.
func (c novaCluster) ask(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	testenv.ExpectNoError(t, err)
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.cluster.server.URL+"/compute/v2.1/"+path, bytes.NewReader(text))
	testenv.ExpectNoError(t, err)
	r.Header.Set("OpenStack-API-Version", novaVersion)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(administrator, "yes")
	response, err := http.DefaultClient.Do(r)
	testenv.ExpectNoError(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: nova answers with status %s", method, path, response.Status)
	}
	if answer != nil {
		testenv.ExpectNoError(t, json.NewDecoder(response.Body).Decode(answer))
	}
}

func TestContractAtARealNova(t *testing.T) {
	cloud := startNova(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return novaCluster{cloud.newCluster()} })
}

// shelvedNovaCluster is a cluster with shelved servers.
type shelvedNovaCluster struct{ novaCluster }

// ShutDown implements actuatortest.ShutdownCloud.
func (c shelvedNovaCluster) ShutDown(t *testing.T, id string) {
	t.Helper()
	c.ask(t, http.MethodPost, "servers/"+id+"/action", map[string]any{"os-stop": nil}, nil)
	c.Settle(t)
}

func TestContractOfShelvingAtARealNova(t *testing.T) {
	cloud := startNova(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud {
		return shelvedNovaCluster{novaCluster{cloud.newShelvedCluster().simulatedCluster}}
	})
}

// TestServersOfARealNovaStartFromEveryStoppedState uses nova's own names for actions and states.
func TestServersOfARealNovaStartFromEveryStoppedState(t *testing.T) {
	c := novaCluster{startNova(t).newCluster()}
	ids := c.Create(t, 4)
	for i, action := range []string{"os-stop", "shelve", "suspend"} {
		c.ask(t, http.MethodPost, "servers/"+ids[i]+"/action", map[string]any{action: nil}, nil)
	}
	c.ask(t, http.MethodPost, "servers/"+ids[3]+"/action", map[string]any{"lock": nil}, nil)
	c.Settle(t)
	expectOff := func(want ...bool) {
		t.Helper()
		machines, err := c.cluster.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		off := map[string]bool{}
		for _, m := range machines {
			off[m.ID] = m.State == actuator.Stopped
		}
		for i, id := range ids {
			if off[id] != want[i] {
				t.Errorf("server %d is off: %t, want %t", i, off[id], want[i])
			}
		}
	}
	expectOff(true, true, true, false)
	testenv.ExpectNoError(t, c.cluster.actuator.Start(t.Context(), c.Target(), ids))
	c.Settle(t)
	expectOff(false, false, false, false)
	testenv.ExpectNoError(t, c.cluster.actuator.Stop(t.Context(), c.Target(), ids)) // An administrator may stop a locked server.
	c.Settle(t)
	expectOff(true, true, true, true)
}
