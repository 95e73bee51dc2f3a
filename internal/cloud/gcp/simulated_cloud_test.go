// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
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
	goodProject = "fleet-of-tests"
	goodEmail   = "torpor@fleet-of-tests.iam.gserviceaccount.com"
	// serverPageSize is the maximum size of a page, regardless of the request. Twelve instances need more than one
	// page.
	serverPageSize = 5
	// transitionLooks is the number of listings that a change takes. lateLooks is the number of listings that show
	// the previous state.
	transitionLooks, lateLooks = 2, 3
	zoneRead, operationRead    = "instances.get", "zoneOperations.get"
)

// simulatedGCP is Google's token service and Compute Engine behind HTTP, written from their public description
// (https://cloud.google.com/compute/docs/reference/rest/v1). It accepts an order before it checks the capacity, and
// refuses an order while another one is in progress. Its listings are grouped by zone and show changes late.
type simulatedGCP struct {
	actuatortest.Faults

	server   *httptest.Server
	actuator *Actuator
	key      *rsa.PrivateKey

	instances map[string]*simulatedInstance
	orders    map[string]*simulatedOrder
	// quotas maps a region to its quotas.
	quotas map[string]map[string]any
	// queries are the query parameters of listings.
	queries  []url.Values
	tokens   int
	isLate   bool
	clusters int
	made     int
	// isRevoked is true if the key and its tokens are no longer accepted.
	isRevoked bool
	// latency, if set, is how long a change takes. Otherwise a change takes a number of listings.
	latency time.Duration
	// rights are the rights of the service account; nil means all.
	rights []string
	// orderLooks is the number of observations until an order is complete.
	orderLooks int
	// interfere, if set, answers requests to Compute Engine.
	interfere func(http.ResponseWriter, *http.Request) bool
}

type simulatedInstance struct {
	zone, name string
	// metadata contains items with their values, and changes counts their changes.
	metadata    map[string]string
	changes     int
	labels      map[string]string
	hasLocalSSD bool
	// discarded is the setting for local SSDs in the last stop.
	discarded string
	// status is the name in the API. A transitional status lasts for left listings, or until arrives.
	status  string
	left    int
	arrives time.Time
	// before is the status that is shown while observations are late.
	before string
	late   int
}

// simulatedOrder completes after some observations. It fails if it has a code.
type simulatedOrder struct {
	id, code string
	left     int
}

