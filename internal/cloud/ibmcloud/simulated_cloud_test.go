// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

const (
	goodAPIKey  = "s3cr3t-api-key-of-torpor-tests"
	goodRegion  = "eu-de"
	goodAccount = "a/0123456789abcdef"
	// serverPageSize is the maximum size of a page, regardless of the request. Twelve instances need more than one
	// page.
	serverPageSize = 5
	// transitionLooks is the number of listings that a change takes. lateLooks is the number of listings that show
	// the previous state.
	transitionLooks, lateLooks = 2, 3
	instanceRead               = "read instance"
)

// simulatedIBMCloud is IBM Cloud's token service and its API of virtual private clouds behind HTTP, written from their
// public description (https://cloud.ibm.com/apidocs/vpc). It refuses to stop stopped instances, accepts a start before
// it checks the capacity, and shows changes late. An instance group replaces each member that stops.
type simulatedIBMCloud struct {
	actuatortest.Faults

	server   *httptest.Server
	actuator *Actuator

	instances map[string]*simulatedInstance
	tokens    int
	isLate    bool
	clusters  int
	made      int
	// isRevoked is true if the API key and its tokens are no longer accepted.
	isRevoked bool
	// latency, if set, is how long a change takes. Otherwise a change takes a number of listings.
	latency time.Duration
	// startLooks is the number of observations of an instance until a start without capacity has failed.
	startLooks int
	// interfere, if set, answers requests to the API.
	interfere func(http.ResponseWriter, *http.Request) bool
}

type simulatedInstance struct {
	id, name, vpc, group string
	// status is the name in the API. A transitional status lasts for left listings, or until arrives.
	status  string
	left    int
	arrives time.Time
	// reason explains why the instance did not start, or will fail to start after some observations.
	reason string
	fails  int
	// before is the status that is shown while observations are late.
	before string
	late   int
	// membership is the instance_group_membership of a member of an instance group, as JSON.
	membership map[string]any
}

