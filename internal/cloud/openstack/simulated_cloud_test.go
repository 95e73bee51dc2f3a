// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	goodProject  = "11111111222233334444555555555555"
	goodPassword = "s3cr3t-of-torpor-tests"
	// serverPageSize is the maximum size of a page, regardless of the request. Twelve servers need more than one
	// page.
	serverPageSize = 5
	// callTimeout is long, because a real nova responds late on a busy machine.
	callTimeout = 2 * time.Minute
	// administrator is the header of requests to nova that bypass faults and logins.
	administrator = "X-Torpor-Test-Administrator"
	// transitionLooks is the number of listings that a task takes. lateLooks is the number of listings that show the
	// previous state.
	transitionLooks, lateLooks = 2, 3
	// shelve is an action of the API.
	shelve = "shelve"
)

// simulatedOpenStack is an identity and a compute service behind HTTP, written from the API's public description
// (https://docs.openstack.org/api-ref/compute/). Like the real one, it refuses to stop stopped servers and to start
// running ones.
type simulatedOpenStack struct {
	actuatortest.Faults

	server   *httptest.Server
	actuator *Actuator

	servers map[string]*simulatedServer
	// tokens counts the issued tokens. expired is how many of them, beginning with the oldest, are no longer valid.
	tokens, expired int
	isLate          bool
	clusters        int
	made            int
	// latency, if set, is how long a task takes. Otherwise a task takes a number of listings.
	latency time.Duration
	// If hasNoRoom is true, an order to unshelve is accepted without effect. If quotaIsUsed is true, such an order is
	// refused.
	hasNoRoom, quotaIsUsed bool
	// isRevoked is true if the password and its tokens are no longer accepted.
	isRevoked bool
	// nova, if set, contains the servers.
	nova http.Handler
	// interfere, if set, answers requests to the compute service.
	interfere func(http.ResponseWriter, *http.Request) bool
}

type simulatedServer struct {
	ID, Name, infraID string
	// status and task are the names in the API. A task lasts for left listings, or until arrives.
	status, task string
	left         int
	arrives      time.Time
	isLocked     bool
	// senlin is the Senlin cluster that the server is a node of.
	senlin string
	// before is the status that is shown while observations are late.
	before string
	late   int
}

func startOpenStack(t *testing.T) *simulatedOpenStack {
	t.Helper()
	s := &simulatedOpenStack{servers: map[string]*simulatedServer{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	endpoints, err := httpguard.ParseEndpoints([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	s.actuator = New(Options{Endpoints: endpoints, Attempts: 2, CallTimeout: callTimeout})
	return s
}

// ServeHTTP implements http.Handler.
func (s *simulatedOpenStack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/identity/v3/auth/tokens" {
		s.serveLogin(w, r)
		return
	}
	if s.nova != nil && r.Header.Get(administrator) != "" {
		s.nova.ServeHTTP(w, r)
		return
	}
	operation, id := parseOperation(r)
	if s.answerItself(w, r, operation, id) {
		return
	}
	s.nova.ServeHTTP(w, r)
}

// answerItself answers a request unless nova must answer it.
func (s *simulatedOpenStack) answerItself(w http.ResponseWriter, r *http.Request, operation, id string) bool {
	s.Lock()
	defer s.Unlock()
	count := s.CountCall(operation)
	failed, isFailed := s.FindFault(operation, id)
	switch {
	case s.isRevoked || !s.knowsToken(r.Header.Get("X-Auth-Token")):
		writeError(w, http.StatusUnauthorized, "unauthorized", "The request you have made requires authentication.")
	case s.interfere != nil && s.interfere(w, r):
	case isFailed:
		if failed.RetryAfter != "" {
			w.Header().Set("Retry-After", failed.RetryAfter)
		}
		// The message contains all texts that must not be shown.
		writeError(w, failed.Status, "fault", fmt.Sprintf("%s %s (req-%08d-0000-0000-0000-000000000000)", failed.Message, goodPassword, count))
	case s.nova != nil:
		return false
	case operation == list:
		s.serveList(w, r)
	case s.servers[id] == nil:
		writeError(w, http.StatusNotFound, "itemNotFound", "Instance "+id+" could not be found.")
	case r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, map[string]any{"server": s.servers[id].show()})
	default:
		s.serveAction(w, operation, s.servers[id])
	}
	return true
}

const tokenPrefix = "token-that-must-not-be-shown-"

// knowsToken reports whether a token is valid. A login does not invalidate earlier tokens, as in Keystone.
func (s *simulatedOpenStack) knowsToken(token string) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(token, tokenPrefix))
	return err == nil && number > s.expired && number <= s.tokens
}

// expireTokens invalidates all issued tokens.
func (s *simulatedOpenStack) expireTokens() { s.Change(func() { s.expired = s.tokens }) }

