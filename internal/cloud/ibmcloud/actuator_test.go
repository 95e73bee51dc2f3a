// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestCallsAreFew(t *testing.T) {
	cloud := startIBMCloud(t)
	actuatortest.ExpectCalls(t, [3]actuatortest.FaultyCloud{cloud.newCluster(), cloud.newCluster(), cloud.newCluster()}, map[string]int{login: 1, list: 3, stop: 12})
}

func TestTroubleAtIBMCloud(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		op    actuatortest.Operation
		// calls is the number of calls of the operation for three instances.
		calls      int
		class      actuator.ErrorClass
		retryAfter time.Duration
	}{
		"failed listing is retried up to the limit":          {actuatortest.Fault{Operation: list, Status: http.StatusBadGateway}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"429 is not retried and its Retry-After is returned": {actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, RetryAfter: "90"}, actuatortest.Observe, 1, actuator.Throttled, 90 * time.Second},
		"Retry-After of an overloaded cloud is returned":     {actuatortest.Fault{Operation: list, Status: http.StatusServiceUnavailable, RetryAfter: "7"}, actuatortest.Observe, 1, actuator.Throttled, 7 * time.Second},
		"Retry-After of a rejected login is returned":        {actuatortest.Fault{Operation: login, Status: http.StatusTooManyRequests, RetryAfter: "9"}, actuatortest.Observe, 1, actuator.Throttled, 9 * time.Second},
		"login that fails with 502 counts as unreachable":    {actuatortest.Fault{Operation: login, Status: http.StatusBadGateway}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"failed stop call is not retried":                    {actuatortest.Fault{Operation: stop, Status: http.StatusBadGateway}, actuatortest.Stop, 3, actuator.Unreachable, 0},
		"failed start call is retried":                       {actuatortest.Fault{Operation: start, Status: http.StatusBadGateway}, actuatortest.Start, 6, actuator.Unreachable, 0},
		"exceeded quota counts as missing capacity":          {actuatortest.Fault{Operation: start, Status: http.StatusConflict, Code: "over_quota"}, actuatortest.Start, 3, actuator.NoCapacity, 0},
	} {
		t.Run(name, func(t *testing.T) {
			actuatortest.ExpectEffect(t, startIBMCloud(t).newCluster(), row.op, row.fault, actuatortest.FaultEffect{Class: row.class, RetryAfter: row.retryAfter, Calls: row.calls})
		})
	}
}

// TestATokenIsRenewed uses an expired token, and then a revoked API key.
func TestATokenIsRenewed(t *testing.T) {
	cloud := startIBMCloud(t)
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
	if actuator.ClassOf(err) != actuator.CredentialsInvalid || !strings.Contains(err.Error(), "BXNIM0415E: Provided API key could not be found: <hidden>") {
		t.Errorf("with an API key that was revoked: %v, want class %q and IBM Cloud's message", err, actuator.CredentialsInvalid)
	}
	cloud.Change(func() { cloud.isRevoked = false })
	if err := observe(); err != nil {
		t.Errorf("with an API key that is good again: %v", err)
	}
}

// TestLateStartFailureIsReported uses an order that is accepted and fails after the second observation of the
// instance.
func TestLateStartFailureIsReported(t *testing.T) {
	cloud := startIBMCloud(t)
	c := cloud.newCluster()
	ids := c.Create(t, 1)
	cloud.Change(func() { cloud.instances[ids[0]].status, cloud.startLooks = "stopped", 2 })
	cloud.Inject(t, actuatortest.Fault{Operation: start, Code: "cannot_start_capacity", IsLater: true})
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
}

func TestReasonsWhyAnInstanceDoesNotComeUp(t *testing.T) {
	for code, want := range map[string]actuator.ErrorClass{
		"cannot_start_capacity": actuator.NoCapacity, "cannot_start_reservation_capacity": actuator.NoCapacity,
		"cannot_start_network": actuator.Other, "cannot_start": actuator.Other,
	} {
		if got := classOfReason(code); got != want {
			t.Errorf("%s: found class %q, want %q", code, got, want)
		}
	}
}

