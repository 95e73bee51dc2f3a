// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	"github.com/torpor-dev/torpor/internal/httpguard"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestCallsAreFew(t *testing.T) {
	engine := startEngine(t)
	actuatortest.ExpectCalls(t, [3]actuatortest.FaultyCloud{engine.newCluster(), engine.newCluster(), engine.newCluster()}, map[string]int{list: 1, stop: 12})
}

func TestTroubleAtAnEngine(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		op    actuatortest.Operation
		// calls is the number of calls of the operation for three containers.
		calls      int
		class      actuator.ErrorClass
		retryAfter time.Duration
	}{
		"failed listing is retried up to the limit":                 {actuatortest.Fault{Operation: list, Status: http.StatusInternalServerError}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"429 is not retried and its Retry-After is returned":        {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "90"}, actuatortest.Observe, 1, actuator.Throttled, 90 * time.Second},
		"excessive Retry-After is capped":                           {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "9999999"}, actuatortest.Observe, 1, actuator.Throttled, 10 * time.Minute},
		"stop call that fails with 502 is not retried":              {actuatortest.Fault{Operation: stop, Status: http.StatusBadGateway}, actuatortest.Stop, 3, actuator.Unreachable, 0},
		"stop call that fails with 500 concerns only its container": {actuatortest.Fault{Operation: stop, Status: http.StatusInternalServerError}, actuatortest.Stop, 3, actuator.Other, 0},
		"start call that fails with 502 is retried":                 {actuatortest.Fault{Operation: start, Status: http.StatusBadGateway}, actuatortest.Start, 6, actuator.Unreachable, 0},
		"redirect is not followed":                                  {actuatortest.Fault{Operation: list, Status: http.StatusTemporaryRedirect}, actuatortest.Observe, 2, actuator.Unreachable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			actuatortest.ExpectEffect(t, startEngine(t).newCluster(), row.op, row.fault, actuatortest.FaultEffect{Class: row.class, RetryAfter: row.retryAfter, Calls: row.calls})
		})
	}
}

// TestContainerWithAStopRequestCountsAsStopping uses a container that ignores its stop request, and that Docker shows
// as running.
func TestContainerWithAStopRequestCountsAsStopping(t *testing.T) {
	engine := startEngine(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	engine.actuator = New(Options{CallTimeout: callTimeout, StopPatience: stopPatience, Clock: now})
	c := engine.newCluster()
	id := c.Create(t, 1)[0]
	engine.Change(func() { engine.containers[id].isStubborn = true })
	expectState := func(want actuator.MachineState) {
		t.Helper()
		engine.Change(func() {
			if engine.containers[id].left > 0 {
				engine.containers[id].left = 100
			}
		})
		if machines, err := engine.actuator.Observe(t.Context(), c.Target()); err != nil || machines[0].State != want {
			t.Errorf("found %v and error %v, want it to be %s", machines, err, want)
		}
	}
	expectState(actuator.Running)
	if err := engine.actuator.Stop(t.Context(), c.Target(), []string{id}); err != nil {
		t.Errorf("stop: %v", err)
	}
	expectState(actuator.Stopping)
	if err := engine.actuator.Start(t.Context(), c.Target(), []string{id}); actuator.ClassOf(err) != actuator.WrongState {
		t.Errorf("start a stopping container: %v, want class %q", err, actuator.WrongState)
	}
	now.SetTime(now.Now().Add(stopGrace + stopMargin))
	expectState(actuator.Running) // The engine lost the order, and the next pass repeats it.
}

// TestLateSuccessIsNotTheEndOfAStop uses an engine with an answer that arrives while the connection closes.
func TestLateSuccessIsNotTheEndOfAStop(t *testing.T) {
	c := &engineClient{
		http: httpguard.NewClient(lateEngine{}, maxAnswerBytes, 0), timeout: time.Minute, patience: time.Millisecond,
		stops: &onebyone.PendingStops{Clock: clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), Window: stopGrace},
	}
	if err := c.StopMachine(t.Context(), "a"); err != nil {
		t.Errorf("stop: %v", err)
	}
	if !c.stops.IsPending("a") {
		t.Error("expected the stop to be pending, found that it was taken as ended")
	}
}