func startIBMCloud(t *testing.T) *simulatedIBMCloud {
	t.Helper()
	s := &simulatedIBMCloud{instances: map[string]*simulatedInstance{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	s.actuator = New(cloudrest.CloudOptions{HTTPClient: cloudrest.BoundClient(s), Attempts: 2, CallTimeout: 2 * time.Minute})
	return s
}

// RoundTrip implements http.RoundTripper. Requests for any host go to the simulated cloud, which receives the host's
// name.
func (s *simulatedIBMCloud) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.Host, sent.URL.Scheme, sent.URL.Host = r.URL.Scheme+"."+r.URL.Host, "http", strings.TrimPrefix(s.server.URL, "http://")
	return http.DefaultTransport.RoundTrip(sent)
}

// ServeHTTP implements http.Handler.
func (s *simulatedIBMCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	switch r.Host {
	case "https.iam.cloud.ibm.com":
		s.serveLogin(w, r)
	case "https." + goodRegion + ".iaas.cloud.ibm.com":
		s.serveInstances(w, r)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func (s *simulatedIBMCloud) serveLogin(w http.ResponseWriter, r *http.Request) {
	count := s.CountCall(login)
	failed, isFailed := s.FindFault(login, "")
	switch {
	case isFailed:
		w.Header().Set("Retry-After", failed.RetryAfter)
		writeJSON(w, failed.Status, map[string]any{})
	case r.URL.Path != "/identity/token" || r.FormValue("grant_type") != apiKeyGrant || r.FormValue("apikey") != goodAPIKey || s.isRevoked:
		writeJSON(w, http.StatusBadRequest, map[string]any{
			"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found: " + r.FormValue("apikey"),
			"context": map[string]any{"requestId": strconv.Itoa(count)},
		})
	default:
		s.tokens++
		writeJSON(w, http.StatusOK, map[string]any{"access_token": s.token(), "token_type": "Bearer", "expires_in": 3600})
	}
}

// token returns the valid token. Each login replaces it.
func (s *simulatedIBMCloud) token() string {
	return fmt.Sprintf("token-that-must-not-be-shown-%d", s.tokens)
}

func (s *simulatedIBMCloud) serveInstances(w http.ResponseWriter, r *http.Request) {
	operation, id := parseRequest(r)
	count := s.CountCall(operation)
	failed, isFailed := s.FindFault(operation, id)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token() || s.isRevoked:
		writeErrors(w, http.StatusUnauthorized, "not_authenticated", "The token is not valid.")
	case s.interfere != nil && s.interfere(w, r):
	case r.URL.Query().Get("version") == "" || r.URL.Query().Get("generation") != "2":
		writeErrors(w, http.StatusBadRequest, "missing_version", "The version query parameter is required.")
	case isFailed && !failed.IsLater:
		if failed.RetryAfter != "" {
			w.Header().Set("Retry-After", failed.RetryAfter)
		}
		// The message contains all texts that must not be shown.
		writeErrors(w, failed.Status, failed.Code, fmt.Sprintf("No way at 2026-11-24T10:00:%02dZ with %s", count%60, goodAPIKey))
	case operation == list:
		s.serveList(w, r)
	case s.instances[id] == nil:
		writeErrors(w, http.StatusNotFound, "not_found", "Instance not found")
	case operation == instanceRead:
		s.instances[id].settle(false)
		writeJSON(w, http.StatusOK, s.instances[id].show())
		s.replaceStopped(s.instances[id])
	default:
		s.serveAction(w, operation, s.instances[id])
	}
}

// parseRequest returns the operation of a request, and the ID of the instance in it.
func parseRequest(r *http.Request) (operation, id string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch len(parts) {
	case 1:
		return list, ""
	case 2:
		return instanceRead, parts[1]
	}
	var asked instanceAction
	_ = json.NewDecoder(r.Body).Decode(&asked)
	return asked.Type + " instances", parts[1]
}

func (s *simulatedIBMCloud) serveList(w http.ResponseWriter, r *http.Request) {
	ids := slices.Sorted(maps.Keys(s.instances))
	if start := r.URL.Query().Get("start"); start != "" {
		ids = ids[slices.Index(ids, start)+1:]
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	page := ids[:min(limit, serverPageSize, len(ids))]
	all := []any{}
	for _, id := range page {
		all = append(all, s.instances[id].look())
		s.replaceStopped(s.instances[id])
	}
	answer := map[string]any{"instances": all, "limit": limit, "total_count": len(s.instances)}
	if len(page) < len(ids) {
		// The token must not be sent to the host in the answer.
		answer["next"] = map[string]string{"href": "https://evil.example.com/v1/instances?limit=5&start=" + page[len(page)-1]}
	}
	writeJSON(w, http.StatusOK, answer)
}

// look returns the instance as a listing shows it, and then advances its status.
func (m *simulatedInstance) look() map[string]any {
	if !m.arrives.IsZero() {
		m.settle(false)
	}
	shown := m.show()
	if m.late > 0 {
		m.late--
		shown["status"] = m.before
		return shown
	}
	m.left--
	m.settle(m.left < 0)
	return shown
}

func (m *simulatedInstance) show() map[string]any {
	reasons := []any{}
	if m.reason != "" && m.status == "stopped" {
		reasons = append(reasons, map[string]string{"code": m.reason, "message": "There is no room in this zone."})
	}
	shown := map[string]any{
		"id": m.id, "name": m.name, "status": m.status, "status_reasons": reasons, "crn": "crn:v1:bluemix:public:is:eu-de-1:" + goodAccount + "::instance:" + m.id,
		"vpc": map[string]string{"name": m.vpc}, "resource_group": map[string]string{"name": m.group},
		"network_interfaces":  []any{map[string]any{"primary_ip": map[string]string{"address": "10.0.0.7"}}},
		"network_attachments": []any{map[string]any{"primary_ip": map[string]string{"address": "10.0.0.7"}}},
	}
	if m.membership != nil {
		shown["instance_group_membership"] = m.membership
	}
	return shown
}

// replaceStopped deletes a stopped member of an instance group, and creates another member.
func (s *simulatedIBMCloud) replaceStopped(m *simulatedInstance) {
	if m.membership == nil || m.status != "stopped" {
		return
	}
	delete(s.instances, m.id)
	s.made++
	replacement := &simulatedInstance{
		id: instanceID(s.made), name: fmt.Sprintf("%s-%d", m.name, s.made), vpc: m.vpc, group: m.group,
		status: "running", membership: m.membership,
	}
	s.instances[replacement.id] = replacement
}

func instanceID(number int) string {
	return fmt.Sprintf("02c7_aaaaaaaa-bbbb-cccc-dddd-%012d", number*11)
}

// settle completes a change if isDue is true. If arrives is set, that time decides instead.
func (m *simulatedInstance) settle(isDue bool) {
	if !m.arrives.IsZero() {
		isDue = time.Now().After(m.arrives)
	}
	if m.reason != "" && m.status == "starting" {
		if m.fails--; m.fails < 0 || isDue {
			m.status = "stopped"
		}
		return
	}
	if isDue {
		m.status = cmp.Or(map[string]string{"starting": "running", "stopping": "stopped"}[m.status], m.status)
	}
}

func (s *simulatedIBMCloud) serveAction(w http.ResponseWriter, operation string, m *simulatedInstance) {
	m.settle(false)
	row, ok := map[string]struct{ from, passing string }{stop: {"running", "stopping"}, start: {"stopped", "starting"}}[operation]
	switch {
	case !ok:
		writeErrors(w, http.StatusBadRequest, "bad_field", "There is no such action.")
		return
	case m.status != row.from:
		writeErrors(w, http.StatusConflict, "instance_status_conflict", "The instance is "+m.status)
		return
	}
	if s.isLate {
		m.before, m.late = m.status, lateLooks
	}
	m.status, m.left, m.reason, m.fails = row.passing, transitionLooks, "", s.startLooks
	if s.latency > 0 {
		m.arrives = time.Now().Add(s.latency)
	}
	if failed, isFailed := s.FindFault(operation, m.id); isFailed {
		m.reason = failed.Code
	}
	writeJSON(w, http.StatusCreated, map[string]any{"id": "action-1", "status": "pending"})
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

func writeErrors(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"errors": []any{map[string]any{"code": code, "message": message}}, "trace": "changes-each-time"})
}

func goodCredentials() map[string][]byte {
	return map[string][]byte{apiKeyKey: []byte(goodAPIKey + "\n")}
}

// newCluster returns a cluster with an infraID that begins with the previous cluster's infraID.
func (s *simulatedIBMCloud) newCluster() *simulatedCluster {
	s.Lock()
	defer s.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedIBMCloud: s, infraID: fmt.Sprintf("sleepy%d", s.clusters/10) + strings.Repeat("-x", s.clusters%10)}
}

type simulatedCluster struct {
	*simulatedIBMCloud
	infraID string
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Region: goodRegion, Credentials: goodCredentials()}
}

