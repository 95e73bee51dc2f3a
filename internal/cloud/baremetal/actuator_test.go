// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// TestHangingBMCDoesNotDelayOthers uses, for each protocol, one controller that accepts requests and never answers.
func TestHangingBMCDoesNotDelayOthers(t *testing.T) {
	for name, isIPMI := range map[string]bool{"over Redfish": false, "over IPMI": true} {
		t.Run(name, func(t *testing.T) {
			room := newRoom(t)
			room.actuator = New(Options{VisitTimeout: 5 * time.Second, resend: resendSoon})
			c := room.newCluster(t, isIPMI)
			ids := c.Create(t, 4)
			room.change(func() { room.machines[ids[1]].isSilent = true })
			expectNote := func() {
				t.Helper()
				machines, err := room.actuator.Observe(t.Context(), c.Target())
				if err != nil || len(machines) != 4 || machines[1].State != actuator.Starting || !strings.Contains(machines[1].Note, "does not respond") {
					t.Fatalf("found %+v and error %v, want the second machine to be neither on nor off, and why", machines, err)
				}
			}
			expectNote()
			for i, id := range ids {
				v, err := room.actuator.visitorOf(c.Target(), id)
				if err != nil || (v.timeout == silentTimeout) != (i == 1) {
					t.Errorf("machine %s gets %s and error %v, want less for the silent one", id, v.timeout, err)
				}
			}
			expectNote()
			err := room.actuator.Stop(t.Context(), c.Target(), ids)
			known, ok := errors.AsType[*actuator.Error](err)
			if !ok || known.Class != actuator.Unreachable || !slices.Equal(known.RefusedIDs, ids[1:2]) || known.Message != "stop machines: "+ids[1]+": its BMC does not respond; check its address and the network" {
				t.Errorf("found %v, want an error of %s only", err, ids[1])
			}
			c.Settle(t)
			for i, id := range ids {
				room.change(func() {
					if off := room.machines[id].state == actuator.Stopped; off != (i != 1) {
						t.Errorf("machine %s is off: %t", id, off)
					}
				})
			}
		})
	}
}

// TestSystemThatIgnoresShutdownIsPoweredOff checks that the power is cut after five minutes.
func TestSystemThatIgnoresShutdownIsPoweredOff(t *testing.T) {
	room := newRoom(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	room.actuator = New(Options{VisitTimeout: visitTimeout, Clock: now})
	c := room.newCluster(t, false)
	id := c.Create(t, 1)[0]
	room.change(func() { room.machines[id].isDeaf = true })
	seen := func() actuator.MachineState {
		machines, err := room.actuator.Observe(t.Context(), c.Target())
		if err != nil {
			t.Fatal(err)
		}
		return machines[0].State
	}
	var states []actuator.MachineState
	for range 13 {
		// Every machine that is observed as running is stopped, as in the controller's passes.
		state := seen()
		states = append(states, state)
		if state == actuator.Running {
			if err := room.actuator.Stop(t.Context(), c.Target(), []string{id}); err != nil {
				t.Fatal(err)
			}
		}
		now.SetTime(now.Now().Add(30 * time.Second))
	}
	// The button is pressed again each minute.
	var want []actuator.MachineState
	for range 5 {
		want = append(want, actuator.Running, actuator.Stopping)
	}
	want = append(want, actuator.Running, actuator.Stopped, actuator.Stopped)
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states every half minute (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]powerOrder{shutDown, shutDown, shutDown, shutDown, shutDown, cutPower}, room.machines[id].orders); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	if state := seen(); state != actuator.Stopped {
		t.Errorf("found it %s", state)
	}
}

