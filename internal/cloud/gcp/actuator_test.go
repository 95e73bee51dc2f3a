// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

func TestCallsAreFew(t *testing.T) {
	cloud := startGCP(t)
	actuatortest.ExpectCalls(t, [3]actuatortest.FaultyCloud{cloud.newCluster(), cloud.newCluster(), cloud.newCluster()}, map[string]int{login: 1, list: 3, quotaRead: 1, stop: 12})
}

func TestTroubleAtGoogleCloud(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		op    actuatortest.Operation
		// calls is the number of calls of the operation for three instances.
		calls      int
		class      actuator.ErrorClass
		retryAfter time.Duration
	}{
		"failed listing is retried up to the limit":              {actuatortest.Fault{Operation: list, Status: http.StatusBadGateway}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"429 is not retried and its Retry-After is returned":     {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "90"}, actuatortest.Observe, 1, actuator.Throttled, 90 * time.Second},
		"rateLimitExceeded counts as throttling with any status": {actuatortest.Fault{Operation: list, Status: http.StatusForbidden, Code: "rateLimitExceeded"}, actuatortest.Observe, 1, actuator.Throttled, 0},
		"Retry-After of an overloaded cloud is returned":         {actuatortest.Fault{Operation: list, Status: http.StatusServiceUnavailable, RetryAfter: "7"}, actuatortest.Observe, 1, actuator.Throttled, 7 * time.Second},
		"excessive Retry-After is capped":                        {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "9999999"}, actuatortest.Observe, 1, actuator.Throttled, 10 * time.Minute},
		"Retry-After of a rejected login is returned":            {actuatortest.Fault{Operation: login, Status: http.StatusTooManyRequests, RetryAfter: "9"}, actuatortest.Observe, 1, actuator.Throttled, 9 * time.Second},
		"login that fails with 502 counts as unreachable":        {actuatortest.Fault{Operation: login, Status: http.StatusBadGateway}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"failed stop call is not retried":                        {actuatortest.Fault{Operation: stop, Status: http.StatusBadGateway}, actuatortest.Stop, 3, actuator.Unreachable, 0},
		"failed start call is retried":                           {actuatortest.Fault{Operation: start, Status: http.StatusBadGateway}, actuatortest.Start, 6, actuator.Unreachable, 0},
		"exceeded quota counts as missing capacity":              {actuatortest.Fault{Operation: start, Status: http.StatusForbidden, Code: "quotaExceeded"}, actuatortest.Start, 3, actuator.NoCapacity, 0},
	} {
		t.Run(name, func(t *testing.T) {
			actuatortest.ExpectEffect(t, startGCP(t).newCluster(), row.op, row.fault, actuatortest.FaultEffect{Class: row.class, RetryAfter: row.retryAfter, Calls: row.calls})
		})
	}
}

// TestATokenIsRenewed uses an expired token, and then a revoked key.
func TestATokenIsRenewed(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 1)
	observe := func() error {
		_, err := cloud.actuator.Observe(t.Context(), c.Target())
		return err
	}
	if err := observe(); err != nil {
		t.Fatal(err)
	}
	cloud.Change(func() { cloud.tokens++ })
	if err := observe(); err != nil {
		t.Errorf("with a token that has expired: %v, want another login", err)
	}
	cloud.Change(func() { cloud.isRevoked = true })
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	if actuator.ClassOf(err) != actuator.CredentialsInvalid || !strings.Contains(err.Error(), "invalid_grant: Invalid JWT Signature") {
		t.Errorf("with a key that was revoked: %v, want class %q and Google's message", err, actuator.CredentialsInvalid)
	}
	cloud.Change(func() { cloud.isRevoked = false })
	if err := observe(); err != nil {
		t.Errorf("with a key that is good again: %v", err)
	}
}

