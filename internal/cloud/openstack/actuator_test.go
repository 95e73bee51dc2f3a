// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

func TestCallsAreFew(t *testing.T) {
	cloud := startOpenStack(t)
	actuatortest.ExpectCalls(t, [3]actuatortest.FaultyCloud{cloud.newCluster(), cloud.newCluster(), cloud.newCluster()}, map[string]int{"login": 1, list: 3, stop: 12})
}

func TestTroubleAtOpenStack(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		op    actuatortest.Operation
		// calls is the number of calls of the operation for three servers.
		calls      int
		class      actuator.ErrorClass
		retryAfter time.Duration
	}{
		"failed listing is retried up to the limit":          {actuatortest.Fault{Operation: list, Status: http.StatusServiceUnavailable}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"429 is not retried and its Retry-After is returned": {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "90"}, actuatortest.Observe, 1, actuator.Throttled, 90 * time.Second},
		"nova's old status 413 counts as throttling":         {actuatortest.Fault{Operation: list, Status: http.StatusRequestEntityTooLarge, RetryAfter: "9"}, actuatortest.Observe, 1, actuator.Throttled, 9 * time.Second},
		"excessive Retry-After is capped":                    {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "9999999"}, actuatortest.Observe, 1, actuator.Throttled, 10 * time.Minute},
		"failed stop call is not retried":                    {actuatortest.Fault{Operation: stop, Status: http.StatusServiceUnavailable}, actuatortest.Stop, 3, actuator.Unreachable, 0},
		"failed start call is retried":                       {actuatortest.Fault{Operation: start, Status: http.StatusServiceUnavailable}, actuatortest.Start, 6, actuator.Unreachable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			actuatortest.ExpectEffect(t, startOpenStack(t).newCluster(), row.op, row.fault, actuatortest.FaultEffect{Class: row.class, RetryAfter: row.retryAfter, Calls: row.calls})
		})
	}
}

// TestATokenIsRenewed uses an expired token, and then a revoked password.
func TestATokenIsRenewed(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newCluster()
	ids := c.Create(t, 1)
	observe := func() error {
		_, err := cloud.actuator.Observe(t.Context(), c.Target())
		return err
	}
	if err := observe(); err != nil {
		t.Fatal(err)
	}
	cloud.expireTokens()
	if err := observe(); err != nil {
		t.Errorf("with a token that has expired: %v, want another login", err)
	}
	cloud.Change(func() { cloud.isRevoked = true })
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); actuator.ClassOf(err) != actuator.CredentialsInvalid || strings.Contains(err.Error(), goodPassword) {
		t.Errorf("with a password that was revoked: %v, want class %q without the password", err, actuator.CredentialsInvalid)
	}
	cloud.Change(func() { cloud.isRevoked = false })
	if err := observe(); err != nil {
		t.Errorf("with a password that is good again: %v", err)
	}
}

func TestServersStartFromEveryStoppedStatus(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newCluster()
	ids := c.Create(t, 4)
	cloud.Change(func() {
		for i, status := range []string{"SHUTOFF", "SHELVED_OFFLOADED", "SHELVED", "SUSPENDED"} {
			cloud.servers[ids[i]].status = status
		}
	})
	expectStates(t, c, actuator.Stopped)
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("stop a stopped server: %v", err)
	}
	if err := cloud.actuator.Start(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("start: %v", err)
	}
	c.Settle(t)
	expectStates(t, c, actuator.Running)
	cloud.Change(func() { cloud.servers[ids[0]].isLocked, cloud.servers[ids[1]].status = true, "PAUSED" })
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	known, _ := errors.AsType[*actuator.Error](err)
	want := fmt.Sprintf("other: stop servers: locked for %s: the server is locked; unlock it: openstack server unlock; "+
		"paused for %s: the server is paused and stays so until you run: openstack server unpause", ids[0], ids[1])
	if known == nil || known.Error() != want || !cmp.Equal(known.RefusedIDs, ids[:2]) {
		t.Errorf("stop a locked and a paused server:\nfound %v\nwant  %s", err, want)
	}
}