// lateEngine answers an order with an empty success once the client has ended the request.
type lateEngine struct{}

// RoundTrip implements http.RoundTripper.
func (lateEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).WroteRequest(httptrace.WroteRequestInfo{})
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestAPausedContainerIsStoppedAndStarted(t *testing.T) {
	for name, isPodman := range map[string]bool{"by Docker": false, "by Podman": true} {
		t.Run(name, func(t *testing.T) {
			engine := startEngine(t)
			engine.isPodman = isPodman
			c := engine.newCluster()
			ids := c.Create(t, 2)
			c.ShutDown(t, ids[0])
			c.ShutDown(t, ids[1])
			if err := engine.actuator.Start(t.Context(), c.Target(), ids[:1]); err != nil {
				t.Errorf("start: %v", err)
			}
			if err := engine.actuator.Stop(t.Context(), c.Target(), ids[1:]); err != nil {
				t.Errorf("stop: %v", err)
			}
			var states []string
			engine.Change(func() { states = []string{engine.containers[ids[0]].state, engine.containers[ids[1]].state} })
			if diff := cmp.Diff([]string{"running", "exited"}, states); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllowedEngineAddresses(t *testing.T) {
	listed, err := httpguard.ParseEndpoints([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := ParseSockets([]string{"fleet=/var/run/docker.sock"})
	if err != nil {
		t.Fatal(err)
	}
	credentials := newAuthority(t).newCredentials(t)
	for name, row := range map[string]struct {
		engine, namespace string
		options           Options
		want              string
	}{
		"server with the scheme tcp is allowed":                  {"tcp://10.0.0.9:2376", "fleet", Options{}, ""},
		"server with the scheme https is allowed":                {"https://10.0.0.9:2376", "fleet", Options{}, ""},
		"listed server is allowed":                               {"tcp://10.0.0.9:2376", "fleet", Options{Endpoints: listed}, ""},
		"unlisted server is refused":                             {"tcp://192.168.0.9:2376", "fleet", Options{Endpoints: listed}, "expected a server that --allow-endpoints lists, found 192.168.0.9"},
		"metadata service is refused":                            {"tcp://169.254.169.254:80", "fleet", Options{}, "169.254.169.254: the address is link-local"},
		"server without encryption is refused":                   {"http://10.0.0.9:2375", "fleet", Options{}, "which always uses TLS"},
		"server over SSH is refused":                             {"ssh://root@10.0.0.9", "fleet", Options{}, "expected tcp://HOST:PORT"},
		"server with a path is refused":                          {"tcp://10.0.0.9:2376/v1.40", "fleet", Options{}, "expected tcp://HOST:PORT"},
		"server with a login is refused":                         {"tcp://me:secret@10.0.0.9:2376", "fleet", Options{}, "expected tcp://HOST:PORT"},
		"server without a port is refused":                       {"tcp://10.0.0.9", "fleet", Options{}, "expected tcp://HOST:PORT"},
		"socket that is listed for the namespace is allowed":     {"unix:///var/run/docker.sock", "fleet", Options{Sockets: sockets}, ""},
		"socket that is listed for another namespace is refused": {"unix:///var/run/docker.sock", "team-a", Options{Sockets: sockets}, "expected a socket that --container-engine-sockets lists"},
		"unlisted socket is refused":                             {"unix:///run/containerd/containerd.sock", "fleet", Options{Sockets: sockets}, "expected a socket that --container-engine-sockets lists"},
		"socket path with two dots is refused":                   {"unix:///var/run/../run/docker.sock", "fleet", Options{Sockets: sockets}, "expected a path after unix://"},
		"socket is refused without a list of sockets":            {"unix:///var/run/docker.sock", "fleet", Options{}, "expected a socket that --container-engine-sockets lists"},
	} {
		t.Run(name, func(t *testing.T) {
			target := actuator.Target{InfraID: "x", Cloud: row.engine, Role: &actuator.Role{Namespace: row.namespace}, Credentials: credentials}
			_, err := New(row.options).AccountOf(t.Context(), target)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) || err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("found error %v, want %q", err, row.want)
			}
		})
	}
	for _, wrong := range []string{"", "fleet", "=/var/run/docker.sock", "*=/var/run/docker.sock", "fleet=docker.sock", "fleet=/var/../docker.sock"} {
		if _, err := ParseSockets([]string{wrong}); err == nil {
			t.Errorf("--container-engine-sockets=%s: found no error, want one", wrong)
		}
	}
}

// TestASocketIsUsedByItsNamespace uses an engine that only the manager's machine can reach.
func TestASocketIsUsedByItsNamespace(t *testing.T) {
	engine := startEngine(t)
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: callTimeout}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	sockets, err := ParseSockets([]string{"fleet=" + socket})
	if err != nil {
		t.Fatal(err)
	}
	c := engine.newCluster()
	ids := c.Create(t, 2)
	target := actuator.Target{InfraID: c.Target().InfraID, Cloud: "unix://" + socket, Role: &actuator.Role{Namespace: "fleet"}}
	a := New(Options{Sockets: sockets, CallTimeout: callTimeout, StopPatience: stopPatience})
	if err := a.Stop(t.Context(), target, ids); err != nil {
		t.Errorf("stop: %v", err)
	}
	if machines, err := a.Observe(t.Context(), target); err != nil || len(machines) != 2 || machines[0].State != actuator.Stopped {
		t.Errorf("found %v and error %v, want two machines that are stopped", machines, err)
	}
}

func TestInvalidCertificatesAreReported(t *testing.T) {
	engine := startEngine(t)
	c := engine.newCluster()
	c.Create(t, 1)
	stranger := newAuthority(t)
	for name, row := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"client certificate that the engine rejects is reported": {func(secret map[string][]byte) {
			own := stranger.newCredentials(t)
			secret[certificateKey], secret[privateKeyKey] = own[certificateKey], own[privateKeyKey]
		}, "the engine rejects the certificate"},
		"engine whose authority differs from ca.crt is refused": {func(secret map[string][]byte) { secret[authorityKey] = stranger.PEM }, "the engine's certificate is not signed by ca.crt"},
		"engine is refused if ca.crt is missing in the Secret":  {func(secret map[string][]byte) { delete(secret, authorityKey) }, "the engine's certificate is not signed by ca.crt"},
		"private key of another certificate is refused":         {func(secret map[string][]byte) { secret[privateKeyKey] = stranger.newCredentials(t)[privateKeyKey] }, "must be a certificate in PEM and its key"},
		"ca.crt that is not PEM is refused":                     {func(secret map[string][]byte) { secret[authorityKey] = []byte("x") }, "ca.crt of the credentials Secret must be"},
	} {
		t.Run(name, func(t *testing.T) {
			target := c.Target()
			target.Credentials = maps.Clone(c.credentials)
			row.change(target.Credentials)
			expectInvalidCertificate(t, engine, target, row.want)
		})
	}
}

func TestExpiredCertificateOfAnEngineIsReported(t *testing.T) {
	engine := startEngineUntil(t, time.Unix(1_500_000_000, 0))
	expectInvalidCertificate(t, engine, engine.newCluster().Target(), "the certificate of the engine, or of its authority, has expired or is not yet valid")
}

func expectInvalidCertificate(t *testing.T, engine *simulatedEngine, target actuator.Target, want string) {
	t.Helper()
	// An engine that closes the connection at once may not deliver the TLS alert.
	testenv.Eventually(t, "the actuator reports the certificate", func() error {
		_, err := engine.actuator.Observe(t.Context(), target)
		isReported := actuator.ClassOf(err) == actuator.CredentialsInvalid && strings.Contains(err.Error(), want)
		return testenv.ErrorIf(!isReported, "found %v, want class %q and %q", err, actuator.CredentialsInvalid, want)
	})
}

func TestMessagesOfAListedEngineAreShown(t *testing.T) {
	for name, isListed := range map[string]bool{"listed engine": true, "unlisted engine": false} {
		t.Run(name, func(t *testing.T) {
			engine := startEngine(t)
			if isListed {
				engine.allowLoopback(t)
			}
			c := engine.newCluster()
			ids := c.Create(t, 1)
			engine.Inject(t, actuatortest.Fault{Operation: stop, Status: http.StatusBadRequest, Message: "no way: " + strings.Repeat("a", 64) + strings.Repeat(" x", 1000)})
			err := engine.actuator.Stop(t.Context(), c.Target(), ids)
			if err == nil || strings.Contains(err.Error(), "no way: <id>") != isListed || len(err.Error()) > 1000 {
				t.Errorf("found %v, want the engine's message: %t", err, isListed)
			}
		})
	}
}

func TestHostileAnswersAreCut(t *testing.T) {
	const id = "0123456789ab"
	for name, row := range map[string]struct{ answer, want string }{
		"answer that is not JSON is refused":                  {`<html>`, "the response is not from a Docker or Podman engine"},
		"answer that is not a list is refused":                {`{"Id":"x"}`, "the response is not from a Docker or Podman engine"},
		"container without an id is refused":                  {`[{}]`, "the response is not from a Docker or Podman engine"},
		"container id with a path traversal is refused":       {`[{"Id":"../../images/json"}]`, "the response is not from a Docker or Podman engine"},
		"id above the maximum length is refused":              {`[{"Id":"` + strings.Repeat("a", 65) + `"}]`, "the response is not from a Docker or Podman engine"},
		"truncated list is refused":                           {`[{"Id":"` + id + `"},`, "the response is not from a Docker or Podman engine"},
		"list without an end is refused":                      {`[{"Id":"` + id + `"}`, "the response is not from a Docker or Podman engine"},
		"list of more containers than the maximum is refused": {`[` + strings.Repeat(`{"Id":"`+id+`"},`, maxContainers) + `{"Id":"` + id + `"}]`, "the list has more than 10000 containers"},
		"answer above the maximum size is refused":            {`[{"Id":"` + id + `","Command":"` + strings.Repeat("x", maxAnswerBytes) + `"}]`, "the response is larger than allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			engine := startEngine(t)
			engine.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, row.answer)
				return true
			}
			found, err := engine.actuator.Observe(t.Context(), engine.newCluster().Target())
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) || len(found) > 0 {
				t.Errorf("found %v and %v, want an error of class %q with %q", found, err, actuator.Unreachable, row.want)
			}
		})
	}
}