// TestLateStartFailureIsReported uses an order that is accepted and fails after its second observation.
func TestLateStartFailureIsReported(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 1)
	cloud.Change(func() { cloud.instances[ids[0]].status, cloud.orderLooks = "TERMINATED", 2 })
	cloud.Inject(t, actuatortest.Fault{Operation: start, Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", IsLater: true})
	for i, want := range []struct {
		class  actuator.ErrorClass
		starts int
	}{{"", 1}, {"", 0}, {actuator.NoCapacity, 0}, {"", 1}} {
		err := cloud.actuator.Start(t.Context(), c.Target(), ids)
		if err != nil && actuator.ClassOf(err) != want.class || err == nil && want.class != "" {
			t.Errorf("start %d: found %v, want class %q", i, err, want.class)
		}
		if got := cloud.CountCalls()[start]; got != want.starts {
			t.Errorf("start %d: %d orders were sent, want %d", i, got, want.starts)
		}
	}
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil && actuator.ClassOf(err) != actuator.WrongState {
		t.Errorf("stop: %v", err)
	}
	c.Settle(t)
	if err := cloud.actuator.Start(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("start after a stop: %v, want a new order", err)
	}
}

func TestASuspendedInstanceIsResumed(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 2)
	cloud.Change(func() { cloud.instances[ids[0]].status, cloud.instances[ids[1]].status = "SUSPENDED", "REPAIRING" })
	err := cloud.actuator.Start(t.Context(), c.Target(), ids)
	if err != nil {
		t.Errorf("start a suspended instance and one that is starting: %v", err)
	}
	c.Settle(t)
	cloud.Change(func() {
		if got := cloud.instances[ids[0]].status; got != "RUNNING" {
			t.Errorf("the suspended instance is %s, want RUNNING", got)
		}
	})
	err = cloud.actuator.Stop(t.Context(), c.Target(), ids)
	known, _ := errors.AsType[*actuator.Error](err)
	if known == nil || known.Class != actuator.WrongState || !cmp.Equal(known.RefusedIDs, ids[1:]) {
		t.Errorf("stop an instance that is being repaired: %v, want class %q for %s only", err, actuator.WrongState, ids[1])
	}
}

func TestLocalSSDs(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 2)
	cloud.Change(func() { cloud.instances[ids[1]].hasLocalSSD = true })
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	known, _ := errors.AsType[*actuator.Error](err)
	if known == nil || !cmp.Equal(known.RefusedIDs, ids[1:]) || !strings.Contains(known.Message, "set spec.platform.gcp.discardLocalSsdOnHibernate") {
		t.Errorf("without a setting for local SSDs: %v, want an error that names %s and the field", err, ids[1])
	}
	accounts := map[string]bool{}
	for _, discard := range []*bool{nil, new(true), new(false)} {
		target := c.Target()
		target.DiscardLocalDisks = discard
		account, err := cloud.actuator.AccountOf(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		accounts[account] = true
		if discard == nil {
			continue
		}
		cloud.Change(func() { cloud.instances[ids[1]].status = "RUNNING" })
		if err := cloud.actuator.Stop(t.Context(), target, ids[1:]); err != nil {
			t.Errorf("stop: %v", err)
		}
		want := map[bool]string{true: "true", false: "false"}[*discard]
		cloud.Change(func() {
			if got := cloud.instances[ids[1]].discarded; got != want {
				t.Errorf("the cloud received %q, want %q", got, want)
			}
		})
		c.Settle(t)
	}
	if len(accounts) != 3 {
		t.Errorf("%d accounts, want 3: clusters with different settings for disks must not share an order", len(accounts))
	}
}

func TestStatesOfInstances(t *testing.T) {
	for status, want := range map[string]actuator.MachineState{
		"RUNNING": actuator.Running, "PROVISIONING": actuator.Starting, "STAGING": actuator.Starting, "REPAIRING": actuator.Starting,
		"STOPPING": actuator.Stopping, "PENDING_STOP": actuator.Stopping, "SUSPENDING": actuator.Stopping, "DEPROVISIONING": actuator.Stopping,
		"TERMINATED": actuator.Stopped, "STOPPED": actuator.Stopped, "SUSPENDED": actuator.Stopped, "NEW_IN_THE_NEXT_RELEASE": actuator.Starting,
	} {
		if got := stateOf(status); got != want {
			t.Errorf("%s: found %s, want %s", status, got, want)
		}
	}
}

