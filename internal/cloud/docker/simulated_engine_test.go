// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	kindLabel = "io.x-k8s.kind.cluster"
	// callTimeout is long enough for busy machines.
	callTimeout = 2 * time.Minute
	// stopPatience elapses before a stubborn container stops.
	stopPatience = 500 * time.Millisecond
	// endLooks is the number of listings in which a stubborn container still runs after the order to stop. lateLooks
	// is the number of listings that show the previous state.
	endLooks, lateLooks = 2, 3
	// secretWord is part of each message of the engine, and must not be shown.
	secretWord = "words-that-must-not-be-shown"
)

// authority signs the certificates of an engine and of its clients.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.PEM, _ = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "engines"}, NotAfter: farFuture(), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign returns a certificate and its key in PEM. The first certificate is the authority's own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (certificate, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(1), time.Unix(0, 0)
	if a.certificate == nil {
		a.certificate, a.key = template, own
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if template == a.certificate {
		if a.certificate, err = x509.ParseCertificate(raw); err != nil {
			t.Fatal(err)
		}
	}
	rawKey, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})
}

// farFuture is a time at which no certificate of a test that should be valid has expired.
func farFuture() time.Time { return time.Unix(1<<33, 0) }

func (a *authority) signServer(t *testing.T, notAfter time.Time) (certificate, key []byte) {
	t.Helper()
	return a.sign(t, &x509.Certificate{NotAfter: notAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// newCredentials returns a Secret of a client that the engine accepts.
func (a *authority) newCredentials(t *testing.T) map[string][]byte {
	t.Helper()
	certificate, key := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "torpor"}, NotAfter: farFuture(), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return map[string][]byte{certificateKey: certificate, privateKeyKey: key, authorityKey: a.PEM}
}

// simulatedEngine is a container engine behind HTTP, written from the API's public description
// (https://docs.docker.com/reference/api/engine/). Every third container is stubborn: it stops slowly, and the engine
// answers the order only after that.
type simulatedEngine struct {
	actuatortest.Faults

	server      *httptest.Server
	actuator    *Actuator
	credentials map[string][]byte
	// isPodman is true if paused containers cannot be stopped, and stopping containers have a separate state, as in
	// Podman.
	isPodman bool
	// docker and proxy, if set, connect to a real engine with the containers.
	docker *http.Client
	proxy  http.Handler

	containers map[string]*simulatedContainer
	clusters   int
	made       int
	isLate     bool
	// interfere, if set, answers requests.
	interfere func(http.ResponseWriter, *http.Request) bool
}

type simulatedContainer struct {
	id, name, infraID, state string
	isStubborn               bool
	// left is the number of listings in which a container still runs after the order to stop.
	left int
	// before is the state that is shown while observations are late.
	before string
	late   int
	// service is the Swarm service that the container is a task of.
	service string
}

func startEngine(t *testing.T) *simulatedEngine {
	t.Helper()
	return startEngineUntil(t, farFuture())
}

// startEngineUntil starts an engine whose certificate expires at notAfter.
func startEngineUntil(t *testing.T, notAfter time.Time) *simulatedEngine {
	t.Helper()
	s := &simulatedEngine{containers: map[string]*simulatedContainer{}}
	s.server = httptest.NewUnstartedServer(s)
	ca := newAuthority(t)
	certificate, key := ca.signServer(t, notAfter)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	// In TLS 1.3 a client may send its order before a busy engine has completed the handshake. If the connection is
	// cut at that time, the order never arrives. Another test covers lost orders.
	s.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
	}
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // Tests provoke failing handshakes.
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	s.credentials = ca.newCredentials(t)
	s.actuator = New(Options{CallTimeout: callTimeout, StopPatience: stopPatience, Attempts: 2})
	return s
}

// ServeHTTP implements http.Handler.
func (s *simulatedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	end := s.answer(w, r)
	s.Unlock()
	if end != nil {
		end()
	}
}

// answer returns the part of the handler that runs without the lock.
func (s *simulatedEngine) answer(w http.ResponseWriter, r *http.Request) (end func()) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	operation, id := list, ""
	if len(parts) == 3 {
		id, operation = parts[1], map[string]string{"stop": stop, "start": start, "json": "inspect", "unpause": "unpause"}[parts[2]]
	}
	m, count := s.containers[id], s.CountCall(operation)
	failed, isFailed := s.FindFault(operation, id)
	switch {
	case s.interfere != nil && s.interfere(w, r):
	case isFailed:
		if failed.RetryAfter != "" {
			w.Header().Set("Retry-After", failed.RetryAfter)
		}
		writeFailure(w, failed.Status, fmt.Sprintf("%s %s %d", failed.Message, secretWord, count))
	case s.proxy != nil:
		return func() { s.proxy.ServeHTTP(w, r) }
	case operation == list:
		s.serveList(w)
	case m == nil:
		writeFailure(w, http.StatusNotFound, "No such container: "+id)
	case operation == "inspect":
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": id, "State": map[string]string{"Status": m.state}})
	default:
		if s.serveOrder(w, operation, m) {
			return func() { <-r.Context().Done() } // A real engine answers once the container is off.
		}
	}
	return nil
}

