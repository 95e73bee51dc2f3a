// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// turningOffLooks is the number of observations until a guest is off. The last observation before that shows the
	// state shutting down, as with the hypervisor.
	turningOffLooks = 3
	secretWords     = "hush-hush of the host 2026-01-02T03:04:05.678Z 11111111-2222-3333-4444-555555555555"
)

// simulatedDaemon speaks libvirt's protocol, and simulates behaviour that a real daemon cannot be made to show. Its
// guests are slow, do not react, crash, are suspended or paused. The daemon refuses calls, stops answering and sends
// invalid data.
type simulatedDaemon struct {
	listener net.Listener
	clock    *clocktesting.FakePassiveClock
	actuator *Actuator

	mu       sync.Mutex
	domains  map[[uuidBytes]byte]*simulatedDomain
	faults   []fault
	calls    map[uint32]int
	nextID   uint32
	clusters int
	made     int
	// latency, if set, is how long a guest takes to turn off. Otherwise a guest takes a number of observations.
	latency time.Duration
	// interfere, if set, may answer a call with its own frame. If it returns nil, the daemon answers.
	interfere func(procedure, serial uint32) []byte
}

type simulatedDomain struct {
	domain
	domainState
	claim string
	// looksLeft is the number of observations until a guest is off; zero if it is not turning off.
	looksLeft           int
	turnsOff            time.Time
	isDeaf, isTransient bool
}

type fault struct {
	procedure uint32
	ids       []string
	code      uint32
	message   string
	// isSilent closes the connection instead of answering.
	isSilent bool
}

func startDaemon(t *testing.T) *simulatedDaemon {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveDaemon(t, listener)
}

func serveDaemon(t *testing.T, listener net.Listener) *simulatedDaemon {
	t.Helper()
	endpoints, err := httpguard.ParseEndpoints([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulatedDaemon{
		listener: listener, clock: clocktesting.NewFakePassiveClock(time.Now()), domains: map[[uuidBytes]byte]*simulatedDomain{},
		calls: map[uint32]int{}, nextID: 1,
	}
	s.actuator = New(Options{Endpoints: endpoints, Clock: s.clock})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // The test has ended.
			}
			serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return s
}

func (s *simulatedDaemon) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if encrypted, ok := conn.(*tls.Conn); ok {
		if encrypted.Handshake() != nil {
			return
		}
		_, _ = conn.Write([]byte{1})
	}
	for {
		var head [headBytes]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		content := make([]byte, binary.BigEndian.Uint32(head[:])-headBytes)
		if _, err := io.ReadFull(conn, content); err != nil {
			return
		}
		frame := s.answer(binary.BigEndian.Uint32(head[12:]), binary.BigEndian.Uint32(head[20:]), &xdrReader{rest: content})
		if frame == nil {
			return
		}
		if _, err := conn.Write(frame); err != nil {
			return
		}
	}
}

func buildFrame(procedure, serial, status uint32, content []byte) []byte {
	var w xdrWriter
	for _, word := range []uint32{uint32(headBytes + len(content)), remoteProgram, remoteVersion, procedure, typeReply, serial, status} {
		w.writeUint(word)
	}
	return append(w.content, content...)
}

// answer returns the frame that answers a call, or nil to close the connection.
func (s *simulatedDaemon) answer(procedure, serial uint32, r *xdrReader) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[procedure]++
	if s.interfere != nil {
		if frame := s.interfere(procedure, serial); frame != nil {
			return frame
		}
	}
	var w xdrWriter
	err := s.do(procedure, r, &w)
	failed, isFailed := errors.AsType[*daemonError](err)
	switch {
	case isFailed:
		w = xdrWriter{}
		w.writeUint(failed.code)
		w.writeUint(10) // The error is from the hypervisor's driver.
		w.writeOptional(failed.message)
		return buildFrame(procedure, serial, statusError, w.content)
	case err != nil:
		return nil
	default:
		return buildFrame(procedure, serial, statusOK, w.content)
	}
}

func (s *simulatedDaemon) do(procedure uint32, r *xdrReader, w *xdrWriter) error {
	switch procedure {
	case procAuthList:
		w.writeUint(1)
		w.writeUint(authNone)
		return nil
	case procConnectOpen:
		return nil
	case procGetHostname:
		w.writeString("host-of-tests")
		return nil
	case procListAllDomains:
		if failed, ok := s.findFault(procedure, ""); ok {
			return failed.err()
		}
		w.writeUint(uint32(len(s.domains)))
		for _, d := range s.domains { // The order of the domains is random.
			w.writeDomain(d.domain)
		}
		return nil
	case procDomainLookup:
		r = &xdrReader{rest: slices.Concat(make([]byte, wordBytes), r.rest, make([]byte, wordBytes))}
	}
	d, ok := s.domains[r.readDomain().uuid]
	if !ok {
		return &daemonError{code: codeNoDomain, message: "Domain not found: no domain with matching uuid"}
	}
	if failed, ok := s.findFault(procedure, d.String()); ok {
		return failed.err()
	}
	return s.doFor(d, procedure, w)
}

func (f fault) err() error {
	if f.isSilent {
		return errSilent
	}
	return &daemonError{code: f.code, message: f.message}
}

