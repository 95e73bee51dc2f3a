// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

const (
	goodUser     = "torpor"
	goodPassword = "s3cr3t-of-the-tests"
	// visitTimeout is long enough for busy machines.
	visitTimeout = 2 * time.Minute
	// resendSoon keeps tests from waiting long for lost packets.
	resendSoon = 50 * time.Millisecond
	// changeLooks is the number of observations that a change of the power takes. lateLooks is the number of
	// observations that show the previous state.
	changeLooks, lateLooks = 2, 3
	// look is the pseudo-order for faults of a visit that only reads the power.
	look powerOrder = "look"
)

// fault replaces a controller's answer with a Redfish status and message, or with an IPMI completion code.
type fault struct {
	order      powerOrder
	names      []string
	status     int
	retryAfter string
	code       byte
}

// simulatedMachine is a machine with its power. Its system takes a while to shut down, and ignores the button while
// it starts.
type simulatedMachine struct {
	room *simulatedRoom
	name string
	// isCoarse is true if the controller reports only on and off, like IPMI controllers.
	isCoarse bool
	// isDeaf is true if the system ignores the button.
	isDeaf bool
	// isSilent is true if the controller accepts requests but never answers.
	isSilent bool
	state    actuator.MachineState
	left     int
	arrives  time.Time
	before   actuator.MachineState
	late     int
	orders   []powerOrder
}

// simulatedRoom contains machines. Some share a Redfish service, written from DMTF's public schema (DSP0266,
// DSP0268). Each of the others has an IPMI controller.
type simulatedRoom struct {
	actuator *Actuator
	redfish  *httptest.Server

	mu       sync.Mutex
	machines map[string]*simulatedMachine
	faults   []fault
	clusters int
	isLate   bool
	calls    int
	// latency, if set, is how long a change of the power takes. Otherwise a change takes a number of observations.
	latency time.Duration
	// interfere, if set, answers requests to Redfish.
	interfere func(http.ResponseWriter, *http.Request) bool
}

func newRoom(t *testing.T) *simulatedRoom {
	t.Helper()
	r := &simulatedRoom{machines: map[string]*simulatedMachine{}, actuator: New(Options{VisitTimeout: visitTimeout, resend: resendSoon})}
	r.redfish = httptest.NewUnstartedServer(r)
	r.redfish.Config.ErrorLog = log.New(io.Discard, "", 0) // Tests provoke failing handshakes.
	r.redfish.StartTLS()
	t.Cleanup(r.redfish.Close)
	return r
}

func (r *simulatedRoom) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *simulatedRoom) inject(t *testing.T, f fault) {
	t.Helper()
	r.change(func() { r.faults = append(r.faults, f) })
	t.Cleanup(func() { r.change(func() { r.faults = nil }) })
}

// failure returns the fault of an order. Without a fault, the code means success.
func (m *simulatedMachine) failure(order powerOrder) fault {
	m.room.mu.Lock()
	defer m.room.mu.Unlock()
	for _, f := range m.room.faults {
		if (f.order == order || f.order == shutDown && order == cutPower) && (len(f.names) == 0 || slices.Contains(f.names, m.name)) {
			return f
		}
	}
	return fault{}
}

func (m *simulatedMachine) isHanging() bool {
	m.room.mu.Lock()
	defer m.room.mu.Unlock()
	return m.isSilent
}

// look returns the state that the controller shows, and advances the state of the machine.
func (m *simulatedMachine) look() actuator.MachineState {
	m.room.mu.Lock()
	defer m.room.mu.Unlock()
	if !m.arrives.IsZero() && time.Now().After(m.arrives) {
		m.arrive()
	}
	shown := m.state
	switch {
	case m.late > 0:
		m.late--
		shown = m.before
	case m.left > 0 || !m.arrives.IsZero():
		m.left--
	default:
		m.arrive()
	}
	if m.isCoarse && shown != actuator.Stopped {
		return actuator.Running
	}
	return shown
}