func TestOrdersForAMachine(t *testing.T) {
	for name, row := range map[string]struct {
		seen       actuator.MachineState
		isPending  bool
		toldFor    time.Duration
		stop       powerOrder
		start      powerOrder
		isTooEarly bool
	}{
		"running machine without an order is shut down":                                        {seen: actuator.Running, stop: shutDown},
		"running machine with a shutdown a second ago is shut down again, and not started yet": {seen: actuator.Running, isPending: true, toldFor: time.Second, stop: shutDown, isTooEarly: true},
		"running machine with a shutdown under five minutes ago is shut down again":            {seen: actuator.Running, toldFor: cutPowerAfter - 1, stop: shutDown},
		"running machine with a shutdown five minutes ago loses its power":                     {seen: actuator.Running, toldFor: cutPowerAfter, stop: cutPower},
		"machine that is off is turned on":                                                     {seen: actuator.Stopped, start: turnOn},
		"machine that is shutting down is not started yet":                                     {seen: actuator.Stopping, isTooEarly: true},
	} {
		order, err := chooseStop(row.seen, row.toldFor)
		if order != row.stop || err != nil {
			t.Errorf("%s: at a stop found %q and error %v, want %q", name, order, err, row.stop)
		}
		order, err = chooseStart(row.seen, row.isPending)
		if order != row.start || (err != nil) != row.isTooEarly {
			t.Errorf("%s: at a start found %q and error %v, want %q", name, order, err, row.start)
		}
	}
	if _, err := chooseStop(actuator.Starting, 0); actuator.ClassOf(err) != actuator.WrongState {
		t.Errorf("stop a starting machine: found %v, want class %q", err, actuator.WrongState)
	}
}

func TestStatesOfRedfish(t *testing.T) {
	for power, want := range map[string]actuator.MachineState{
		"On": actuator.Running, "Off": actuator.Stopped, "PoweringOn": actuator.Starting, "PoweringOff": actuator.Stopping, "Paused": actuator.Running,
		"": actuator.Starting, "new in the next release": actuator.Starting,
	} {
		if got := stateOf(power); got != want {
			t.Errorf("%q: found %s, want %s", power, got, want)
		}
	}
}

func TestAllowedBMCAddresses(t *testing.T) {
	listed, err := httpguard.ParseEndpoints([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		bmc       string
		endpoints httpguard.Endpoints
		want      string
	}{
		"Redfish service is allowed":            {bmc: "redfish+https://10.0.0.9/redfish/v1/Systems/System.Embedded.1"},
		"address in Metal3's form is allowed":   {bmc: "redfish://[fd00::9]:8443/redfish/v1/Systems/1/"},
		"BMC with IPMI is allowed":              {bmc: "ipmi://10.0.0.9:6230"},
		"listed BMC is allowed":                 {bmc: "ipmi://10.0.0.9", endpoints: listed},
		"unlisted BMC is refused":               {bmc: "ipmi://192.168.0.9", endpoints: listed, want: "expected a host that --allow-endpoints lists"},
		"metadata service is refused":           {bmc: "redfish+https://169.254.169.254/redfish/v1/Systems/1", want: "the address is link-local"},
		"Redfish without encryption is refused": {bmc: "redfish+http://10.0.0.9/redfish/v1/Systems/1", want: "expected redfish+https://"},
		"path outside of Redfish is refused":    {bmc: "redfish://10.0.0.9/admin", want: "expected redfish+https://"},
		"escaped path is refused":               {bmc: "redfish://10.0.0.9/redfish/v1/Systems/..%2f..%2fadmin", want: "expected redfish+https://"},
		"path with two dots is refused":         {bmc: "redfish://10.0.0.9/redfish/v1/Systems/..", want: "expected redfish+https://"},
		"address with a query is refused":       {bmc: "redfish://10.0.0.9/redfish/v1/Systems/1?x", want: "expected redfish+https://"},
		"address with a login is refused":       {bmc: "ipmi://admin:hunter2@10.0.0.9", want: "expected redfish+https://"},
		"IPMI with a path is refused":           {bmc: "ipmi://10.0.0.9/1", want: "expected redfish+https://"},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := parseAddress(row.bmc)
			if err == nil {
				err = (&Options{Endpoints: row.endpoints}).allowAddress(address)
			}
			if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("found error %v, want %q", err, row.want)
			}
		})
	}
}

func TestCertificatesOfControllers(t *testing.T) {
	room := newRoom(t)
	c := room.newCluster(t, false)
	c.Create(t, 1)
	for name, row := range map[string]struct {
		authority string
		want      string
	}{
		"certificate signed by an authority in the Secret is accepted": {authority: string(room.credentials()[authorityKey])},
		"certificate of an unknown authority is refused":               {want: "the certificate of its BMC is not signed by ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			target := c.Target()
			target.Credentials[authorityKey] = []byte(row.authority)
			_, err := room.actuator.Observe(t.Context(), target)
			if row.want == "" && err != nil || row.want != "" && (actuator.ClassOf(err) != actuator.CredentialsInvalid || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("found %v, want %q", err, row.want)
			}
		})
	}
}

