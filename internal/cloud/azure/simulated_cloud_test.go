// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

const (
	goodSubscription = "11111111-2222-3333-4444-555555555555"
	goodTenant       = "66666666-7777-8888-9999-000000000000"
	goodClient       = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
	goodSecret       = "s3cr3t~of.torpor-tests"
	goodToken        = "token-that-must-not-be-shown"
	// pageSize is less than twelve, so twelve machines need more than one page.
	pageSize = 5
	// transitionLooks is the number of listings in which a machine stays in transition. lateLooks is the number of
	// listings that show the previous state.
	transitionLooks, lateLooks = 2, 3
	// repairTime is the time after which a scale set has replaced a member that is off or deleted.
	repairTime = 100 * time.Millisecond
)

// simulatedAzure serves the SDK's own fake of Azure's API over HTTP. It has a login, and machines that change like
// those in Azure.
type simulatedAzure struct {
	actuatortest.Faults

	server   *httptest.Server
	actuator *Actuator

	machines map[string]*simulatedMachine
	// scaleSets maps IDs to scale sets. replaced is the number of members that the scale sets have replaced.
	scaleSets map[string]*simulatedScaleSet
	replaced  int
	// quotas are the quotas of all locations.
	quotas   []*armcompute.Usage
	isLate   bool
	clusters int
	// latency, if set, is how long a change takes. Otherwise a change takes a number of listings.
	latency time.Duration
	// assertion is the client assertion of the last login without a client secret.
	assertion string
	// rights are the permissions of the service principal's roles. If nil, all actions are permitted.
	rights []rolePermission
	// interfere, if set, answers requests to the resource manager.
	interfere func(http.ResponseWriter, *http.Request) bool
}

type simulatedMachine struct {
	group, name string
	// scaleSet is the ID of the scale set that the machine belongs to.
	scaleSet string
	// offSince is the time at which the scale set found the machine off; zero while the machine is on.
	offSince time.Time
	// power is Azure's name of the state. left is the number of listings for which a transitional state lasts, and
	// arrives is the time at which it ends.
	power   string
	left    int
	arrives time.Time
	// before is the state that is shown while observations are late.
	before string
	late   int
}

// simulatedScaleSet is a scale set with automatic repairs: it keeps its capacity of running members.
type simulatedScaleSet struct {
	group, name string
	mode        armcompute.OrchestrationMode
	capacity    int
	made        int
	isDeleting  bool
}

func startAzure(t *testing.T) *simulatedAzure {
	t.Helper()
	s := &simulatedAzure{machines: map[string]*simulatedMachine{}, scaleSets: map[string]*simulatedScaleSet{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	s.actuator = New(Options{HTTPClient: s.client(), Attempts: 2})
	return s
}

// client sends requests for any host to the simulated cloud, which receives the host's name.
func (s *simulatedAzure) client() *http.Client {
	return &http.Client{Transport: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		sent := r.Clone(r.Context())
		sent.Host, sent.URL.Scheme = r.URL.Host, "http"
		sent.URL.Host = strings.TrimPrefix(s.server.URL, "http://")
		return http.DefaultTransport.RoundTrip(sent)
	})}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ServeHTTP implements http.Handler.
func (s *simulatedAzure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Host {
	case "login.microsoftonline.com":
		s.serveLogin(w, r)
	case "management.azure.com":
		s.serveManager(w, r)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func (s *simulatedAzure) serveLogin(w http.ResponseWriter, r *http.Request) {
	authority := "https://login.microsoftonline.com/" + strings.Split(r.URL.Path, "/")[1]
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		writeJSON(w, http.StatusOK, map[string]string{
			"token_endpoint": authority + "/oauth2/v2.0/token", "authorization_endpoint": authority + "/oauth2/v2.0/authorize", "issuer": authority + "/v2.0",
		})
		return
	}
	var logins int
	s.Change(func() { s.assertion, logins = r.FormValue("client_assertion"), s.CountCall("login") })
	isKnown := r.FormValue("client_secret") == goodSecret || r.FormValue("client_assertion") != ""
	if r.FormValue("client_id") != goodClient || !isKnown {
		writeJSON(w, http.StatusUnauthorized, map[string]string{
			"error": "invalid_client",
			"error_description": "AADSTS7000215: Invalid client secret provided: " + r.FormValue("client_secret") +
				". Trace ID: " + strconv.Itoa(logins) + " Correlation ID: 0 Timestamp: 2026-01-01 00:00:00Z",
		})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"access_token": goodToken, "token_type": "Bearer", "expires_in": 3600})
}

func (s *simulatedAzure) serveManager(w http.ResponseWriter, r *http.Request) {
	operation, id := parseOperation(r)
	s.Lock()
	s.repairScaleSets(time.Now())
	s.CountCall(operation)
	interfere := s.interfere
	failed, isFailed := s.FindFault(operation, id)
	s.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+goodToken:
		writeError(w, http.StatusUnauthorized, "InvalidAuthenticationToken")
	case interfere != nil && interfere(w, r):
	case isFailed:
		if failed.RetryAfter != "" {
			w.Header().Set("Retry-After", failed.RetryAfter)
		}
		writeError(w, failed.Status, failed.Code, failed.Message)
	case !strings.HasPrefix(r.URL.Path, "/subscriptions/"+goodSubscription+"/"):
		writeError(w, http.StatusNotFound, "SubscriptionNotFound")
	case operation == "permissions":
		writeJSON(w, http.StatusOK, map[string]any{"value": s.permissions()})
	default:
		s.serveFake(w, r, operation)
	}
}