func (s *simulatedOpenStack) serveLogin(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string } `json:"user"`
				} `json:"password"`
			} `json:"identity"`
			Scope struct {
				Project struct{ ID string } `json:"project"`
			} `json:"scope"`
		} `json:"auth"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	s.Lock()
	defer s.Unlock()
	s.CountCall("login")
	user := asked.Auth.Identity.Password.User
	if user.Name != "torpor" || user.Password != goodPassword || asked.Auth.Scope.Project.ID != goodProject || s.isRevoked {
		writeError(w, http.StatusUnauthorized, "error", "The request you have made requires authentication for "+user.Password+".")
		return
	}
	s.tokens++
	w.Header().Set("X-Subject-Token", tokenPrefix+strconv.Itoa(s.tokens))
	writeJSON(w, http.StatusCreated, map[string]any{"token": map[string]any{
		"project": map[string]string{"id": goodProject, "name": "fleet"},
		"catalog": []any{map[string]any{"type": "compute", "name": "nova", "endpoints": []any{
			map[string]string{"interface": "public", "region": "other", "region_id": "other", "url": "http://127.0.0.1:1/v2.1"},
			map[string]string{"interface": "public", "region": "here", "region_id": "here", "url": s.server.URL + "/compute/v2.1"},
		}}},
	}})
}

// parseOperation returns the operation of a request, and the ID of the server in it.
func parseOperation(r *http.Request) (operation, id string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[len(parts)-1] == "detail":
		return list, ""
	case r.Method == http.MethodGet:
		return "get", parts[len(parts)-1]
	}
	id = parts[len(parts)-2]
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	var body map[string]any
	_ = json.Unmarshal(text, &body)
	for action := range body {
		return cmp.Or(map[string]string{"os-stop": stop, "os-start": start}[action], action), id
	}
	return "", id
}

func (s *simulatedOpenStack) serveList(w http.ResponseWriter, r *http.Request) {
	ids := slices.Sorted(maps.Keys(s.servers))
	if marker := r.URL.Query().Get("marker"); marker != "" {
		ids = ids[slices.Index(ids, marker)+1:]
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	page := ids[:min(limit, serverPageSize, len(ids))]
	all := []any{}
	for _, id := range page {
		all = append(all, s.servers[id].look())
	}
	answer := map[string]any{"servers": all}
	if len(page) < len(ids) {
		answer["servers_links"] = []any{map[string]string{"rel": "next", "href": s.server.URL + "/compute/v2.1/servers/detail?limit=" + strconv.Itoa(limit) + "&marker=" + page[len(page)-1]}}
	}
	writeJSON(w, http.StatusOK, answer)
}

// look returns the server as a listing shows it, and then advances its status.
func (m *simulatedServer) look() map[string]any {
	if !m.arrives.IsZero() && time.Now().After(m.arrives) {
		m.arrive()
	}
	shown := m.show()
	switch {
	case m.late > 0:
		m.late--
		shown["status"], shown["OS-EXT-STS:task_state"] = m.before, nil
	case m.left > 0 || !m.arrives.IsZero():
		m.left--
	default:
		m.arrive()
	}
	return shown
}

func (m *simulatedServer) show() map[string]any {
	var task any
	if m.task != "" {
		task = m.task
	}
	metadata := map[string]string{clusterProperty: m.infraID}
	if m.senlin != "" {
		metadata["cluster_id"], metadata["cluster_node_id"], metadata["cluster_node_index"] = m.senlin, "node-of-"+m.ID, "1"
	}
	return map[string]any{
		"id": m.ID, "name": m.Name, "status": m.status, "OS-EXT-STS:task_state": task, "OS-EXT-STS:power_state": 1,
		"metadata":  metadata,
		"addresses": map[string]any{"nodes": []any{map[string]any{"addr": "10.0.0.7", "version": 4}}},
	}
}

// arrive completes a task. A task to shelve or to unshelve is followed by another task.
func (m *simulatedServer) arrive() {
	end := map[string]struct{ status, task string }{
		"powering-on": {status: "ACTIVE"}, "resuming": {status: "ACTIVE"}, "powering-off": {status: "SHUTOFF"},
		"shelving": {"SHELVED", "shelving_offloading"}, "shelving_offloading": {status: "SHELVED_OFFLOADED"},
		"unshelving": {m.status, "spawning"}, "spawning": {status: "ACTIVE"},
	}[m.task]
	m.status, m.task, m.left = cmp.Or(end.status, m.status), end.task, 0
	m.arrives = time.Time{}
}

func (s *simulatedOpenStack) serveAction(w http.ResponseWriter, action string, m *simulatedServer) {
	row, ok := map[string]struct {
		from []string
		task string
	}{
		stop:       {[]string{"ACTIVE", "ERROR"}, "powering-off"},
		start:      {[]string{"SHUTOFF"}, "powering-on"},
		"unshelve": {[]string{"SHELVED", "SHELVED_OFFLOADED"}, "unshelving"},
		shelve:     {[]string{"ACTIVE", "SHUTOFF", "PAUSED", "SUSPENDED"}, "shelving"},
		"resume":   {[]string{"SUSPENDED"}, "resuming"},
	}[action]
	switch {
	case !ok:
		writeError(w, http.StatusBadRequest, "badRequest", "There is no such action.")
	case m.isLocked:
		writeError(w, http.StatusConflict, "conflictingRequest", "Instance "+m.ID+" is locked")
	case m.task != "" || !slices.Contains(row.from, m.status):
		writeError(w, http.StatusConflict, "conflictingRequest", "Cannot do that while it is in "+m.status+" "+m.task)
	case action == "unshelve" && s.quotaIsUsed:
		writeError(w, http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances")
	case action == "unshelve" && s.hasNoRoom:
		w.WriteHeader(http.StatusAccepted) // The task is complete before the next observation.
	default:
		if s.isLate {
			m.before, m.late = m.status, lateLooks
		}
		m.task, m.left = row.task, transitionLooks
		if s.latency > 0 {
			m.left, m.arrives = 0, time.Now().Add(s.latency)
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

func writeError(w http.ResponseWriter, status int, kind, message string) {
	writeJSON(w, status, map[string]any{kind: map[string]any{"code": status, "message": message}})
}

// newCluster returns a cluster with an infraID that begins with the previous cluster's infraID.
func (s *simulatedOpenStack) newCluster() *simulatedCluster {
	s.Lock()
	defer s.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedOpenStack: s, infraID: "sleepy" + strings.Repeat("-x", s.clusters)}
}

type simulatedCluster struct {
	*simulatedOpenStack
	infraID string
	// isShelved is true if the cluster's servers should be shelved.
	isShelved bool
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Cloud: "fleet", FreesCapacity: c.isShelved, Credentials: c.credentials("")}
}

// credentials returns a Secret with additional settings of the cloud.
func (s *simulatedOpenStack) credentials(more string) map[string][]byte {
	return map[string][]byte{cloudsKey: fmt.Appendf(nil, `