func (m *simulatedMachine) arrive() {
	m.left, m.arrives = 0, time.Time{}
	switch m.state {
	case actuator.Starting:
		m.state = actuator.Running
	case actuator.Stopping:
		m.state = actuator.Stopped
	case actuator.Running, actuator.Stopped:
	}
}

// take executes an order, and returns false if the power does not allow it.
func (m *simulatedMachine) take(order powerOrder) bool {
	m.room.mu.Lock()
	defer m.room.mu.Unlock()
	m.orders = append(m.orders, order)
	before := m.state
	switch {
	case order == cutPower:
		m.state, m.left = actuator.Stopped, 0
	case order == shutDown && m.state == actuator.Stopped, order == turnOn && m.state == actuator.Running:
		return false
	case order == shutDown && m.state == actuator.Running && !m.isDeaf:
		m.state, m.left = actuator.Stopping, changeLooks
	case order == turnOn && m.state == actuator.Stopped:
		m.state, m.left = actuator.Starting, changeLooks
	}
	if m.room.latency > 0 {
		m.left, m.arrives = 0, time.Now().Add(m.room.latency)
	}
	if m.room.isLate && before != m.state {
		m.before, m.late = before, lateLooks
	}
	return true
}

// ServeHTTP implements http.Handler. One service contains all systems, like the service of a chassis.
func (r *simulatedRoom) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	rest, isSystem := strings.CutPrefix(request.URL.Path, "/redfish/v1/Systems/")
	name, action, _ := strings.Cut(rest, "/")
	user, password, _ := request.BasicAuth()
	r.mu.Lock()
	m, interfere := r.machines[name], r.interfere
	r.calls++
	call := r.calls
	r.mu.Unlock()
	switch {
	case interfere != nil && interfere(w, request):
	case user != goodUser || password != goodPassword:
		writeRedfishError(w, http.StatusUnauthorized, "The authentication credentials included with this request are invalid: "+password)
	case !isSystem || m == nil:
		writeRedfishError(w, http.StatusNotFound, "The requested resource of type ComputerSystem named "+name+" was not found.")
	case m.isHanging():
		<-request.Context().Done()
	case action == "":
		r.serveSystem(w, m, call)
	default:
		r.serveReset(w, request, m, call)
	}
}

func (*simulatedRoom) serveSystem(w http.ResponseWriter, m *simulatedMachine, call int) {
	if failed := m.failure(look); failed.status != 0 {
		failed.write(w, call)
		return
	}
	power := map[actuator.MachineState]string{
		actuator.Running: "On", actuator.Stopped: "Off", actuator.Starting: "PoweringOn", actuator.Stopping: "PoweringOff",
	}[m.look()]
	writeJSON(w, http.StatusOK, map[string]any{
		"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "@odata.id": "/redfish/v1/Systems/" + m.name, "Id": m.name, "PowerState": power,
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            "https://evil.example.com/redfish/v1/Systems/" + m.name + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "GracefulShutdown"},
		}},
	})
}

func (*simulatedRoom) serveReset(w http.ResponseWriter, request *http.Request, m *simulatedMachine, call int) {
	var asked struct{ ResetType string }
	_ = json.NewDecoder(request.Body).Decode(&asked)
	order := map[string]powerOrder{"On": turnOn, "GracefulShutdown": shutDown, "ForceOff": cutPower}[asked.ResetType]
	failed := m.failure(order)
	switch {
	case request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/Actions/ComputerSystem.Reset") || order == noOrder:
		writeRedfishError(w, http.StatusBadRequest, "The action is not supported by the resource.")
	case failed.status != 0:
		failed.write(w, call)
	case !m.take(order):
		writeRedfishError(w, http.StatusConflict, "The request failed because the power is as it is.")
	default:
		w.Header().Set("Location", "/redfish/v1/TaskService/Tasks/1")
		writeJSON(w, http.StatusAccepted, map[string]string{"@odata.type": "#Task.v1_7_0.Task", "TaskState": "New"})
	}
}