// Create creates instances that are identified by their VPC or by their resource group.
func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.Lock()
	defer c.Unlock()
	var ids []string
	for range n {
		c.made++
		m := &simulatedInstance{
			id: instanceID(c.made), name: fmt.Sprintf("%s-worker-%d", c.infraID, c.made),
			vpc: c.infraID + vpcSuffix, group: "Default", status: "running",
		}
		if c.made%2 == 0 {
			m.vpc, m.group = "shared", c.infraID
		}
		c.instances[m.id] = m
		ids = append(ids, m.id)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.Change(func() {
		for _, m := range c.instances {
			m.late, m.arrives = 0, time.Time{}
			m.settle(true)
		}
	})
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]actuatortest.Fault{
		actuator.CredentialsInvalid: {Status: http.StatusUnauthorized, Code: "not_authenticated"},
		actuator.PermissionDenied:   {Status: http.StatusForbidden, Code: "not_authorized"},
		actuator.Unreachable:        {Status: http.StatusServiceUnavailable, Code: "service_unavailable"},
		actuator.Throttled:          {Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", RetryAfter: "30"},
		actuator.NotFound:           {Status: http.StatusNotFound, Code: "not_found"},
		actuator.Other:              {Status: http.StatusBadRequest, Code: "bad_field"},
		actuator.NoCapacity:         {Code: "cannot_start_capacity", IsLater: true},
	}[class]
	if !ok || class == actuator.NoCapacity && op != actuatortest.Start {
		return false // A listing does not fail for a running instance, and a stop needs no capacity.
	}
	f.Operation = map[actuatortest.Operation]string{actuatortest.Observe: list, actuatortest.Stop: stop, actuatortest.Start: start}[op]
	f.IDs = ids
	if class == actuator.NoCapacity {
		// The contract expects a failure in any state, but only a stopped instance can fail to start.
		c.Change(func() {
			for _, m := range c.instances {
				if len(ids) == 0 && strings.HasPrefix(m.name, c.infraID+"-") {
					m.status = "stopped"
				}
			}
		})
	}
	c.Inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// JoinGroup implements actuatortest.GroupCloud.
func (c *simulatedCluster) JoinGroup(_ *testing.T, id, group string) {
	c.Change(func() {
		c.instances[id].membership = map[string]any{
			"id": "4b7a_member", "name": "member-1", "href": "https://evil.example.com/v1/instance_groups/r010_group",
			"instance_group": map[string]any{"id": "r010_group", "name": group},
		}
	})
}

// Delay implements actuatortest.LateCloud.
func (c *simulatedCluster) Delay(t *testing.T) {
	t.Helper()
	c.Change(func() { c.isLate = true })
	t.Cleanup(func() { c.Change(func() { c.isLate = false }) })
}

func TestContract(t *testing.T) {
	cloud := startIBMCloud(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return cloud.newCluster() })
}