clouds:
  fleet:
    auth:
      auth_url: %s/identity/v3
      username: torpor
      user_domain_name: Default
      password: %s
      project_id: "%s"
    region_name: here
%s`, s.server.URL, goodPassword, goodProject, more)}
}

func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.Lock()
	defer c.Unlock()
	var ids []string
	for range n {
		c.made++
		id := fmt.Sprintf("aaaaaaaa-bbbb-cccc-dddd-%012d", c.made*11)
		c.servers[id] = &simulatedServer{ID: id, Name: c.infraID + "-worker-" + strconv.Itoa(c.made), infraID: c.infraID, status: "ACTIVE"}
		ids = append(ids, id)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.Change(func() {
		for _, m := range c.servers {
			for m.late = 0; m.task != ""; {
				m.arrive()
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
	if !ok {
		return false // A stopped server keeps its capacity, and a listing does not fail for a running server.
	}
	f.Operation = map[actuatortest.Operation]string{actuatortest.Observe: list, actuatortest.Stop: stop, actuatortest.Start: start}[op]
	if c.isShelved && op == actuatortest.Stop {
		f.Operation = shelve
	}
	f.IDs, f.Message = ids, "No way."
	c.Inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// JoinGroup implements actuatortest.GroupCloud.
func (c *simulatedCluster) JoinGroup(_ *testing.T, id, group string) {
	c.Change(func() { c.servers[id].senlin = group })
}

// Delay implements actuatortest.LateCloud.
func (c *simulatedCluster) Delay(t *testing.T) {
	t.Helper()
	c.Change(func() { c.isLate = true })
	t.Cleanup(func() { c.Change(func() { c.isLate = false }) })
}

func TestContract(t *testing.T) {
	cloud := startOpenStack(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return cloud.newCluster() })
}

// shelvedCluster is a cluster with shelved servers. A server that is only off occupies its host.
type shelvedCluster struct{ *simulatedCluster }

// ShutDown implements actuatortest.ShutdownCloud.
func (c shelvedCluster) ShutDown(_ *testing.T, id string) {
	c.Change(func() { c.servers[id].status = "SHUTOFF" })
}

func (s *simulatedOpenStack) newShelvedCluster() shelvedCluster {
	c := s.newCluster()
	c.isShelved = true
	return shelvedCluster{c}
}

func TestContractOfClustersThatAreShelved(t *testing.T) {
	cloud := startOpenStack(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return cloud.newShelvedCluster() })
}