func TestAnInstanceInAnotherStateIsNamed(t *testing.T) {
	cloud := startIBMCloud(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	cloud.Change(func() { cloud.instances[ids[1]].status = "restarting" })
	err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
	known, _ := errors.AsType[*actuator.Error](err)
	if known == nil || known.Class != actuator.WrongState || !cmp.Equal(known.RefusedIDs, ids[1:2]) {
		t.Errorf("stop a restarting instance: %v, want class %q for %s only", err, actuator.WrongState, ids[1])
	}
}

func TestStatesOfInstances(t *testing.T) {
	for status, want := range map[string]actuator.MachineState{
		"running": actuator.Running, "pending": actuator.Starting, "starting": actuator.Starting, "restarting": actuator.Starting,
		"stopping": actuator.Stopping, "stopped": actuator.Stopped, "failed": actuator.Stopped, "new_in_the_next_release": actuator.Starting,
	} {
		if got := stateOf(status); got != want {
			t.Errorf("%s: found %s, want %s", status, got, want)
		}
	}
}

func TestOwnersOfInstances(t *testing.T) {
	for name, row := range map[string]struct {
		vm      vpcInstance
		isOwned bool
	}{
		"worker in the cluster's VPC is owned":                                   {vpcInstance{Name: "a-worker", VPC: namedReference{"a-vpc"}}, true},
		"worker in the cluster's resource group is owned":                        {vpcInstance{Name: "a-worker", VPC: namedReference{"net"}, ResourceGroup: namedReference{"a"}}, true},
		"machine with the cluster's name outside its VPC and group is not owned": {vpcInstance{Name: "a-worker", VPC: namedReference{"net"}}, false},
		"machine with another name in the cluster's VPC is not owned":            {vpcInstance{Name: "bastion", VPC: namedReference{"a-vpc"}}, false},
		"machine of a cluster with a longer name is not owned":                   {vpcInstance{Name: "a-b-worker", VPC: namedReference{"a-b-vpc"}, ResourceGroup: namedReference{"a-b"}}, false},
	} {
		if got := isOwnedBy(&row.vm, "a"); got != row.isOwned {
			t.Errorf("%s: owned is %t, want %t", name, got, row.isOwned)
		}
	}
}

// TestEveryMembershipNamesAGroup uses memberships without the name of their group. Each of them counts, because a
// stop would destroy the instance.
func TestEveryMembershipNamesAGroup(t *testing.T) {
	longest := strings.Repeat("w", maxNameBytes)
	for name, row := range map[string]struct{ membership, want string }{
		"machine without a membership belongs to no group":                      {`null`, ""},
		"member is reported with the name of its group":                         {`{"id":"m","instance_group":{"id":"g","name":"workers"}}`, "workers"},
		"member of a group without a name is reported with the id of the group": {`{"id":"m","instance_group":{"id":"g"}}`, "g"},
		"membership without a group is reported with its own id":                {`{"id":"m"}`, "m"},
		"empty membership is reported with the name of the instance":            {`{}`, "the-instance"},
		"long group name is shortened":                                          {`{"instance_group":{"name":"` + longest + `w"}}`, longest},
		"group name is not shortened within a character":                        {`{"instance_group":{"name":"` + longest[1:] + `ä"}}`, longest[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			var vm vpcInstance
			text := `{"id":"the-instance","instance_group_membership":` + row.membership + `}`
			testenv.ExpectNoError(t, json.Unmarshal([]byte(text), &vm))
			testenv.ExpectEqual(t, "group", row.want, describeMachine(&vm, "a").Group)
		})
	}
}

func TestMachinesAreDescribed(t *testing.T) {
	cloud := startIBMCloud(t)
	c := cloud.newCluster()
	ids := c.Create(t, 2)
	cloud.Change(func() { cloud.instances[ids[1]].status = "deleting" })
	found, err := cloud.actuator.Observe(t.Context(), c.Target())
	want := []actuator.Machine{{ID: ids[0], Name: c.infraID + "-worker-1", State: actuator.Running, Role: actuator.WorkerRole, Account: "ibmcloud/" + goodAccount, Addresses: []string{"10.0.0.7"}}}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("error %v, machines (-want +found):\n%s", err, diff)
	}
}