func TestServersAreShelvedIfStopMethodIsShelve(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newShelvedCluster()
	ids := c.Create(t, 5)
	cloud.Change(func() {
		for i, status := range []string{"SHUTOFF", "SUSPENDED", "SHELVED"} {
			cloud.servers[ids[i]].status = status
		}
		cloud.servers[ids[0]].isLocked, cloud.servers[ids[4]].status = true, "ERROR"
	})
	expectHeld := func(want ...string) {
		t.Helper()
		machines, err := cloud.actuator.Observe(t.Context(), c.Target())
		var held []string
		for _, m := range machines {
			if m.HoldsCapacity {
				held = append(held, m.ID)
			}
		}
		if err != nil || !cmp.Equal(held, want) {
			t.Errorf("servers that are off but hold their hosts: %v, %v, want %v", held, err, want)
		}
	}
	expectHeld(ids[0], ids[1])
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	if known, _ := errors.AsType[*actuator.Error](err); known == nil || !cmp.Equal(known.RefusedIDs, ids[:1]) || !strings.Contains(err.Error(), "openstack server unlock") {
		t.Errorf("shelve a server that is off and locked: %v, want a refusal", err)
	}
	c.Settle(t)
	expectHeld(ids[0], ids[4]) // A failed server is turned off in one pass, and shelved in the next.
	cloud.Change(func() { cloud.servers[ids[0]].isLocked = false })
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("shelve the others: %v", err)
	}
	c.Settle(t)
	expectHeld()
}

// TestServersThatStayShelvedAreReported uses a cloud that accepts the order to unshelve although it has no room, as
// OpenStack does.
func TestServersThatStayShelvedAreReported(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newShelvedCluster()
	ids := c.Create(t, 2)
	start := func(want actuator.ErrorClass) {
		t.Helper()
		if err := cloud.actuator.Start(t.Context(), c.Target(), ids); err != nil && actuator.ClassOf(err) != want || err == nil && want != "" {
			t.Errorf("start: %v, want class %q", err, want)
		}
	}
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil {
		t.Fatal(err)
	}
	c.Settle(t)
	cloud.Change(func() { cloud.hasNoRoom = true })
	start("")
	start(actuator.NoCapacity)
	start("")
	cloud.Change(func() { cloud.hasNoRoom = false })
	start(actuator.NoCapacity)
	start("")
	c.Settle(t)
	expectStates(t, c.simulatedCluster, actuator.Running)
}

func TestAnUnshelveBeyondTheQuotaHasNoCapacity(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newShelvedCluster()
	ids := c.Create(t, 2)
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil {
		t.Fatal(err)
	}
	c.Settle(t)
	cloud.Change(func() { cloud.quotaIsUsed = true })
	err := cloud.actuator.Start(t.Context(), c.Target(), ids)
	if actuator.ClassOf(err) != actuator.NoCapacity || !strings.Contains(err.Error(), "Quota exceeded for instances") {
		t.Errorf("start: %v, want class %q and nova's message", err, actuator.NoCapacity)
	}
	cloud.Change(func() { cloud.quotaIsUsed = false })
	if err := cloud.actuator.Start(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("start once there is capacity: %v", err)
	}
}

// TestUnstoppableStateIsAPermanentRefusal uses the states in which nova does not stop a server.
func TestUnstoppableStateIsAPermanentRefusal(t *testing.T) {
	for _, row := range []struct {
		status, task string
		class        actuator.ErrorClass
		want         string
	}{
		{"PAUSED", "", actuator.Other, "openstack server unpause"},
		{"RESCUE", "", actuator.Other, "openstack server unrescue"},
		{"VERIFY_RESIZE", "", actuator.Other, "openstack server resize confirm"},
		{"PAUSED", "unpausing", actuator.WrongState, "does not allow the order now"},
		{"MIGRATING", "migrating", actuator.WrongState, "does not allow the order now"},
		{"BUILD", "spawning", actuator.WrongState, "does not allow the order now"},
	} {
		cloud := startOpenStack(t)
		c := cloud.newCluster()
		ids := c.Create(t, 1)
		cloud.Change(func() {
			cloud.servers[ids[0]].status, cloud.servers[ids[0]].task = row.status, row.task
		})
		err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
		if err == nil || actuator.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.want) {
			t.Errorf("stop from %s %s: %v, want class %q and %q", row.status, row.task, err, row.class, row.want)
		}
	}
}