func TestContainersOfAList(t *testing.T) {
	answer := []byte(`[
		{"Id":"aaaaaaaaaaaa","Names":["/kind-control-plane"],"State":"running","Labels":{"io.x-k8s.kind.cluster":"kind"}},
		{"Id":"bbbbbbbbbbbb","Names":["/kind-2-control-plane"],"State":"exited","Labels":{"io.x-k8s.kind.cluster":"kind-2"}},
		{"Id":"cccccccccccc","Names":["/alias","/kind-old"],"State":"restarting","Labels":null},
		{"Id":"dddddddddddd","Names":[],"State":"removing","Labels":{"io.x-k8s.kind.cluster":"kind"}},
		{"Id":"eeeeeeeeeeee","Names":["/kind-gone"],"State":"dead","Labels":{"io.x-k8s.kind.cluster":"kind"}}
	]`)
	for selector, want := range map[string][]string{
		kindLabel + "=kind":   {"aaaaaaaaaaaa"},
		kindLabel + "=kind-2": {"bbbbbbbbbbbb"},
		kindLabel + "=":       nil,
		"k3d.cluster=kind":    nil,
		"kind-":               {"aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"},
		"kind-2-":             {"bbbbbbbbbbbb"},
	} {
		var found []string
		err := readContainers(bytes.NewReader(answer), func(e *engineContainer) {
			if e.isSelectedBy(selector) {
				found = append(found, e.ID)
			}
		})
		if diff := cmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got):\n%s", selector, err, diff)
		}
	}
}

func TestStatesOfContainers(t *testing.T) {
	for state, want := range map[string]string{
		"running": "running false", "paused": "stopped true", "created": "stopped false", "exited": "stopped false", "stopped": "stopped false",
		"stopping": "stopping false", "restarting": "starting false", "new in the next release": "starting false",
	} {
		machine, isHeld := stateOf(state)
		if got := fmt.Sprint(machine, " ", isHeld); got != want {
			t.Errorf("%s: found %s, want %s", state, got, want)
		}
	}
}