func startGCP(t *testing.T) *simulatedGCP {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulatedGCP{key: key, instances: map[string]*simulatedInstance{}, orders: map[string]*simulatedOrder{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	s.actuator = New(cloudrest.CloudOptions{HTTPClient: cloudrest.BoundClient(s), Attempts: 2, CallTimeout: 2 * time.Minute})
	return s
}

// RoundTrip implements http.RoundTripper. Requests for any host go to the simulated cloud, which receives the host's
// name.
func (s *simulatedGCP) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.Host, sent.URL.Scheme, sent.URL.Host = r.URL.Scheme+"."+r.URL.Host, "http", strings.TrimPrefix(s.server.URL, "http://")
	return http.DefaultTransport.RoundTrip(sent)
}

// ServeHTTP implements http.Handler.
func (s *simulatedGCP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Host {
	case "https.oauth2.googleapis.com":
		s.serveLogin(w, r)
	case "https.compute.googleapis.com":
		s.serveCompute(w, r)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// serveLogin issues a token for a request that is signed with the key of the service account.
func (s *simulatedGCP) serveLogin(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.FormValue("assertion"), ".")
	s.Lock()
	defer s.Unlock()
	logins := s.CountCall(login)
	if failed, isFailed := s.FindFault(login, ""); isFailed {
		w.Header().Set("Retry-After", failed.RetryAfter)
		writeJSON(w, failed.Status, map[string]any{})
		return
	}
	if len(parts) != 3 || r.URL.Path != "/token" || s.isRevoked || !s.isSigned(parts) {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": "Invalid JWT Signature at " + strconv.Itoa(logins/1000)})
		return
	}
	s.tokens++
	writeJSON(w, http.StatusOK, map[string]any{"access_token": s.token(), "token_type": "Bearer", "expires_in": 3599})
}

func (s *simulatedGCP) isSigned(parts []string) bool {
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	var claimed struct{ Iss, Scope, Aud string }
	_ = json.Unmarshal(claims, &claimed)
	return rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, sum[:], signature) == nil &&
		claimed.Iss == goodEmail && claimed.Scope == computeScope && claimed.Aud == tokenURL
}

// token returns the valid token. Each login replaces it.
func (s *simulatedGCP) token() string {
	return fmt.Sprintf("token-that-must-not-be-shown-%d", s.tokens)
}

func (s *simulatedGCP) serveCompute(w http.ResponseWriter, r *http.Request) {
	operation, id := parseRequest(r)
	s.Lock()
	defer s.Unlock()
	count := s.CountCall(operation)
	failed, isFailed := s.FindFault(operation, id)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token() || s.isRevoked:
		writeRefusal(w, http.StatusUnauthorized, "authError", "Request had invalid authentication credentials.")
	case s.interfere != nil && s.interfere(w, r):
	case !strings.HasPrefix(r.URL.Path, "/compute/v1/projects/"+goodProject+"/"):
		writeRefusal(w, http.StatusForbidden, "forbidden", "Required 'compute.instances.list' permission for another project")
	case isFailed && !failed.IsLater:
		if failed.RetryAfter != "" {
			w.Header().Set("Retry-After", failed.RetryAfter)
		}
		// The message contains all texts that must not be shown.
		writeRefusal(w, failed.Status, failed.Code, fmt.Sprintf("No way at 2026-11-24T10:00:%02dZ with %s", count%60, s.pemKey()))
	case operation == list:
		s.serveList(w, r)
	case operation == operationRead:
		s.serveOrder(w, id)
	case operation == quotaRead:
		writeJSON(w, http.StatusOK, s.quotas[id])
	case s.instances[id] == nil:
		writeRefusal(w, http.StatusNotFound, "notFound", "The resource '"+id+"' was not found")
	case operation == zoneRead:
		s.instances[id].settle(false)
		writeJSON(w, http.StatusOK, s.instances[id].show(r.URL.Query().Get("fields")))
	case operation == testRights:
		s.serveRights(w, r)
	default:
		s.serveAction(w, r, operation, s.instances[id])
	}
}

// parseRequest returns the operation of a request, and the ID of the instance or the name of the order in it.
func parseRequest(r *http.Request) (operation, id string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/compute/v1/projects/"+goodProject+"/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/aggregated/instances"):
		return list, ""
	case len(parts) == 2 && parts[0] == "regions":
		return quotaRead, parts[1]
	case len(parts) == 4 && parts[2] == "operations":
		return operationRead, parts[3]
	case len(parts) == 4:
		return zoneRead, parts[1] + "/" + parts[3]
	case len(parts) == 5:
		return "instances." + parts[4], parts[1] + "/" + parts[3]
	default:
		return "unknown", ""
	}
}

// serveList serves a page of the instances that the filter matches, grouped by zone, along with empty zones.
func (s *simulatedGCP) serveList(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.queries = append(s.queries, query)
	ids := slices.Sorted(maps.Keys(s.instances))
	if filter := query.Get("filter"); filter != "" {
		match := regexp.MustCompile(`^name eq "(.*)"$`).FindStringSubmatch(filter)
		if match == nil {
			writeRefusal(w, http.StatusBadRequest, "invalid", "Invalid value for field 'filter'")
			return
		}
		names := regexp.MustCompile("^(?:" + match[1] + ")$")
		ids = slices.DeleteFunc(ids, func(id string) bool { return !names.MatchString(s.instances[id].name) })
	}
	if token := query.Get("pageToken"); token != "" {
		ids = ids[slices.Index(ids, token)+1:]
	}
	limit, _ := strconv.Atoi(query.Get("maxResults"))
	page := ids[:min(limit, serverPageSize, len(ids))]
	items := map[string]any{"zones/nowhere-a": map[string]any{"warning": map[string]any{"code": emptyScope, "message": "There are no results for scope 'zones/nowhere-a' on this page."}}}
	for _, id := range page {
		scope := "zones/" + s.instances[id].zone
		scoped, _ := items[scope].(map[string][]any)
		items[scope] = map[string][]any{"instances": append(scoped["instances"], s.instances[id].look(query.Get("fields")))}
	}
	answer := map[string]any{"kind": "compute#instanceAggregatedList", "items": items}
	if len(page) < len(ids) {
		answer["nextPageToken"] = page[len(page)-1]
	}
	writeJSON(w, http.StatusOK, answer)
}