func TestOwnersOfInstances(t *testing.T) {
	label := func(infraID, value string) map[string]string {
		return map[string]string{clusterLabelPrefix + infraID: value, "team": "blue"}
	}
	for name, row := range map[string]struct {
		vm     computeInstance
		wanted []string
		owner  string
	}{
		"instance with the cluster's name and label is found":                         {computeInstance{Name: "a-worker", Labels: label("a", "owned")}, []string{"a"}, "a"},
		"instance with the cluster's name and an unrelated label is found":            {computeInstance{Name: "a-worker", Labels: map[string]string{"team": "blue"}}, []string{"a"}, "a"},
		"instance name that begins with the infraID without a hyphen is not found":    {computeInstance{Name: "ab-worker"}, []string{"a"}, ""},
		"instance named like the infraID is not found":                                {computeInstance{Name: "a"}, []string{"a"}, ""},
		"instance name with a longer infraID is not found":                            {computeInstance{Name: "a-b-worker"}, []string{"a"}, ""},
		"instance with Cluster API's label is found":                                  {computeInstance{Name: "a-md-0-x7k2p-9vq4d", Labels: map[string]string{"capg-cluster-a": "owned"}}, []string{"a"}, "a"},
		"instance with Cluster API's label of another cluster is not found":           {computeInstance{Name: "a-b-worker-0", Labels: map[string]string{"capg-cluster-a-b": "owned"}}, []string{"a"}, ""},
		"instance with the label of another cluster is not found":                     {computeInstance{Name: "a-b-worker", Labels: label("a-b", "owned")}, []string{"a"}, ""},
		"instance with the label of another wanted cluster is found for that cluster": {computeInstance{Name: "a-b-worker", Labels: label("a-b", "owned")}, []string{"a", "a-b"}, "a-b"},
		"instance with the label value shared is not found":                           {computeInstance{Name: "a-worker", Labels: label("a", "shared")}, []string{"a"}, ""},
		"instance with the label and another name is not found":                       {computeInstance{Name: "bastion", Labels: label("a", "owned")}, []string{"a"}, ""},
		"instance name that fits two infraIDs is found for the longer one":            {computeInstance{Name: "a-b-worker"}, []string{"a", "a-b", "a-b-c"}, "a-b"},
	} {
		if got := ownerOf(&row.vm, row.wanted); got != row.owner {
			t.Errorf("%s: found %q, want %q", name, got, row.owner)
		}
	}
}

func TestListingsAreFiltered(t *testing.T) {
	var many []string
	for i := range 400 {
		many = append(many, "cluster-"+strings.Repeat("x", i%20))
	}
	for name, row := range map[string]struct {
		infraIDs []string
		filter   string
	}{
		"filter for one cluster matches its name":                    {[]string{"a"}, `name eq "(a)-.*"`},
		"filter for two clusters matches both names in sorted order": {[]string{"b", "a"}, `name eq "(a|b)-.*"`},
		"filter omits an infraID that is not a valid name":           {[]string{`a".*|.*`, "b"}, `name eq "(b)-.*"`},
		"filter is empty without a valid name":                       {[]string{"A"}, ""},
		"filter that is too long for a URL is omitted":               {many, ""},
	} {
		if got := filterOf(row.infraIDs); got != row.filter {
			t.Errorf("%s: found %q, want %q", name, got, row.filter)
		}
	}
}

func TestHostileAnswersAreCut(t *testing.T) {
	for name, row := range map[string]struct{ answer, want string }{
		"endless pages are refused":                                  {`{"nextPageToken":"again"}`, "more pages or instances than allowed"},
		"answer that is not JSON is refused":                         {`<html>`, "the response is not the JSON that the API returns"},
		"items that are not an object are refused":                   {`{"items":"x"}`, "the response is not the JSON that the API returns"},
		"instance without a name is refused":                         {`{"items":{"zones/a":{"instances":[{}]}}}`, "the response is not a valid Compute Engine response"},
		"instance name with a path traversal is refused":             {`{"items":{"zones/a":{"instances":[{"name":"../x"}]}}}`, "the response is not a valid Compute Engine response"},
		"instance in a region instead of a zone is refused":          {`{"items":{"regions/a":{"instances":[{"name":"x"}]}}}`, "the response is not a valid Compute Engine response"},
		"listing without a zone that does not respond is refused":    {`{"items":{},"unreachables":["zones/b"]}`, `some zones of the project do not respond, such as "zones/b"`},
		"listing with the warning UNREACHABLE for a zone is refused": {`{"items":{"zones/b":{"warning":{"code":"UNREACHABLE"}}}}`, `"zones/b" has the warning "UNREACHABLE"`},
		"answer above the maximum size of a page is refused":         {strings.Repeat(" ", 9<<20), "larger than allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startGCP(t)
			cloud.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, row.answer)
				return true
			}
			found, err := cloud.actuator.Observe(t.Context(), cloud.newCluster().Target())
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) || len(found) > 0 {
				t.Errorf("found %v and %v, want an error of class %q with %q", found, err, actuator.Unreachable, row.want)
			}
		})
	}
}