func expectStates(t *testing.T, c *simulatedCluster, want actuator.MachineState) {
	t.Helper()
	machines, err := c.actuator.Observe(t.Context(), c.Target())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		if m.State != want || c.nova == nil && !cmp.Equal(m.Addresses, []string{"10.0.0.7"}) {
			t.Errorf("machine %+v, want %s and its address", m, want)
		}
	}
}

func TestStatesOfServers(t *testing.T) {
	for _, row := range []struct {
		status, task string
		power        servers.PowerState
		want         actuator.MachineState
	}{
		{"ACTIVE", "", servers.RUNNING, actuator.Running},
		{"ACTIVE", "powering-off", servers.RUNNING, actuator.Stopping},
		{"ACTIVE", "suspending", servers.RUNNING, actuator.Stopping},
		{"ACTIVE", "image_snapshot", servers.RUNNING, actuator.Running},
		{"SHUTOFF", "", servers.SHUTDOWN, actuator.Stopped},
		{"SHUTOFF", "powering-on", servers.SHUTDOWN, actuator.Starting},
		{"SHUTOFF", "shelving_offloading", servers.SHUTDOWN, actuator.Stopping},
		{"SHELVED_OFFLOADED", "", servers.NOSTATE, actuator.Stopped},
		{"SHELVED_OFFLOADED", "unshelving", servers.NOSTATE, actuator.Starting},
		{"SUSPENDED", "", servers.SUSPENDED, actuator.Stopped},
		{"PAUSED", "", servers.PAUSED, actuator.Running},
		{"BUILD", "spawning", servers.NOSTATE, actuator.Starting},
		{"REBOOT", "rebooting", servers.RUNNING, actuator.Starting},
		{"ERROR", "", servers.RUNNING, actuator.Running},
		{"ERROR", "", servers.NOSTATE, actuator.Stopped},
		{"NEW_IN_THE_NEXT_RELEASE", "", servers.RUNNING, actuator.Starting},
	} {
		if got := stateOf(&servers.Server{Status: row.status, TaskState: row.task, PowerState: row.power}); got != row.want {
			t.Errorf("%s %s: found %s, want %s", row.status, row.task, got, row.want)
		}
	}
	for _, gone := range []*servers.Server{{Status: "DELETED"}, {Status: "SOFT_DELETED"}, {Status: "ACTIVE", TaskState: "deleting"}} {
		if !isGone(gone) {
			t.Errorf("%s %s counts as a machine, want it left out", gone.Status, gone.TaskState)
		}
	}
}

func TestHostileAnswersAreCut(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		want   string
	}{
		"next page at another host is refused":       {`{"servers":[{"id":"a"}],"servers_links":[{"rel":"next","href":"http://evil.example.com/"}]}`, "contains a URL outside the cloud"},
		"next page at another port is refused":       {`{"servers":[{"id":"a"}],"servers_links":[{"rel":"next","href":"http://127.0.0.1:1/"}]}`, "contains a URL outside the cloud"},
		"endless pages are refused":                  {`{"servers":[{"id":"a"}],"servers_links":[{"rel":"next","href":"SERVER/compute/v2.1/servers/detail"}]}`, "more pages or servers than allowed"},
		"answer that is not JSON is refused":         {`<html>`, "the response is not a valid OpenStack response"},
		"server without an id is refused":            {`{"servers":[{}]}`, "the response is not a valid OpenStack response"},
		"server id with a path traversal is refused": {`{"servers":[{"id":"../../os-keypairs"}]}`, "the response is not a valid OpenStack response"},
		"servers that are not a list are refused":    {`{"servers":"x"}`, "the response is not a valid OpenStack response"},
		"id above the maximum length is refused":     {`{"servers":[{"id":"` + strings.Repeat("a", maxNameBytes+1) + `"}]}`, "the response is not a valid OpenStack response"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startOpenStack(t)
			cloud.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, strings.ReplaceAll(row.answer, "SERVER", cloud.server.URL))
				return true
			}
			found, err := cloud.actuator.Observe(t.Context(), cloud.newCluster().Target())
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) || len(found) > 0 {
				t.Errorf("found %v and %v, want an error of class %q with %q", found, err, actuator.Unreachable, row.want)
			}
		})
	}
}