// look returns the instance as a listing shows it, and then advances its status.
func (m *simulatedInstance) look(fields string) map[string]any {
	if !m.arrives.IsZero() {
		m.settle(false)
	}
	if m.late > 0 {
		m.late--
		shown := m.show(fields)
		shown["status"] = m.before
		return shown
	}
	shown := m.show(fields)
	m.left--
	m.settle(m.left < 0)
	return shown
}

// show returns an instance with all values of its metadata, or only their keys if fields requests that.
func (m *simulatedInstance) show(fields string) map[string]any {
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(m.metadata)) {
		item := map[string]string{"key": key}
		if !strings.Contains(fields, "items/key") {
			item["value"] = m.metadata[key]
		}
		items = append(items, item)
	}
	return map[string]any{
		"metadata": map[string]any{"fingerprint": strconv.Itoa(m.changes), "items": items},
		"name":     m.name, "status": m.status, "labels": m.labels,
		"networkInterfaces": []any{map[string]any{"networkIP": "10.0.0.7", "accessConfigs": []any{map[string]string{"natIP": "192.0.2.7"}}}},
	}
}

// settle completes a change if isDue is true. If arrives is set, that time decides instead.
func (m *simulatedInstance) settle(isDue bool) {
	if !m.arrives.IsZero() {
		isDue = time.Now().After(m.arrives)
	}
	if isDue {
		m.status = cmp.Or(map[string]string{"STAGING": "RUNNING", "STOPPING": "TERMINATED"}[m.status], m.status)
	}
}

func (s *simulatedGCP) serveOrder(w http.ResponseWriter, name string) {
	o := s.orders[name]
	if o == nil {
		writeRefusal(w, http.StatusNotFound, "notFound", "The resource 'operations/"+name+"' was not found")
		return
	}
	if o.left--; o.left >= 0 {
		writeJSON(w, http.StatusOK, map[string]any{"name": name, "status": "RUNNING"})
		return
	}
	answer := map[string]any{"name": name, "status": "DONE"}
	if o.code != "" {
		answer["error"] = map[string]any{"errors": []any{map[string]string{"code": o.code, "message": "The zone does not have enough resources available to fulfill the request."}}}
		s.instances[o.id].status = "TERMINATED"
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *simulatedGCP) serveRights(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Permissions []string }
	_ = json.NewDecoder(r.Body).Decode(&asked)
	granted := slices.DeleteFunc(asked.Permissions, func(right string) bool { return s.rights != nil && !slices.Contains(s.rights, right) })
	writeJSON(w, http.StatusOK, map[string]any{"permissions": granted})
}

func (s *simulatedGCP) serveAction(w http.ResponseWriter, r *http.Request, action string, m *simulatedInstance) {
	m.settle(false)
	id := m.zone + "/" + m.name
	row, ok := map[string]struct{ from, passing, already string }{
		stop:               {"RUNNING", "STOPPING", "TERMINATED"},
		start:              {"TERMINATED", "STAGING", "RUNNING"},
		"instances.resume": {"SUSPENDED", "STAGING", "RUNNING"},
	}[action]
	switch {
	case !ok:
		writeRefusal(w, http.StatusNotFound, "notFound", "There is no such method.")
		return
	case action == stop && m.hasLocalSSD && r.URL.Query().Get("discardLocalSsd") == "":
		writeRefusal(w, http.StatusBadRequest, "badRequest", "VM has a Local SSD attached but an undefined value for `discard-local-ssd`.")
		return
	case m.status != row.from && m.status != row.already:
		writeRefusal(w, http.StatusBadRequest, "resourceNotReady", "The resource '"+id+"' is not ready")
		return
	}
	taken := &simulatedOrder{id: id, left: s.orderLooks}
	name := fmt.Sprintf("operation-%d", len(s.orders))
	s.orders[name] = taken
	if failed, isFailed := s.FindFault(action, id); isFailed {
		taken.code = failed.Code
	}
	if m.status == row.from {
		m.discarded = r.URL.Query().Get("discardLocalSsd")
		if s.isLate {
			m.before, m.late = m.status, lateLooks
		}
		m.status, m.left = row.passing, transitionLooks
		if s.latency > 0 {
			m.arrives = time.Now().Add(s.latency)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"name": name, "status": "PENDING", "targetLink": computeURL + goodProject + "/zones/" + m.zone + "/instances/" + m.name})
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

func writeRefusal(w http.ResponseWriter, status int, reason, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"code": status, "message": message, "errors": []any{map[string]string{"message": message, "domain": "global", "reason": reason}},
	}})
}