func TestRightsAreCheckedBeforeAStop(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 4)
	cloud.Change(func() { cloud.rights = []string{"compute.instances.stop"} })
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	if actuator.ClassOf(err) != actuator.PermissionDenied || !strings.Contains(err.Error(), "expected the service account to have compute.instances.start") {
		t.Errorf("without the right to start: %v, want class %q and the right", err, actuator.PermissionDenied)
	}
	if calls := cloud.CountCalls(); calls[stop] != 0 || calls[testRights] > 2 {
		t.Errorf("found %d stops and %d checks of rights, want none and at most one for each zone", calls[stop], calls[testRights])
	}
	cloud.Inject(t, actuatortest.Fault{Operation: testRights, Status: http.StatusForbidden, Code: "forbidden"})
	if err := cloud.actuator.Stop(t.Context(), c.Target(), ids); err != nil {
		t.Errorf("with unreadable rights: %v, want the stop to be tried", err)
	}
}

// TestRightsAreCheckedForEachClusterAndZone uses rights with a condition on names that grants them to one cluster and
// withholds them from another.
func TestRightsAreCheckedForEachClusterAndZone(t *testing.T) {
	for name, row := range map[string]struct {
		ids       []string
		questions int
	}{
		"denied cluster listed first is found with at most two checks":                                 {[]string{"a/denied-worker-a-9vq4d", "a/dev-worker-a-9vq4d"}, 2},
		"denied cluster listed last is found with at most two checks":                                  {[]string{"a/dev-worker-a-9vq4d", "a/denied-worker-a-9vq4d"}, 2},
		"denied cluster whose machine names lack a role is found with at most two checks":              {[]string{"a/denied-gpu-a-9vq4d", "a/dev-gpu-a-9vq4d", "a/dev-gpu-a-x7k2p"}, 2},
		"denied cluster in a separate zone is found with at most two checks":                           {[]string{"a/dev-master-0", "b/denied-master-0", "a/dev-master-1", "a/dev-master-2"}, 2},
		"denied cluster next to a granted cluster in several zones is found with at most three checks": {[]string{"a/dev-master-0", "b/dev-master-1", "b/dev-worker-b-9vq4d", "a/denied-master-0"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startGCP(t)
			var asked atomic.Int32
			cloud.interfere = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/testIamPermissions") {
					return false
				}
				asked.Add(1)
				granted := []string{"compute.instances.stop", "compute.instances.start"}
				if strings.Contains(r.URL.Path, "/denied-") {
					granted = nil
				}
				writeJSON(w, http.StatusOK, map[string]any{"permissions": granted})
				return true
			}
			err := cloud.actuator.RequireStopRights(t.Context(), cloud.newCluster().Target(), row.ids)
			if actuator.ClassOf(err) != actuator.PermissionDenied || int(asked.Load()) > row.questions {
				t.Errorf("found %v after %d checks, want class %q after %d at most", err, asked.Load(), actuator.PermissionDenied, row.questions)
			}
		})
	}
}

func TestRightsChecksOfALargeBatchAreBounded(t *testing.T) {
	const zones = 3
	for _, clusters := range []int{1, maxZoneQuestions / zones, maxZoneQuestions, 2 * maxZoneQuestions} {
		var ids []string
		for i := range clusters {
			for zone := range 2 * zones {
				ids = append(ids, fmt.Sprintf("zone-%d/c%d-worker-%d", zone%zones, i, zone))
			}
		}
		ofCluster, ofZone := map[string]bool{}, map[string]bool{}
		chosen := chooseAsked(ids)
		for _, m := range chosen {
			ofCluster[clusterOf(m.name)], ofZone[m.zone] = true, true
		}
		if len(ofCluster) != clusters || len(ofZone) != zones {
			t.Errorf("found checks for %d clusters and %d zones, want %d and %d", len(ofCluster), len(ofZone), clusters, zones)
		}
		if want := min(clusters*zones, max(maxZoneQuestions, clusters+zones-1)); len(chosen) != want {
			t.Errorf("%d clusters in %d zones: found %d checks, want %d", clusters, zones, len(chosen), want)
		}
	}
}