// TestAnswersHaveABudget uses an answer that is larger than any page.
func TestAnswersHaveABudget(t *testing.T) {
	cloud := startOpenStack(t)
	cloud.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
		piece := bytes.Repeat([]byte(" "), 64<<10)
		for sent := 0; sent < 2*maxAnswerBytes; sent += len(piece) {
			if _, err := w.Write(piece); err != nil {
				break
			}
		}
		return true
	}
	_, err := cloud.actuator.Observe(t.Context(), cloud.newCluster().Target())
	if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "larger than allowed") {
		t.Errorf("found %v, want an error about an answer that is larger than allowed", err)
	}
}

// TestServersOfSecrets checks which servers a Secret may refer to, and which servers' messages are shown.
func TestServersOfSecrets(t *testing.T) {
	const words = "a secret of the internal network"
	for name, row := range map[string]struct {
		url    string
		listed []string
		class  actuator.ErrorClass
		shown  bool
	}{
		"host without a list of endpoints is allowed and its message is hidden": {"https://openstack.example.com/v3", nil, actuator.CredentialsInvalid, false},
		"listed host is allowed and its message is shown":                       {"https://openstack.example.com/v3", []string{"*.example.com"}, actuator.CredentialsInvalid, true},
		"unlisted host is refused":                                              {"https://openstack.example.com/v3", []string{"10.0.0.0/8"}, actuator.Other, false},
		"metadata service is refused":                                           {"http://169.254.169.254/v3", nil, actuator.Other, false},
		"listed metadata service is allowed and its message is shown":           {"http://169.254.169.254/v3", []string{"169.254.169.254"}, actuator.CredentialsInvalid, true},
	} {
		t.Run(name, func(t *testing.T) {
			listed, err := httpguard.ParseEndpoints(row.listed)
			if err != nil {
				t.Fatal(err)
			}
			answer := roundTripperFunc(func(*http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				writeError(w, http.StatusUnauthorized, "error", words)
				return w.Result(), nil
			})
			secret := map[string][]byte{cloudsKey: fmt.Appendf(nil, "clouds: {fleet: {auth: {auth_url: %q, application_credential_id: a, application_credential_secret: b}}}", row.url)}
			_, err = New(Options{Transport: answer, Endpoints: listed}).Observe(t.Context(), actuator.Target{InfraID: "a", Cloud: "fleet", Credentials: secret})
			if actuator.ClassOf(err) != row.class || strings.Contains(err.Error(), words) != row.shown {
				t.Errorf("found %v, want class %q and the server's message shown: %t", err, row.class, row.shown)
			}
		})
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedirectsAreNotFollowed redirects the login, including its password, to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("expected no request to another host, found %s %s", r.Method, r.URL)
	}))
	defer stranger.Close()
	server := httptest.NewServer(http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	cloud := startOpenStack(t)
	target := cloud.newCluster().Target()
	target.Credentials = map[string][]byte{cloudsKey: bytes.ReplaceAll(target.Credentials[cloudsKey], []byte(cloud.server.URL), []byte(server.URL))}
	if _, err := cloud.actuator.Observe(t.Context(), target); actuator.ClassOf(err) != actuator.Unreachable {
		t.Errorf("found %v, want class %q", err, actuator.Unreachable)
	}
}