func TestLogins(t *testing.T) {
	secret := func(pairs ...string) map[string][]byte {
		all := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = []byte(pairs[i+1])
		}
		return all
	}
	for name, row := range map[string]struct {
		secret map[string][]byte
		isIPMI bool
		want   string
	}{
		"login for all machines is used":                    {secret("username", "u", "password", "p"), false, "u:p"},
		"login of one machine takes precedence":             {secret("username", "u", "password", "p", "m.username", "mu", "m.password", "mp"), true, "mu:mp"},
		"password for one machine is used":                  {secret("username", "u", "m.password", "mp"), true, "u:mp"},
		"login of another machine is ignored":               {secret("n.username", "u", "n.password", "p"), true, "credentials missing"},
		"missing password is reported":                      {secret("username", "u"), false, "credentials missing"},
		"password of 21 characters is invalid for IPMI":     {secret("username", "u", "password", strings.Repeat("x", 21)), true, "credentials invalid"},
		"password of 21 characters is accepted for Redfish": {secret("username", "u", "password", strings.Repeat("x", 21)), false, "u:" + strings.Repeat("x", 21)},
		"user name with a colon is invalid for Redfish":     {secret("username", "u:v", "password", "p"), false, "credentials invalid"},
		"authority that is not a certificate is invalid":    {secret("username", "u", "password", "p", "ca.crt", "x"), false, "credentials invalid"},
		"invalid authority is ignored for IPMI":             {secret("username", "u", "password", "p", "ca.crt", "x"), true, "u:p"},
	} {
		l, err := readLogin(row.secret, "m", bmcAddress{isIPMI: row.isIPMI})
		found := l.user + ":" + l.password
		if err != nil {
			found = string(actuator.ClassOf(err))
		}
		if found != row.want {
			t.Errorf("%s: found %s and %v, want %s", name, found, err, row.want)
		}
	}
}

// busyConnection reports for every second packet that its deadline has passed, and does not send it.
type busyConnection struct {
	net.Conn
	packets int
}

// Write implements net.Conn.
func (c *busyConnection) Write(packet []byte) (int, error) {
	if c.packets++; c.packets%2 == 1 {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Write(packet)
	if err != nil {
		return n, fmt.Errorf("write: %w", err)
	}
	return n, nil
}

// TestBusyManagerReportsNoBMCTimeout uses a manager that is not scheduled between the deadline of a packet and the
// packet itself.
func TestBusyManagerReportsNoBMCTimeout(t *testing.T) {
	t.Parallel()
	double := startIPMI(t, &simulatedMachine{room: newRoom(t)}, cipherSuites()[0])
	conn, err := net.Dial("udp", double.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), visitTimeout)
	defer cancel()
	session, err := openSession(ctx, &busyConnection{Conn: conn}, login{user: goodUser, password: goodPassword}, cipherSuites(), resendSoon)
	if err != nil || !session.isOpen {
		t.Errorf("expected a session, found the error %v", err)
	}
}

func TestMessagesOfAListedBMCAreShown(t *testing.T) {
	listed, err := httpguard.ParseEndpoints([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, endpoints := range map[string]httpguard.Endpoints{"listed BMC": listed, "unlisted BMC": {}} {
		t.Run(name, func(t *testing.T) {
			room := newRoom(t)
			room.actuator = New(Options{VisitTimeout: visitTimeout, Endpoints: endpoints})
			c := room.newCluster(t, false)
			ids := c.Create(t, 1)
			room.inject(t, fault{order: shutDown, status: http.StatusBadRequest})
			err := room.actuator.Stop(t.Context(), c.Target(), ids)
			if err == nil || strings.Contains(err.Error(), "No way, <hidden>") == endpoints.IsEmpty() || strings.Contains(err.Error(), goodPassword) {
				t.Errorf("found %v, want the BMC's message: %t", err, !endpoints.IsEmpty())
			}
		})
	}
}

func TestHostileAnswersOfRedfishAreCut(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"answer that is not JSON is refused":    {`<html>`, http.StatusOK, "does not speak Redfish"},
		"answer of another service is refused":  {`{"PowerState":"Off"}`, http.StatusOK, "does not speak Redfish"},
		"power that is not a string is refused": {`{"@odata.type":"#ComputerSystem.v1","PowerState":{}}`, http.StatusOK, "does not speak Redfish"},
		"oversized answer is refused":           {strings.Repeat(" ", maxAnswerBytes+1), http.StatusOK, "larger than allowed"},
		"redirect is refused":                   {``, http.StatusTemporaryRedirect, "status 307"},
	} {
		t.Run(name, func(t *testing.T) {
			room := newRoom(t)
			room.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Location", "https://evil.example.com/")
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.answer)
				return true
			}
			c := room.newCluster(t, false)
			c.Create(t, 1)
			found, err := room.actuator.Observe(t.Context(), c.Target())
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) || len(found) > 0 {
				t.Errorf("found %v and %v, want an error of class %q with %q", found, err, actuator.Unreachable, row.want)
			}
		})
	}
}