// parseOperation returns the operation of a request, and the ID of the machine in it.
func parseOperation(r *http.Request) (operation, id string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) == 9:
		return "virtualMachines/" + parts[8], strings.ToLower(parts[3] + "/" + parts[7])
	case parts[len(parts)-1] == "permissions":
		return "permissions", ""
	case parts[len(parts)-1] == "virtualMachineScaleSets":
		return scaleSetRead, ""
	case parts[len(parts)-1] == "usages":
		return quotaRead, ""
	default:
		return list, ""
	}
}

// serveFake answers with the SDK's fake. Each request has a new fake, because a fake stores orders by machine.
func (s *simulatedAzure) serveFake(w http.ResponseWriter, r *http.Request, operation string) {
	name := map[string]string{
		list: "VirtualMachinesClient.NewListAllPager", scaleSetRead: "VirtualMachineScaleSetsClient.NewListAllPager", quotaRead: "UsageClient.NewListPager",
		deallocate: "VirtualMachinesClient.BeginDeallocate", start: "VirtualMachinesClient.BeginStart",
	}[operation]
	ctx := context.WithValue(r.Context(), runtime.CtxAPINameKey{}, name)
	machines := fake.VirtualMachinesServer{
		NewListAllPager: func(o *armcompute.VirtualMachinesClientListAllOptions) (resp azfake.PagerResponder[armcompute.VirtualMachinesClientListAllResponse]) {
			resp.AddPage(http.StatusOK, s.page(r.URL, o), nil)
			return resp
		},
		BeginDeallocate: func(_ context.Context, group, name string, _ *armcompute.VirtualMachinesClientBeginDeallocateOptions) (resp azfake.PollerResponder[armcompute.VirtualMachinesClientDeallocateResponse], failed azfake.ErrorResponder) {
			if status, code := s.begin(group, name, "deallocating"); code != "" {
				failed.SetResponseError(status, code)
			}
			resp.AddNonTerminalResponse(http.StatusAccepted, nil)
			return resp, failed
		},
		BeginStart: func(_ context.Context, group, name string, _ *armcompute.VirtualMachinesClientBeginStartOptions) (resp azfake.PollerResponder[armcompute.VirtualMachinesClientStartResponse], failed azfake.ErrorResponder) {
			if status, code := s.begin(group, name, "starting"); code != "" {
				failed.SetResponseError(status, code)
			}
			resp.AddNonTerminalResponse(http.StatusAccepted, nil)
			return resp, failed
		},
	}
	scaleSets := fake.VirtualMachineScaleSetsServer{
		NewListAllPager: func(*armcompute.VirtualMachineScaleSetsClientListAllOptions) (resp azfake.PagerResponder[armcompute.VirtualMachineScaleSetsClientListAllResponse]) {
			resp.AddPage(http.StatusOK, s.pageOfScaleSets(r.URL), nil)
			return resp
		},
	}
	usage := fake.UsageServer{
		NewListPager: func(string, *armcompute.UsageClientListOptions) (resp azfake.PagerResponder[armcompute.UsageClientListResponse]) {
			resp.AddPage(http.StatusOK, armcompute.UsageClientListResponse{ListUsagesResult: armcompute.ListUsagesResult{Value: s.quotas}}, nil)
			return resp
		},
	}
	factory := &fake.ServerFactory{VirtualMachinesServer: machines, VirtualMachineScaleSetsServer: scaleSets, UsageServer: usage}
	answer, err := fake.NewServerFactoryTransport(factory).Do(r.WithContext(ctx))
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		writeError(w, refused.StatusCode, refused.ErrorCode)
		return
	}
	if err != nil {
		writeError(w, http.StatusNotImplemented, err.Error())
		return
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusAccepted {
		// The fake's own header would not contain an Azure host.
		w.Header().Set("Azure-Asyncoperation", "https://management.azure.com/subscriptions/"+goodSubscription+"/operations/1")
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// page returns a part of the listing. Azure spells the groups of a listing in upper case.
func (s *simulatedAzure) page(asked *url.URL, o *armcompute.VirtualMachinesClientListAllOptions) (answer armcompute.VirtualMachinesClientListAllResponse) {
	s.Lock()
	defer s.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if s.isListed(s.machines[id]) {
			ids = append(ids, id)
		}
	}
	ids, answer.NextLink = cutPage(asked, ids)
	for _, id := range ids {
		m := s.machines[id]
		vm := &armcompute.VirtualMachine{
			ID: new(resourceID(strings.ToUpper(m.group), "virtualMachines", m.name)), Name: &m.name, Location: new("WestEurope"),
			Properties: &armcompute.VirtualMachineProperties{ProvisioningState: new("Succeeded")},
		}
		if o != nil && o.StatusOnly != nil && *o.StatusOnly == "true" {
			vm.Properties.InstanceView = &armcompute.VirtualMachineInstanceView{Statuses: []*armcompute.InstanceViewStatus{
				{Code: new("ProvisioningState/succeeded")}, {Code: new("PowerState/" + m.look())},
			}}
		}
		if set := s.scaleSets[m.scaleSet]; set != nil {
			vm.Properties.VirtualMachineScaleSet = &armcompute.SubResource{ID: new(resourceID(set.group, "virtualMachineScaleSets", set.name))}
		}
		answer.Value = append(answer.Value, vm)
	}
	return answer
}

// isListed reports whether a machine is a resource of its own, and not an instance of a set with uniform orchestration.
func (s *simulatedAzure) isListed(m *simulatedMachine) bool {
	set := s.scaleSets[m.scaleSet]
	return set == nil || set.mode == armcompute.OrchestrationModeFlexible
}

// pageOfScaleSets returns a part of the listing of scale sets.
func (s *simulatedAzure) pageOfScaleSets(asked *url.URL) (answer armcompute.VirtualMachineScaleSetsClientListAllResponse) {
	s.Lock()
	defer s.Unlock()
	var ids []string
	ids, answer.NextLink = cutPage(asked, slices.Sorted(maps.Keys(s.scaleSets)))
	for _, id := range ids {
		set := s.scaleSets[id]
		state := "Succeeded"
		if set.isDeleting {
			state = "Deleting"
		}
		answer.Value = append(answer.Value, &armcompute.VirtualMachineScaleSet{
			ID: new(resourceID(strings.ToUpper(set.group), "virtualMachineScaleSets", set.name)), Name: &set.name, SKU: &armcompute.SKU{Capacity: new(int64(set.capacity))},
			Properties: &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: &set.mode, ProvisioningState: &state},
		})
	}
	return answer
}