func TestCredentials(t *testing.T) {
	cloud := startOpenStack(t)
	good := string(cloud.credentials("")[cloudsKey])
	replace := func(old, with string) map[string][]byte {
		return map[string][]byte{cloudsKey: []byte(strings.Replace(good, old, with, 1))}
	}
	for name, row := range map[string]struct {
		secret map[string][]byte
		class  actuator.ErrorClass
		says   string
	}{
		"password is accepted":                                            {secret: replace("", "")},
		"endpoint_type instead of interface is accepted":                  {secret: cloud.credentials("    endpoint_type: publicURL\n")},
		"cacert with the path of the system's certificates is accepted":   {secret: cloud.credentials("    cacert: " + systemRoots + "\n")},
		"missing Secret is CredentialsMissing":                            {class: actuator.CredentialsMissing, says: "has no clouds.yaml"},
		"clouds.yaml that is not YAML is CredentialsInvalid":              {secret: map[string][]byte{cloudsKey: []byte("hush: [")}, class: actuator.CredentialsInvalid, says: "expected YAML"},
		"clouds.yaml without the requested cloud is CredentialsInvalid":   {secret: replace("fleet:", "other:"), class: actuator.CredentialsInvalid, says: `no cloud "fleet"`},
		"missing auth_url is CredentialsMissing":                          {secret: replace("auth_url", "url"), class: actuator.CredentialsMissing, says: "has no auth_url"},
		"auth_url with the scheme file is CredentialsInvalid":             {secret: replace("http://", "file://"), class: actuator.CredentialsInvalid, says: "must be a URL"},
		"auth_url with a password is CredentialsInvalid":                  {secret: replace("http://", "http://a:hush@"), class: actuator.CredentialsInvalid, says: "must be a URL"},
		"auth_url of version 2.0 is CredentialsInvalid":                   {secret: replace("/identity/v3", "/identity/v2.0"), class: actuator.CredentialsInvalid, says: "version 2.0"},
		"missing user is CredentialsMissing":                              {secret: replace("username", "name"), class: actuator.CredentialsMissing, says: "neither application_credential_id nor username"},
		"missing password is CredentialsMissing":                          {secret: replace("password", "pass"), class: actuator.CredentialsMissing, says: "has no password"},
		"missing project is CredentialsMissing":                           {secret: replace("project_id", "project"), class: actuator.CredentialsMissing, says: "neither project_id nor project_name"},
		"application credential without its secret is CredentialsMissing": {secret: replace("username", "application_credential_id"), class: actuator.CredentialsMissing, says: "application_credential_secret"},
		"wrong password is CredentialsInvalid":                            {secret: replace(goodPassword, "hush"), class: actuator.CredentialsInvalid, says: "login: status 401 Unauthorized: The request you have made requires authentication for <hidden>"},
		"unknown region is reported":                                      {secret: replace("region_name: here", "region_name: nowhere"), class: actuator.Other, says: `the region "nowhere"`},
		"compute service that does not answer is Unreachable":             {secret: replace("region_name: here", "region_name: other"), class: actuator.Unreachable, says: "the API does not respond"},
		"verify: false is CredentialsInvalid":                             {secret: cloud.credentials("    verify: false\n"), class: actuator.CredentialsInvalid, says: "verify: false"},
		"cacert outside the Secret is CredentialsInvalid":                 {secret: cloud.credentials("    cacert: /etc/passwd\n"), class: actuator.CredentialsInvalid, says: "reads no files"},
		"cacert without certificates is CredentialsInvalid":               {secret: cloud.credentials("    cacert: " + mountedSecret + "ca.pem\n"), class: actuator.CredentialsInvalid, says: `the key "ca.pem" of the Secret`},
		"client certificate is CredentialsInvalid":                        {secret: cloud.credentials("    cert: /etc/x\n"), class: actuator.CredentialsInvalid, says: "has cert"},
		"cloud with a profile is CredentialsInvalid":                      {secret: cloud.credentials("    profile: rackspace\n"), class: actuator.CredentialsInvalid, says: "refers to a profile"},
		"interface admin is CredentialsInvalid":                           {secret: cloud.credentials("    interface: admin\n"), class: actuator.CredentialsInvalid, says: "expected public or internal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cloud.actuator.Observe(t.Context(), actuator.Target{InfraID: "a", Cloud: "fleet", Credentials: row.secret})
			if row.class == "" {
				if err != nil {
					t.Errorf("found %v, want a login", err)
				}
				return
			}
			if actuator.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "hush") {
				t.Errorf("found %v, want class %q and %q without a secret", err, row.class, row.says)
			}
		})
	}
}