func TestMachinesAreDescribed(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	id := c.Create(t, 1)[0]
	found, err := cloud.actuator.Observe(t.Context(), c.Target())
	m, _ := parseMachineName(id)
	want := []actuator.Machine{{ID: id, Name: m.name, State: actuator.Running, Role: actuator.WorkerRole, Account: "gcp/" + goodProject, Addresses: []string{
		"10.0.0.7", "192.0.2.7", m.name, m.name + ".c." + goodProject + ".internal", m.name + "." + m.zone + ".c." + goodProject + ".internal",
	}}}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("error %v, machines (-want +found):\n%s", err, diff)
	}
}

func TestCredentials(t *testing.T) {
	cloud := startGCP(t)
	other := func(key, value string) map[string][]byte { return cloud.credentials(map[string]string{key: value}) }
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	notRSA, _ := x509.MarshalPKCS8PrivateKey(curve)
	asPKCS8, _ := x509.MarshalPKCS8PrivateKey(cloud.key)
	pemOf := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	for name, row := range map[string]struct {
		secret map[string][]byte
		class  actuator.ErrorClass
		says   string
	}{
		"service account key is accepted":                                    {secret: other("", "")},
		"service account key in Google's format is accepted":                 {secret: other("private_key", pemOf(asPKCS8))},
		"old token_uri is accepted":                                          {secret: other("token_uri", "https://accounts.google.com/o/oauth2/token")},
		"missing Secret is CredentialsMissing":                               {class: actuator.CredentialsMissing, says: "has no osServiceAccount.json"},
		"key file that is not JSON is CredentialsInvalid":                    {secret: map[string][]byte{serviceAccountKey: []byte("hush {")}, class: actuator.CredentialsInvalid, says: "expected a JSON object"},
		"missing project is CredentialsMissing":                              {secret: other("project_id", ""), class: actuator.CredentialsMissing, says: "has no project_id"},
		"missing private key is CredentialsMissing":                          {secret: other("private_key", ""), class: actuator.CredentialsMissing, says: "has no private_key"},
		"project with a path traversal is CredentialsInvalid":                {secret: other("project_id", "../hush"), class: actuator.CredentialsInvalid, says: "project_id of"},
		"key of the type external_account is CredentialsInvalid":             {secret: other("type", "external_account"), class: actuator.CredentialsInvalid, says: `found "external_account"`},
		"token_uri of another server is CredentialsInvalid":                  {secret: other("token_uri", "https://hush.example.com/"), class: actuator.CredentialsInvalid, says: "token_uri of"},
		"another universe_domain is CredentialsInvalid":                      {secret: other("universe_domain", "hush.example.com"), class: actuator.CredentialsInvalid, says: "universe_domain of"},
		"private key that is not PEM is CredentialsInvalid":                  {secret: other("private_key", "hush"), class: actuator.CredentialsInvalid, says: "private_key of"},
		"private key that is not RSA is CredentialsInvalid":                  {secret: other("private_key", pemOf(notRSA)), class: actuator.CredentialsInvalid, says: "must be an RSA key"},
		"key with the name of another service account is CredentialsInvalid": {secret: other("client_email", "hush@example.com"), class: actuator.CredentialsInvalid, says: "login: invalid_grant"},
		"key with the name of another project is PermissionDenied":           {secret: other("project_id", "another"), class: actuator.PermissionDenied, says: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cloud.actuator.Observe(t.Context(), actuator.Target{InfraID: "a", Credentials: row.secret})
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

func TestAccountNames(t *testing.T) {
	cloud := startGCP(t)
	account := func(infraID string, other map[string]string) string {
		name, err := cloud.actuator.AccountOf(t.Context(), actuator.Target{InfraID: infraID, Credentials: cloud.credentials(other)})
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := account("a", nil)
	if got := account("b", nil); got != first {
		t.Errorf("two clusters of one service account have the accounts %s and %s, want one", first, got)
	}
	for _, field := range []string{"project_id", "client_email", "private_key_id"} {
		if got := account("a", map[string]string{field: "other"}); got == first || strings.Contains(got, "other") {
			t.Errorf("with another %s: account %s, want another one than %s", field, got, first)
		}
	}
}

func TestCallersAtTheSameTimeLogInOnce(t *testing.T) {
	cloud := startGCP(t)
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
	if logins := cloud.CountCalls()[login]; logins != 1 {
		t.Errorf("%d logins, want 1", logins)
	}
}