func resourceID(group, kind, name string) string {
	return "/subscriptions/" + goodSubscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/" + kind + "/" + name
}

// cutPage returns the part of a listing that a URL asks for, and the URL of the next part; nil for the last one.
func cutPage(asked *url.URL, ids []string) (page []string, next *string) {
	first, _ := strconv.Atoi(asked.Query().Get("$skipToken"))
	last := min(first+pageSize, len(ids))
	if last < len(ids) {
		link := *asked
		link.Scheme, link.Host = "https", "management.azure.com"
		query := link.Query()
		query.Set("$skipToken", strconv.Itoa(last))
		link.RawQuery = query.Encode()
		next = new(link.String())
	}
	return ids[min(first, last):last], next
}

// repairScaleSets deletes the members of scale sets that have been off for a while, and creates members up to the
// capacity.
func (s *simulatedAzure) repairScaleSets(now time.Time) {
	members := map[string]int{}
	for id, m := range s.machines {
		isOff := m.power == "deallocated" || m.power == "stopped"
		switch {
		case s.scaleSets[m.scaleSet] == nil:
			continue
		case !isOff:
			m.offSince = time.Time{}
		case m.offSince.IsZero():
			m.offSince = now
		case now.Sub(m.offSince) >= repairTime:
			delete(s.machines, id)
			s.replaced++
			continue
		}
		members[m.scaleSet]++
	}
	for id, set := range s.scaleSets {
		for range set.capacity - members[id] {
			s.addMember(id, fmt.Sprintf("%s_%d", set.name, set.made))
		}
	}
}