func TestHostileAnswersAreCut(t *testing.T) {
	for name, row := range map[string]struct{ answer, want string }{
		"endless pages are refused":                          {`{"next":{"href":"https://eu-de.iaas.cloud.ibm.com/v1/instances?start=again"}}`, "more pages or instances than allowed"},
		"next page without a start is refused":               {`{"next":{"href":"https://evil.example.com/"}}`, "the response is not a valid IBM Cloud VPC response"},
		"answer that is not JSON is refused":                 {`<html>`, "the response is not the JSON that the API returns"},
		"instances that are not a list are refused":          {`{"instances":"x"}`, "the response is not the JSON that the API returns"},
		"instance without an id is refused":                  {`{"instances":[{}]}`, "the response is not a valid IBM Cloud VPC response"},
		"instance id with a path traversal is refused":       {`{"instances":[{"id":"../keys"}]}`, "the response is not a valid IBM Cloud VPC response"},
		"name above the maximum length is refused":           {`{"instances":[{"id":"a","name":"` + strings.Repeat("a", maxNameBytes+1) + `"}]}`, "the response is not a valid IBM Cloud VPC response"},
		"answer above the maximum size of a page is refused": {strings.Repeat(" ", 9<<20), "larger than allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startIBMCloud(t)
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

func TestCredentials(t *testing.T) {
	cloud := startIBMCloud(t)
	key := func(value string) map[string][]byte { return map[string][]byte{apiKeyKey: []byte(value)} }
	for name, row := range map[string]struct {
		secret map[string][]byte
		region string
		class  actuator.ErrorClass
		says   string
	}{
		"API key is accepted":                            {secret: key(goodAPIKey), region: goodRegion},
		"missing Secret is CredentialsMissing":           {region: goodRegion, class: actuator.CredentialsMissing, says: "has no ibmcloud_api_key"},
		"empty API key is CredentialsMissing":            {secret: key(" \n"), region: goodRegion, class: actuator.CredentialsMissing, says: "has no ibmcloud_api_key"},
		"unknown API key is CredentialsInvalid":          {secret: key("hush"), region: goodRegion, class: actuator.CredentialsInvalid, says: "login: BXNIM0415E"},
		"API key that is too long is CredentialsInvalid": {secret: key(strings.Repeat("hush", 200)), region: goodRegion, class: actuator.CredentialsInvalid, says: "longer than an API key"},
		"missing region is reported":                     {secret: key(goodAPIKey), class: actuator.Other, says: "expected a region such as eu-de"},
		"host as a region is reported":                   {secret: key(goodAPIKey), region: "evil.example.com/", class: actuator.Other, says: "expected a region such as eu-de"},
		"number as a region is reported":                 {secret: key(goodAPIKey), region: "-1", class: actuator.Other, says: "expected a region such as eu-de"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cloud.actuator.Observe(t.Context(), actuator.Target{InfraID: "a", Region: row.region, Credentials: row.secret})
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
	cloud := startIBMCloud(t)
	account := func(infraID, region, key string) string {
		name, err := cloud.actuator.AccountOf(t.Context(), actuator.Target{InfraID: infraID, Region: region, Credentials: map[string][]byte{apiKeyKey: []byte(key)}})
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := account("a", goodRegion, goodAPIKey)
	if got := account("b", goodRegion, goodAPIKey); got != first {
		t.Errorf("two clusters of one API key have the accounts %s and %s, want one", first, got)
	}
	for _, other := range []string{account("a", "us-south", goodAPIKey), account("a", goodRegion, "other-key")} {
		if other == first || strings.Contains(other, goodAPIKey) {
			t.Errorf("with another region or key: account %s, want another one than %s", other, first)
		}
	}
}

func TestCallersAtTheSameTimeLogInOnce(t *testing.T) {
	cloud := startIBMCloud(t)
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