func (s *simulatedGCP) pemKey() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.key)}))
}

// credentials returns a Secret with a file that also has other fields.
func (s *simulatedGCP) credentials(other map[string]string) map[string][]byte {
	file := map[string]string{
		"type": "service_account", "project_id": goodProject, "private_key_id": "abc", "private_key": s.pemKey(), "client_email": goodEmail,
		"token_uri": tokenURL, "universe_domain": googleUniverse,
	}
	maps.Copy(file, other)
	text, _ := json.Marshal(file)
	return map[string][]byte{serviceAccountKey: text}
}

// newCluster returns a cluster with an infraID that begins with the previous cluster's infraID, as far as the length of
// names allows.
func (s *simulatedGCP) newCluster() *simulatedCluster {
	s.Lock()
	defer s.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedGCP: s, infraID: fmt.Sprintf("sleepy%d", s.clusters/10) + strings.Repeat("-x", s.clusters%10)}
}

type simulatedCluster struct {
	*simulatedGCP
	infraID string
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Credentials: c.credentials(nil)}
}

// Create distributes the instances over two zones, and labels half of those in each zone.
func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.Lock()
	defer c.Unlock()
	var ids []string
	for range n {
		c.made++
		m := &simulatedInstance{
			zone: "europe-west3-" + string("ab"[c.made%2]), name: fmt.Sprintf("%s-worker-%d", c.infraID, c.made*11), status: "RUNNING",
			labels: map[string]string{"team": "blue"},
		}
		if c.made%4 < 2 {
			m.labels[clusterLabelPrefix+c.infraID] = ownedLabel
		}
		c.instances[m.zone+"/"+m.name] = m
		ids = append(ids, m.zone+"/"+m.name)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.Change(func() {
		for _, o := range c.orders {
			if o.code != "" {
				c.instances[o.id].status = "TERMINATED"
			}
		}
		for _, m := range c.instances {
			m.late, m.arrives = 0, time.Time{}
			m.settle(true)
		}
	})
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]actuatortest.Fault{
		actuator.CredentialsInvalid: {Status: http.StatusUnauthorized, Code: "authError"},
		actuator.PermissionDenied:   {Status: http.StatusForbidden, Code: "forbidden"},
		actuator.Unreachable:        {Status: http.StatusServiceUnavailable, Code: "backendError"},
		actuator.Throttled:          {Status: http.StatusForbidden, Code: "rateLimitExceeded", RetryAfter: "30"},
		actuator.NotFound:           {Status: http.StatusNotFound, Code: "notFound"},
		actuator.Other:              {Status: http.StatusBadRequest, Code: "invalid"},
		actuator.NoCapacity:         {Code: "ZONE_RESOURCE_POOL_EXHAUSTED", IsLater: true},
	}[class]
	if !ok || class == actuator.NoCapacity && op != actuatortest.Start {
		return false // A listing does not fail for a running instance, and a stop needs no capacity.
	}
	f.Operation = map[actuatortest.Operation]string{actuatortest.Observe: list, actuatortest.Stop: stop, actuatortest.Start: start}[op]
	f.IDs = ids
	c.Inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// JoinGroup implements actuatortest.GroupCloud.
func (c *simulatedCluster) JoinGroup(t *testing.T, id, group string) {
	t.Helper()
	c.setMetadata(id, "created-by", "projects/123456789012/zones/europe-west3-a/instanceGroupManagers/"+group)
}

func (s *simulatedGCP) setMetadata(id, key, value string) {
	s.Change(func() {
		m := s.instances[id]
		if m.metadata == nil {
			m.metadata = map[string]string{"startup-script": strings.Repeat("# a line of a script\n", 12_000)}
		}
		m.metadata[key] = value
		m.changes++
	})
}

// Delay implements actuatortest.LateCloud.
func (c *simulatedCluster) Delay(t *testing.T) {
	t.Helper()
	c.Change(func() { c.isLate = true })
	t.Cleanup(func() { c.Change(func() { c.isLate = false }) })
}

func TestContract(t *testing.T) {
	cloud := startGCP(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return cloud.newCluster() })
}