// addMember creates a running member of a scale set.
func (s *simulatedAzure) addMember(set, name string) {
	owner := s.scaleSets[set]
	owner.made++
	id := strings.ToLower(owner.group + "/" + name)
	s.machines[id] = &simulatedMachine{group: owner.group, name: name, scaleSet: set, power: "running"}
}

// look returns the state that a listing shows, and advances the state of the machine.
func (m *simulatedMachine) look() string {
	if m.late > 0 {
		m.late--
		return m.before
	}
	if !m.arrives.IsZero() && time.Now().After(m.arrives) {
		m.arrive()
	}
	shown := m.power
	if m.left--; m.left < 0 && m.arrives.IsZero() {
		m.arrive()
	}
	return shown
}

func (m *simulatedMachine) arrive() {
	m.left, m.arrives, m.power = 0, time.Time{}, cmp.Or(map[string]string{"starting": "running", "deallocating": "deallocated"}[m.power], m.power)
}

// begin starts a transition. A transition in progress is not reversed.
func (s *simulatedAzure) begin(group, name, to string) (status int, code string) {
	s.Lock()
	defer s.Unlock()
	m := s.machines[strings.ToLower(group+"/"+name)]
	switch {
	case m == nil, !s.isListed(m): // An instance of a uniform scale set is not a virtual machine resource.
		return http.StatusNotFound, "ResourceNotFound"
	case m.power == to, to == "starting" && m.power == "running", to == "deallocating" && m.power == "deallocated":
		return http.StatusOK, ""
	case m.power == "starting", m.power == "deallocating":
		return http.StatusConflict, "OperationNotAllowed"
	}
	if s.isLate {
		m.before, m.late = m.power, lateLooks
	}
	m.power, m.left = to, transitionLooks
	if s.latency > 0 {
		m.left, m.arrives = 0, time.Now().Add(s.latency)
	}
	return http.StatusOK, ""
}

func (s *simulatedAzure) permissions() []rolePermission {
	s.Lock()
	defer s.Unlock()
	if s.rights != nil {
		return s.rights
	}
	return []rolePermission{{Actions: []string{"Microsoft.Compute/virtualMachines/*"}}}
}

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// writeError sends a message with all texts that must not be shown.
func writeError(w http.ResponseWriter, status int, code string, words ...string) {
	message := fmt.Sprintf("No way for the client '%s' with %s at 2026-01-01T00:00:00.%07dZ.", goodClient, goodSecret, len(code))
	writeJSON(w, status, map[string]any{"error": map[string]string{
		"code": code, "message": strings.Join(append(words, message), " "),
	}})
}

// newCluster returns a cluster whose resource group name begins with the name of the previous group.
func (s *simulatedAzure) newCluster() *simulatedCluster {
	s.Lock()
	defer s.Unlock()
	s.clusters++
	return &simulatedCluster{simulatedAzure: s, group: "Sleepy" + strings.Repeat("x", s.clusters)}
}

type simulatedCluster struct {
	*simulatedAzure
	group string
	made  int
}

func (c *simulatedCluster) Actuator() actuator.Actuator { return c.actuator }

func (c *simulatedCluster) Target() actuator.Target {
	return actuator.Target{InfraID: strings.ToLower(c.group), Credentials: goodCredentials()}
}