// TestOwnCertificatesAreTrusted uses a cloud with a certificate that no authority of the system has signed.
func TestOwnCertificatesAreTrusted(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newCluster()
	encrypted := httptest.NewTLSServer(cloud)
	defer encrypted.Close()
	plain := cloud.server.URL
	cloud.server.URL = encrypted.URL // The catalog contains this URL.
	defer func() { cloud.server.URL = plain }()
	target := c.Target()
	if _, err := cloud.actuator.Observe(t.Context(), target); actuator.ClassOf(err) != actuator.Unreachable {
		t.Errorf("without its certificate: %v, want class %q", err, actuator.Unreachable)
	}
	target.Credentials = cloud.credentials("    cacert: " + mountedSecret + "ca.pem\n")
	target.Credentials["ca.pem"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encrypted.Certificate().Raw})
	if _, err := cloud.actuator.Observe(t.Context(), target); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	cloud.server.URL = plain // The catalog now refers to a service without TLS.
	for _, scheme := range []string{"https://", "HTTPS://"} {
		target.Credentials[cloudsKey] = bytes.Replace(target.Credentials[cloudsKey], []byte("https://"), []byte(scheme), 1)
		target.Credentials[cloudsKey] = bytes.Replace(target.Credentials[cloudsKey], []byte("Default"), []byte("default"), 1)
		if _, err := cloud.actuator.Observe(t.Context(), target); actuator.ClassOf(err) != actuator.Other || !strings.Contains(fmt.Sprint(err), "without TLS") {
			t.Errorf("%s with a compute service without TLS: %v, want an error about the missing TLS", scheme, err)
		}
	}
}

func TestAccountNames(t *testing.T) {
	cloud := startOpenStack(t)
	account := func(change func(*actuator.Target)) string {
		target := actuator.Target{InfraID: "one", Cloud: "fleet", Credentials: cloud.credentials("")}
		change(&target)
		name, err := cloud.actuator.AccountOf(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	replace := func(old, with string) func(*actuator.Target) {
		return func(t *actuator.Target) {
			t.Credentials = map[string][]byte{cloudsKey: bytes.Replace(t.Credentials[cloudsKey], []byte(old), []byte(with), 1)}
		}
	}
	first := account(func(*actuator.Target) {})
	for name, row := range map[string]struct {
		change func(*actuator.Target)
		shared bool
	}{
		"targets with different infraIDs have the same account":           {func(t *actuator.Target) { t.InfraID = "other" }, true},
		"targets with different regions have different accounts":          {replace("here", "there"), false},
		"targets with different projects have different accounts":         {replace(goodProject, "other"), false},
		"targets with different users have different accounts":            {replace("username: torpor", "username: other"), false},
		"targets with different passwords have different accounts":        {replace(goodPassword, "other"), false},
		"targets with different identity servers have different accounts": {replace("/identity/v3", "/v3"), false},
	} {
		if got := account(row.change); (got == first) != row.shared || strings.Contains(got, goodPassword) {
			t.Errorf("%s: accounts %s and %s, want them to be equal: %t", name, got, first, row.shared)
		}
	}
}

func TestCallersAtTheSameTimeLogInOnce(t *testing.T) {
	cloud := startOpenStack(t)
	c := cloud.newCluster()
	c.Create(t, 1)
	var begin, work sync.WaitGroup
	begin.Add(1)
	for range 50 {
		work.Go(func() {
			begin.Wait()
			if _, err := cloud.actuator.Observe(t.Context(), c.Target()); err != nil {
				t.Error(err)
			}
		})
	}
	begin.Done()
	work.Wait()
	if logins := cloud.CountCalls()["login"]; logins != 1 {
		t.Errorf("%d logins, want 1", logins)
	}
}