// write sends an answer with all texts that must not be shown.
func (f fault) write(w http.ResponseWriter, call int) {
	if f.retryAfter != "" {
		w.Header().Set("Retry-After", f.retryAfter)
	}
	writeRedfishError(w, f.status, fmt.Sprintf("No way, %s, call %d.", goodPassword, call))
}

func writeRedfishError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"code": "Base.1.18.GeneralError", "message": "See @Message.ExtendedInfo.", "@Message.ExtendedInfo": []any{map[string]string{"Message": message}},
	}})
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// simulatedCluster is a cluster in a room. All its machines use one protocol.
type simulatedCluster struct {
	*simulatedRoom
	t      *testing.T
	prefix string
	isIPMI bool
	listed []actuator.ListedMachine
}

func (r *simulatedRoom) newCluster(t *testing.T, isIPMI bool) *simulatedCluster {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clusters++
	return &simulatedCluster{simulatedRoom: r, t: t, isIPMI: isIPMI, prefix: fmt.Sprintf("m%d", r.clusters)}
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.prefix, Machines: c.listed, Credentials: c.credentials()}
}

func (r *simulatedRoom) credentials() map[string][]byte {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.redfish.Certificate().Raw})
	return map[string][]byte{usernameKey: []byte(goodUser), passwordKey: []byte(goodPassword), authorityKey: authority}
}

// Create creates machines. Over Redfish, the controller of every third machine reports only on and off.
func (c *simulatedCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		m := &simulatedMachine{room: c.simulatedRoom, name: fmt.Sprintf("%s-worker-%02d", c.prefix, len(c.listed)), state: actuator.Running, isCoarse: c.isIPMI || i%3 == 2}
		c.change(func() { c.machines[m.name] = m })
		address := "redfish+https://" + c.redfish.Listener.Addr().String() + "/redfish/v1/Systems/" + m.name
		if c.isIPMI {
			address = "ipmi://" + startIPMI(c.t, m, cipherSuites()[i%2]).conn.LocalAddr().String()
		}
		c.listed = append(c.listed, actuator.ListedMachine{Name: m.name, Address: address})
		ids = append(ids, m.name)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.change(func() {
		for _, m := range c.machines {
			m.late = 0
			m.arrive()
		}
	})
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]fault{
		actuator.CredentialsInvalid: {status: http.StatusUnauthorized},
		actuator.PermissionDenied:   {status: http.StatusForbidden, code: codeDenied},
		actuator.Unreachable:        {status: http.StatusInternalServerError, code: codeUnspecified},
		actuator.Throttled:          {status: http.StatusServiceUnavailable, retryAfter: "30", code: codeBusy},
		actuator.WrongState:         {status: http.StatusConflict, code: codeNotNow},
		actuator.NotFound:           {status: http.StatusNotFound},
		actuator.Other:              {status: http.StatusBadRequest, code: 0xcc},
	}[class]
	if !ok || c.isIPMI && f.code == codeDone {
		return false // Switching on needs no capacity, and IPMI refuses only logins.
	}
	if op == actuatortest.Start {
		// A running machine is not ordered to start.
		c.change(func() {
			for _, m := range c.machines {
				m.state = actuator.Stopped
			}
		})
	}
	f.order = map[actuatortest.Operation]powerOrder{actuatortest.Observe: look, actuatortest.Stop: shutDown, actuatortest.Start: turnOn}[op]
	f.names = ids
	c.inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// Delay implements actuatortest.LateCloud.
func (c *simulatedCluster) Delay(t *testing.T) {
	t.Helper()
	c.change(func() { c.isLate = true })
	t.Cleanup(func() { c.change(func() { c.isLate = false }) })
}

func TestContract(t *testing.T) {
	for name, isIPMI := range map[string]bool{"over Redfish": false, "over IPMI": true} {
		t.Run(name, func(t *testing.T) {
			room := newRoom(t)
			actuatortest.Run(t, func(t *testing.T) actuatortest.Cloud { return room.newCluster(t, isIPMI) })
		})
	}
}