// TestAnswersAfterTheDeadlineAreIgnored uses a server with a handler that returns without an answer once the client
// has disconnected.
func TestAnswersAfterTheDeadlineAreIgnored(t *testing.T) {
	c := newRedfishController(bmcAddress{hostPort: "192.0.2.1", system: "/redfish/v1/Systems/1"}, login{}, httpguard.Endpoints{})
	c.http = httpguard.NewClient(lateServer{}, maxAnswerBytes, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := c.visit(ctx, func(actuator.MachineState) (powerOrder, error) { return noOrder, nil })
	if _, isSilent := errors.AsType[*silenceError](err); !isSilent {
		t.Errorf("found %v, want that it does not answer", err)
	}
}

// lateServer answers a request with an empty body once the context of the request has ended.
type lateServer struct{}

// RoundTrip implements http.RoundTripper.
func (lateServer) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// TestHostileAnswersOfIPMIAreCut uses a controller that sends arbitrary answers.
func TestHostileAnswersOfIPMIAreCut(t *testing.T) {
	header := func(kind byte, payload []byte) []byte {
		packet, err := (&ipmiSession{}).wrap(kind, payload)
		if err != nil {
			t.Fatal(err)
		}
		return packet
	}
	for name, answer := range map[string]func(request []byte) []byte{
		"request that is echoed as the answer is refused": func(request []byte) []byte { return request },
		"packet of zeros is refused":                      func([]byte) []byte { return make([]byte, 64) },
		"packet whose length exceeds its data is refused": func([]byte) []byte {
			return []byte{6, 0, 0xff, 7, 6, payloadOpenedSession, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}
		},
		"packet of another session is refused": func([]byte) []byte { return header(payloadOpenedSession, make([]byte, 36)) },
		"session without algorithms, and therefore without signatures, is refused": func(request []byte) []byte {
			payload := request[headerBytes:]
			return header(payloadOpenedSession, append(append([]byte{0, 0, 4, 0}, payload[4:8]...), make([]byte, 28)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				buffer := make([]byte, maxPacketBytes)
				for {
					n, from, err := conn.ReadFrom(buffer)
					if err != nil {
						return
					}
					for range maxStrayPackets {
						_, _ = conn.WriteTo(answer(bytes.Clone(buffer[:n])), from)
					}
				}
			}()
			room := newRoom(t)
			_, err = room.actuator.Observe(t.Context(), actuator.Target{
				InfraID: "x", Machines: []actuator.ListedMachine{{Name: "m", Address: "ipmi://" + conn.LocalAddr().String()}}, Credentials: room.credentials(),
			})
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "does not speak IPMI 2.0") {
				t.Errorf("found %v, want class %q", err, actuator.Unreachable)
			}
		})
	}
}

// FuzzUnwrap passes arbitrary packets. A packet must never be accepted as part of an open session, or cause a panic.
func FuzzUnwrap(f *testing.F) {
	session := &ipmiSession{suite: cipherSuites()[0], isOpen: true, integrityKey: make([]byte, 32), privacyKey: make([]byte, 16)}
	good, err := session.wrap(payloadIPMI, []byte{1, 2, 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:headerBytes])
	f.Fuzz(func(t *testing.T, packet []byte) {
		open, closed := *session, ipmiSession{suite: cipherSuites()[1]}
		_, _ = closed.unwrap(payloadOpenedSession, packet)
		if payload, ok := open.unwrap(payloadIPMI, packet); ok && !bytes.Equal(payload, []byte{1, 2, 3}) {
			t.Errorf("accepted an unsigned packet: %x", packet)
		}
	})
}