// serveOrder reports whether the answer is withheld because the container stops slowly.
func (s *simulatedEngine) serveOrder(w http.ResponseWriter, operation string, m *simulatedContainer) bool {
	if s.isLate {
		m.before, m.late = m.shown(s.isPodman), lateLooks
	}
	switch {
	case operation == stop && m.state == "paused" && s.isPodman:
		writeFailure(w, http.StatusInternalServerError, "can only stop created or running containers: container state improper")
	case operation == stop && (m.state == "exited" || m.state == "created"), operation == start && m.state == "running":
		w.WriteHeader(http.StatusNotModified)
	case operation == stop && m.isStubborn:
		if m.left == 0 {
			m.state, m.left = "running", endLooks
		}
		return true
	case operation == stop:
		m.state = "exited"
		w.WriteHeader(http.StatusNoContent)
	case operation == start && m.state == "paused":
		writeFailure(w, http.StatusConflict, "cannot start a paused container, try unpause instead")
	case operation == "unpause" && m.state != "paused":
		writeFailure(w, http.StatusConflict, "Container is not paused")
	default:
		m.state, m.left = "running", 0
		w.WriteHeader(http.StatusNoContent)
	}
	return false
}

func (m *simulatedContainer) labels() map[string]string {
	if m.service == "" {
		return map[string]string{kindLabel: m.infraID}
	}
	return map[string]string{kindLabel: m.infraID, "com.docker.swarm.service.name": m.service}
}

// shown returns the state in a listing.
func (m *simulatedContainer) shown(isPodman bool) string {
	if m.left > 0 && isPodman {
		return "stopping"
	}
	return m.state
}

func (s *simulatedEngine) serveList(w http.ResponseWriter) {
	all := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		m := s.containers[id]
		state := m.shown(s.isPodman)
		switch {
		case m.late > 0:
			m.late--
			state = m.before
		case m.left > 1:
			m.left--
		case m.left == 1:
			m.state, m.left = "exited", 0
		}
		all = append(all, map[string]any{
			"Id": id, "Names": []string{"/" + m.name}, "State": state, "Labels": m.labels(),
			"NetworkSettings": map[string]any{"Networks": map[string]any{"kind": map[string]string{"IPAddress": "10.0.0.7"}, "none": nil}},
		})
	}
	_ = json.NewEncoder(w).Encode(all)
}

func writeFailure(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

// newCluster returns a cluster with a name that begins with the previous cluster's name.
func (s *simulatedEngine) newCluster() *simulatedCluster {
	s.Lock()
	defer s.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedEngine: s, infraID: "sleepy" + strings.Repeat("-x", s.clusters)}
}

type simulatedCluster struct {
	*simulatedEngine
	infraID string
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: kindLabel + "=" + c.infraID, Cloud: "tcp://" + c.server.Listener.Addr().String(), Credentials: c.credentials}
}

func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.Lock()
	defer c.Unlock()
	var ids []string
	for range n {
		c.made++
		id := fmt.Sprintf("%064d", c.made*11)
		c.containers[id] = &simulatedContainer{id: id, name: fmt.Sprintf("%s-worker%d", c.infraID, c.made), infraID: c.infraID, state: "running", isStubborn: c.made%3 == 0}
		ids = append(ids, id)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.Change(func() {
		for _, m := range c.containers {
			m.late = 0
			if m.left > 0 {
				m.state, m.left = "exited", 0
			}
		}
	})
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]actuatortest.Fault{
		actuator.CredentialsInvalid: {Status: http.StatusUnauthorized},
		actuator.PermissionDenied:   {Status: http.StatusForbidden},
		actuator.Unreachable:        {Status: http.StatusServiceUnavailable},
		actuator.Throttled:          {Status: http.StatusTooManyRequests, RetryAfter: "30"},
		actuator.NotFound:           {Status: http.StatusNotFound},
		actuator.Other:              {Status: http.StatusBadRequest},
	}[class]
	if class == actuator.NoCapacity && op == actuatortest.Start {
		f, ok = actuatortest.Fault{Status: http.StatusInternalServerError, Message: "driver failed: Bind for 0.0.0.0:6443 failed: port is already allocated"}, true
	}
	if !ok {
		return false
	}
	f.Operation = map[actuatortest.Operation]string{actuatortest.Observe: list, actuatortest.Stop: stop, actuatortest.Start: start}[op]
	f.IDs = ids
	c.Inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// ShutDown implements actuatortest.ShutdownCloud. A paused container occupies memory.
func (c *simulatedCluster) ShutDown(_ *testing.T, id string) {
	c.Change(func() { c.containers[id].state = "paused" })
}

// serviceCluster is a cluster whose containers can be made tasks of Swarm services. A real engine sets the label of a
// container only when it creates the container.
type serviceCluster struct{ *simulatedCluster }

// JoinGroup implements actuatortest.GroupCloud.
func (c serviceCluster) JoinGroup(_ *testing.T, id, group string) {
	c.Change(func() { c.containers[id].service = group })
}

// Delay implements actuatortest.LateCloud.
func (c *simulatedCluster) Delay(t *testing.T) {
	t.Helper()
	c.Change(func() { c.isLate = true })
	t.Cleanup(func() { c.Change(func() { c.isLate = false }) })
}

func TestContract(t *testing.T) {
	for name, isPodman := range map[string]bool{"an engine like Docker's": false, "an engine like Podman's": true} {
		t.Run(name, func(t *testing.T) {
			engine := startEngine(t)
			engine.isPodman = isPodman
			actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return serviceCluster{engine.newCluster()} })
		})
	}
}

// allowLoopback lists the engine as an endpoint, so its messages are shown.
func (s *simulatedEngine) allowLoopback(t *testing.T) {
	t.Helper()
	endpoints, err := httpguard.ParseEndpoints([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	s.actuator = New(Options{Endpoints: endpoints, CallTimeout: callTimeout, StopPatience: stopPatience, Attempts: 2})
}