func goodCredentials() map[string][]byte {
	return map[string][]byte{servicePrincipalKey: fmt.Appendf(nil, `{"subscriptionId":%q,"tenantId":%q,"clientId":%q,"clientSecret":%q}`,
		goodSubscription, goodTenant, goodClient, goodSecret)}
}

func (c *simulatedCluster) Create(_ *testing.T, n int) []string {
	c.Lock()
	defer c.Unlock()
	var ids []string
	for range n {
		m := &simulatedMachine{group: c.group, name: fmt.Sprintf("Worker-%07d", c.made*11), power: "running"}
		c.made++
		id := strings.ToLower(m.group + "/" + m.name)
		c.machines[id], ids = m, append(ids, id)
	}
	return ids
}

func (c *simulatedCluster) Settle(*testing.T) {
	c.Lock()
	defer c.Unlock()
	for _, m := range c.machines {
		m.late = 0
		m.arrive()
	}
}

func (c *simulatedCluster) Fail(t *testing.T, class actuator.ErrorClass, op actuatortest.Operation, ids ...string) bool {
	t.Helper()
	f, ok := map[actuator.ErrorClass]actuatortest.Fault{
		actuator.CredentialsInvalid: {Status: http.StatusUnauthorized, Code: "ExpiredAuthenticationToken"},
		actuator.PermissionDenied:   {Status: http.StatusForbidden, Code: "AuthorizationFailed"},
		actuator.Unreachable:        {Status: http.StatusServiceUnavailable, Code: "ServerBusy"},
		actuator.Throttled:          {Status: http.StatusTooManyRequests, Code: "SubscriptionRequestsThrottled", RetryAfter: "30"},
		actuator.NoCapacity:         {Status: http.StatusConflict, Code: "AllocationFailed"},
		actuator.WrongState:         {Status: http.StatusConflict, Code: "OperationNotAllowed"},
		actuator.NotFound:           {Status: http.StatusNotFound, Code: "ResourceNotFound"},
		actuator.Other:              {Status: http.StatusConflict, Code: "ScopeLocked"},
	}[class]
	if !ok {
		return false
	}
	f.Operation = map[actuatortest.Operation]string{actuatortest.Observe: list, actuatortest.Stop: deallocate, actuatortest.Start: start}[op]
	f.IDs = ids
	c.Inject(t, f)
	return true
}

// TakesOrdersOneByOne implements actuatortest.OneByOneCloud.
func (*simulatedCluster) TakesOrdersOneByOne() {}

// ShutDown implements actuatortest.ShutdownCloud.
func (c *simulatedCluster) ShutDown(_ *testing.T, id string) {
	c.Lock()
	defer c.Unlock()
	c.machines[id].power = "stopped"
}

// JoinGroup implements actuatortest.GroupCloud. The group is a scale set with flexible orchestration.
func (c *simulatedCluster) JoinGroup(_ *testing.T, id, group string) {
	c.Change(func() {
		set := c.scaleSet(group, armcompute.OrchestrationModeFlexible)
		c.machines[id].scaleSet = set
		c.scaleSets[set].capacity++
	})
}

// joinUniformSet replaces a machine with an instance of a scale set with uniform orchestration.
func (c *simulatedCluster) joinUniformSet(_ *testing.T, id, group string) {
	c.Change(func() {
		delete(c.machines, id)
		set := c.scaleSet(group, armcompute.OrchestrationModeUniform)
		c.scaleSets[set].capacity++
		c.addMember(set, fmt.Sprintf("%s_%d", group, c.scaleSets[set].made))
	})
}

// scaleSet returns the ID of a scale set in the resource group of the cluster, and creates a missing one.
func (c *simulatedCluster) scaleSet(name string, mode armcompute.OrchestrationMode) string {
	id := strings.ToLower(c.group + "/" + name)
	if c.scaleSets[id] == nil {
		c.scaleSets[id] = &simulatedScaleSet{group: c.group, name: name, mode: mode}
	}
	return id
}

// expectNoReplacements expects that no scale set has replaced a member.
func (s *simulatedAzure) expectNoReplacements(t *testing.T) {
	t.Helper()
	s.Change(func() {
		if s.replaced > 0 {
			t.Errorf("expected no member of a scale set to be replaced, found %d", s.replaced)
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
	cloud := startAzure(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return cloud.newCluster() })
}