// doFor simulates the hypervisor's driver.
func (s *simulatedDaemon) doFor(d *simulatedDomain, procedure uint32, w *xdrWriter) error {
	isActive := d.id != inactiveDomainID
	switch {
	case procedure == procDomainLookup:
		w.writeDomain(d.domain)
	case procedure == procDomainGetState:
		d.look()
		w.writeUint(d.state)
		w.writeUint(d.reason)
	case procedure == procIsPersistent:
		w.writeUint(map[bool]uint32{false: 1}[d.isTransient])
	case procedure == procGetMetadata && d.claim == "":
		return &daemonError{code: codeNoMetadata, message: "metadata not found: Requested metadata element is not present"}
	case procedure == procGetMetadata:
		w.writeString(d.claim)
	case procedure == procDomainCreate && isActive:
		return &daemonError{code: codeOperationInvalid, message: "Requested operation is not valid: domain is already running"}
	case procedure == procDomainCreate:
		s.nextID++
		d.id, d.domainState, d.looksLeft = s.nextID, domainState{stateRunning, 1}, 0
	case !isActive:
		return &daemonError{code: codeOperationInvalid, message: "Requested operation is not valid: domain is not running"}
	case procedure == procDomainShutdown:
		if d.state == stateRunning && !d.isDeaf && d.looksLeft == 0 { // A paused, suspended or crashed guest does not receive the button.
			d.looksLeft, d.turnsOff = turningOffLooks, time.Now().Add(s.latency)
			if s.latency > 0 {
				d.looksLeft = 1
			}
		}
	case procedure == procDomainDestroy:
		d.turnOff()
	case procedure == procDomainWakeUp && d.state != statePMSuspended:
		return &daemonError{code: codeOperationInvalid, message: "Unable to wake up domain which is not in pmsuspended state"}
	case procedure == procDomainWakeUp:
		d.domainState = domainState{stateRunning, 6}
	}
	return nil
}

// look advances the state of a domain that turns off.
func (d *simulatedDomain) look() {
	if d.looksLeft == 0 || d.looksLeft == 1 && time.Now().Before(d.turnsOff) {
		return
	}
	d.looksLeft--
	switch d.looksLeft {
	case 1:
		d.domainState = domainState{stateShuttingDown, 1}
	case 0:
		d.turnOff()
	}
}

func (d *simulatedDomain) turnOff() {
	d.id, d.domainState, d.looksLeft = inactiveDomainID, domainState{stateShutOff, 1}, 0
}

func (s *simulatedDaemon) findFault(procedure uint32, id string) (fault, bool) {
	for _, f := range s.faults {
		if f.procedure == procedure && (len(f.ids) == 0 || slices.Contains(f.ids, id)) {
			return f, true
		}
	}
	return fault{}, false
}

func (s *simulatedDaemon) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *simulatedDaemon) inject(t *testing.T, f fault) {
	t.Helper()
	s.change(func() { s.faults = append(s.faults, f) })
	t.Cleanup(func() { s.change(func() { s.faults = nil }) })
}

// find returns the domain with a UUID.
func (s *simulatedDaemon) find(id string) *simulatedDomain {
	uuid, _ := parseUUID(id)
	return s.domains[uuid]
}

func (s *simulatedDaemon) uri() string { return "qemu+tcp://" + s.listener.Addr().String() + "/system" }

// newCluster returns a cluster with an infraID that begins with the previous cluster's infraID and a dash.
func (s *simulatedDaemon) newCluster() *simulatedCluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedDaemon: s, infraID: "sleepy" + strings.Repeat("-x", s.clusters)}
}

type simulatedCluster struct {
	*simulatedDaemon
	infraID string
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Credentials: map[string][]byte{uriKey: []byte(c.uri())}}
}

// Create names half of the domains after the cluster, and sets metadata with the cluster on the others.
func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for i := range n {
		c.made++
		c.nextID++
		d := &simulatedDomain{domain: domain{name: fmt.Sprintf("%s-worker-%d", c.infraID, i), id: c.nextID}, domainState: domainState{stateRunning, 1}}
		d.uuid = [uuidBytes]byte{0: 0xaa, 14: byte(c.made >> 4), 15: byte(c.made << 4)}
		if i%2 == 1 {
			d.name, d.claim = fmt.Sprintf("machine-%d", c.made), fmt.Sprintf(`<cluster infraID=%q/>`, c.infraID)
		}
		c.domains[d.uuid] = d
		ids = append(ids, d.String())
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.change(func() {
		for _, d := range c.domains {
			if d.looksLeft > 0 {
				d.turnOff()
			}
		}
	})
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]fault{
		actuator.CredentialsInvalid: {code: codeAuthFailed},
		actuator.PermissionDenied:   {code: codeAccessDenied},
		actuator.Unreachable:        {isSilent: true},
		actuator.NoCapacity:         {code: 1, message: "cannot set up guest memory 'pc.ram': Cannot allocate memory"},
		actuator.WrongState:         {code: codeOperationTimeout},
		actuator.NotFound:           {code: codeNoDomain},
		actuator.Other:              {code: 1},
	}[class]
	if !ok {
		return false // libvirt never requests a pause.
	}
	f.procedure = map[actuatortest.Operation]uint32{actuatortest.Observe: procListAllDomains, actuatortest.Stop: procDomainShutdown, actuatortest.Start: procDomainCreate}[op]
	f.ids, f.message = ids, f.message+" "+secretWords
	c.inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// ShutDown implements actuatortest.ShutdownCloud with a crash of the guest, after which its domain still occupies
// memory.
func (c *simulatedCluster) ShutDown(_ *testing.T, id string) {
	c.change(func() { c.find(id).domainState = domainState{stateCrashed, 1} })
}

func TestContract(t *testing.T) {
	daemon := startDaemon(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return daemon.newCluster() })
}

// countCalls returns the number of calls of each procedure since the previous countCalls.
func (s *simulatedDaemon) countCalls() map[uint32]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := s.calls
	s.calls = map[uint32]int{}
	return counted
}

func (c *simulatedCluster) expectStates(t *testing.T, want map[string]actuator.MachineState) {
	t.Helper()
	machines, err := c.actuator.Observe(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]actuator.MachineState{}
	for _, m := range machines {
		got[m.ID] = m.State
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
}
