// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

func TestCallsAreFew(t *testing.T) {
	cloud := startAzure(t)
	actuatortest.ExpectCalls(t, [3]actuatortest.FaultyCloud{cloud.newCluster(), cloud.newCluster(), cloud.newCluster()}, map[string]int{"login": 1, list: 3, scaleSetRead: 1, quotaRead: 1, deallocate: 12})
	c := cloud.newCluster()
	if err := cloud.actuator.RequireStopRights(t.Context(), c.Target(), c.Create(t, 4)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"permissions": 1}, cloud.CountCalls()); diff != "" {
		t.Errorf("calls for the rights in a group (-want +got):\n%s", diff)
	}
}

func TestTroubleAtAzure(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		op    actuatortest.Operation
		// calls is the maximum number of calls of the operation for three machines.
		calls      int
		class      actuator.ErrorClass
		retryAfter time.Duration
	}{
		"failed listing is retried up to the limit": {actuatortest.Fault{Operation: list, Status: http.StatusServiceUnavailable, Code: "ServerBusy"}, actuatortest.Observe, 2, actuator.Unreachable, 0},
		"listing with a Retry-After of 90 s is not retried": {
			actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "90"}, actuatortest.Observe, 1, actuator.Throttled, 90 * time.Second,
		},
		"excessive Retry-After is capped": {
			actuatortest.Fault{Operation: list, Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "9999999"}, actuatortest.Observe, 1, actuator.Throttled, 10 * time.Minute,
		},
		"failed stop call is not retried": {actuatortest.Fault{Operation: deallocate, Status: http.StatusServiceUnavailable, Code: "ServerBusy"}, actuatortest.Stop, 3, actuator.Unreachable, 0},
		"failed start call is retried":    {actuatortest.Fault{Operation: start, Status: http.StatusServiceUnavailable, Code: "ServerBusy"}, actuatortest.Start, 6, actuator.Unreachable, 0},
		"subscription that does not exist counts as CredentialsInvalid": {
			actuatortest.Fault{Operation: list, Status: http.StatusNotFound, Code: "SubscriptionNotFound"}, actuatortest.Observe, 1, actuator.CredentialsInvalid, 0,
		},
		"machine with an ephemeral OS disk counts as Other": {
			conflict(deallocate, "OperationNotAllowed", "Stop-deallocate is not supported for VMs that use an ephemeral OS disk."),
			actuatortest.Stop, 3, actuator.Other, 0,
		},
		"machine that does not support an operation counts as Other": {
			conflict(deallocate, "OperationNotAllowed", "Operation 'deallocate' is not supported on VM 'worker-0000000'."),
			actuatortest.Stop, 3, actuator.Other, 0,
		},
		"start above the approved quota of cores counts as NoCapacity": {
			conflict(start, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."),
			actuatortest.Start, 3, actuator.NoCapacity, 0,
		},
		"start above the limits of a quota counts as NoCapacity": {
			conflict(start, "OperationNotAllowed", "Operation results in exceeding quota limits of Core. Maximum allowed: 4, Current in use: 4."),
			actuatortest.Start, 3, actuator.NoCapacity, 0,
		},
		"another operation in progress counts as WrongState": {
			conflict(deallocate, "OperationNotAllowed", "The operation is not allowed because another operation is in progress."),
			actuatortest.Stop, 3, actuator.WrongState, 0,
		},
		"machine that is being updated counts as WrongState": {
			conflict(deallocate, "OperationNotAllowed", "The VM 'quota-ephemeral-0' is being updated."), actuatortest.Stop, 3, actuator.WrongState, 0,
		},
		"resource group that is being deleted counts as Other": {
			conflict(deallocate, "ResourceGroupBeingDeleted", ""), actuatortest.Stop, 3, actuator.Other, 0,
		},
		"disabled subscription counts as Other": {
			conflict(start, "ReadOnlyDisabledSubscription", ""), actuatortest.Start, 3, actuator.Other, 0,
		},
		"subscription without the resource provider counts as Other": {
			conflict(start, "MissingSubscriptionRegistration", ""), actuatortest.Start, 3, actuator.Other, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			actuatortest.ExpectEffect(t, startAzure(t).newCluster(), row.op, row.fault, actuatortest.FaultEffect{Class: row.class, RetryAfter: row.retryAfter, Calls: row.calls})
		})
	}
}

// conflict is a refusal with the status that Azure uses for temporary and permanent refusals and for missing
// capacity.
func conflict(operation, code, message string) actuatortest.Fault {
	return actuatortest.Fault{Operation: operation, Status: http.StatusConflict, Code: code, Message: message}
}

func TestThrottledStartSendsNoMoreCalls(t *testing.T) {
	cloud := startAzure(t)
	c := cloud.newCluster()
	ids := c.Create(t, 10*onebyone.ParallelCalls)
	cloud.Inject(t, actuatortest.Fault{Operation: start, Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "60"})
	if err := cloud.actuator.Start(t.Context(), c.Target(), ids); actuator.ClassOf(err) != actuator.Throttled {
		t.Errorf("start: %v, want class %q", err, actuator.Throttled)
	}
	if got := cloud.CountCalls()[start]; got > onebyone.ParallelCalls {
		t.Errorf("start was called %d times, want at most %d that were under way at once", got, onebyone.ParallelCalls)
	}
}

func TestMissingRightsPreventStops(t *testing.T) {
	for name, row := range map[string]struct {
		rights  []rolePermission
		status  int
		missing string
	}{
		"all rights are enough for a stop":                {rights: []rolePermission{{Actions: []string{"*"}}}},
		"minimal rights are enough for a stop":            {rights: []rolePermission{{Actions: []string{"microsoft.compute/virtualmachines/deallocate/action", "Microsoft.Compute/virtualMachines/start/action"}}}},
		"rights from two roles are enough for a stop":     {rights: []rolePermission{{Actions: []string{"*/deallocate/action"}}, {Actions: []string{"*/start/action"}}}},
		"missing right to start prevents the stop":        {rights: []rolePermission{{Actions: []string{"Microsoft.Compute/virtualMachines/deallocate/action"}}}, missing: "virtualMachines/start/action"},
		"right excluded by notActions prevents the stop":  {rights: []rolePermission{{Actions: []string{"*"}, NotActions: []string{"*/virtualMachines/deallocate/*"}}}, missing: "virtualMachines/deallocate/action"},
		"missing role prevents the stop":                  {rights: []rolePermission{}, missing: "virtualMachines/deallocate/action and Microsoft.Compute/virtualMachines/start/action"},
		"right with an invalid pattern prevents the stop": {rights: []rolePermission{{Actions: []string{"(", ".*"}}}, missing: "virtualMachines/deallocate/action"},
		"unreadable rights do not prevent the stop":       {status: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startAzure(t)
			c := cloud.newCluster()
			ids := c.Create(t, 2)
			cloud.rights = row.rights
			if row.status != 0 {
				cloud.Inject(t, actuatortest.Fault{Operation: "permissions", Status: row.status, Code: "AuthorizationFailed"})
			}
			err := cloud.actuator.Stop(t.Context(), c.Target(), ids)
			stopped := cloud.CountCalls()[deallocate]
			if row.missing == "" {
				if err != nil || stopped != 2 {
					t.Errorf("found %v and %d calls, want two machines to be stopped", err, stopped)
				}
				return
			}
			if actuator.ClassOf(err) != actuator.PermissionDenied || !strings.Contains(err.Error(), row.missing) || stopped != 0 {
				t.Errorf("found %v and %d calls, want class %q, %q and none", err, stopped, actuator.PermissionDenied, row.missing)
			}
		})
	}
}

func TestHostileAnswersAreCut(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		want   string
	}{
		"next page at another host is refused":       {`{"value":[],"nextLink":"https://evil.example.com/"}`, "a URL outside Azure: evil.example.com"},
		"next page without TLS is refused":           {`{"value":[],"nextLink":"http://management.azure.com/"}`, "the response is not a valid Azure response"},
		"endless pages are refused":                  {`{"value":[],"nextLink":"https://management.azure.com/subscriptions/` + goodSubscription + `/providers/Microsoft.Compute/virtualMachines"}`, "more pages or machines than allowed"},
		"answer that is not JSON is refused":         {`<html>`, "the response is not a valid Azure response"},
		"machine of another subscription is refused": {`{"value":[{"id":"/subscriptions/other/resourceGroups/sleepyx/providers/Microsoft.Compute/virtualMachines/a"}]}`, "the response is not a valid Azure response"},
		"machine without an id is refused":           {`{"value":[{}]}`, "the response is not a valid Azure response"},
		"machine with an invalid id is refused":      {`{"value":[{"id":"x"}]}`, "the response is not a valid Azure response"},
		"machine with a very long name is refused":   {`{"value":[{"id":"/subscriptions/` + goodSubscription + `/resourceGroups/sleepyx/providers/Microsoft.Compute/virtualMachines/` + strings.Repeat("a", maxNameBytes+1) + `"}]}`, "the response is not a valid Azure response"},
		"value outside the schema is refused":        {`{"value":"x"}`, "the response is not a valid Azure response"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startAzure(t)
			cloud.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
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

// TestTheOwnClientBoundsAnswers sends an answer that is larger than any page to the client that production uses.
func TestTheOwnClientBoundsAnswers(t *testing.T) {
	cloud := startAzure(t)
	cloud.interfere = func(w http.ResponseWriter, _ *http.Request) bool {
		piece := bytes.Repeat([]byte(" "), 64<<10)
		for sent := 0; sent < 2*maxAnswerBytes; sent += len(piece) {
			if _, err := w.Write(piece); err != nil {
				break
			}
		}
		return true
	}
	cloud.actuator = New(Options{HTTPClient: httpguard.NewClient(cloud.client().Transport, maxAnswerBytes, 0), Attempts: 1})
	_, err := cloud.actuator.Observe(t.Context(), cloud.newCluster().Target())
	if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "the response is larger than allowed") {
		t.Errorf("found %v, want its answer to be larger than allowed", err)
	}
}

func TestPowerStates(t *testing.T) {
	for code, want := range map[string]struct {
		state actuator.MachineState
		held  bool
	}{
		"PowerState/running": {actuator.Running, false}, "PowerState/starting": {actuator.Starting, false},
		"PowerState/stopping": {actuator.Stopping, false}, "PowerState/deallocating": {actuator.Stopping, false},
		"PowerState/stopped": {actuator.Stopped, true}, "PowerState/deallocated": {actuator.Stopped, false},
		"powerstate/Deallocated": {actuator.Stopped, false}, "PowerState/unknown": {actuator.Starting, false},
		"ProvisioningState/creating": {actuator.Starting, false},
	} {
		vm := &armcompute.VirtualMachine{Properties: &armcompute.VirtualMachineProperties{InstanceView: &armcompute.VirtualMachineInstanceView{
			Statuses: []*armcompute.InstanceViewStatus{nil, {}, {Code: new("ProvisioningState/succeeded")}, {Code: &code}},
		}}}
		if state, held := powerStateOf(vm); state != want.state || held != want.held {
			t.Errorf("%s: found %s, held %t, want %s, %t", code, state, held, want.state, want.held)
		}
	}
	if state, held := powerStateOf(&armcompute.VirtualMachine{}); state != actuator.Starting || held {
		t.Errorf("no state: found %s, held %t, want a state that is waited for", state, held)
	}
}

func TestMachinesThatAreDeletedAreLeftOut(t *testing.T) {
	cloud := startAzure(t)
	c := cloud.newCluster()
	cloud.interfere = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(strings.ToLower(r.URL.Path), "/virtualmachines") {
			return false
		}
		machine := func(name, state string) map[string]any {
			return map[string]any{
				"id":         "/subscriptions/" + goodSubscription + "/resourceGroups/SLEEPYX/providers/Microsoft.Compute/virtualMachines/" + name,
				"properties": map[string]any{"provisioningState": state},
			}
		}
		writeJSON(w, http.StatusOK, map[string]any{"value": []any{machine("gone", "Deleting"), machine("New", "Creating")}})
		return true
	}
	found, err := cloud.actuator.Observe(t.Context(), c.Target())
	want := []actuator.Machine{{ID: "sleepyx/new", Name: "New", State: actuator.Starting, Account: "azure/management.azure.com/" + goodSubscription}}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("error %v, machines (-want +got):\n%s", err, diff)
	}
}

func TestCredentials(t *testing.T) {
	cloud := startAzure(t)
	c := cloud.newCluster()
	content := func(text string) map[string][]byte { return map[string][]byte{servicePrincipalKey: []byte(text)} }
	without := strings.Replace(string(goodCredentials()[servicePrincipalKey]), goodSecret, "", 1)
	certificate := content(without)
	certificate[certificateKey] = newCertificate(t)
	broken := content(without)
	broken[certificateKey] = []byte("-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n")
	for name, row := range map[string]struct {
		secret map[string][]byte
		cloud  string
		class  actuator.ErrorClass
		says   string
	}{
		"client secret is accepted":                                   {secret: goodCredentials()},
		"certificate is accepted":                                     {secret: certificate},
		"public cloud by its name is accepted":                        {secret: goodCredentials(), cloud: "AzurePublicCloud"},
		"retired German cloud is reported":                            {secret: goodCredentials(), cloud: "AzureGermanCloud", class: actuator.Other, says: "spec.platform.azure.cloudName"},
		"missing Secret is CredentialsMissing":                        {class: actuator.CredentialsMissing, says: "has no osServicePrincipal.json"},
		"text that is not JSON is CredentialsInvalid":                 {secret: content("hush"), class: actuator.CredentialsInvalid, says: "expected a JSON object"},
		"number instead of a string is CredentialsInvalid":            {secret: content(`{"clientSecret":12345}`), class: actuator.CredentialsInvalid, says: "expected a JSON object"},
		"missing subscription is CredentialsMissing":                  {secret: content(`{}`), class: actuator.CredentialsMissing, says: "has no subscriptionId"},
		"missing tenant is CredentialsMissing":                        {secret: content(`{"subscriptionId":"a"}`), class: actuator.CredentialsMissing, says: "has no tenantId"},
		"subscription with a path traversal is CredentialsInvalid":    {secret: content(`{"subscriptionId":"../evil","tenantId":"b","clientId":"c"}`), class: actuator.CredentialsInvalid, says: "must be an id"},
		"tenant with a host is CredentialsInvalid":                    {secret: content(`{"subscriptionId":"a","tenantId":"b@evil.example.com/","clientId":"c"}`), class: actuator.CredentialsInvalid, says: "must be an id"},
		"missing client secret and certificate is CredentialsMissing": {secret: content(without), class: actuator.CredentialsMissing, says: "has no clientSecret"},
		"path of a file of the manager is CredentialsInvalid":         {secret: content(`{"subscriptionId":"a","tenantId":"b","clientId":"c","clientCertificate":"/etc/passwd"}`), class: actuator.CredentialsInvalid, says: "refers to a file"},
		"certificate without its key is CredentialsInvalid":           {secret: broken, class: actuator.CredentialsInvalid, says: "must have a certificate and its key"},
		"wrong client secret is CredentialsInvalid": {
			secret: content(strings.Replace(string(goodCredentials()[servicePrincipalKey]), goodSecret, "hush", 1)), class: actuator.CredentialsInvalid, says: "login: invalid_client: AADSTS7000215",
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := c.Target()
			target.Credentials, target.Cloud = row.secret, row.cloud
			_, err := cloud.actuator.Observe(t.Context(), target)
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

// newCertificate returns a certificate with its key.
func newCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})...)
}

func TestAccountNames(t *testing.T) {
	a := New(Options{})
	account := func(change func(*actuator.Target)) string {
		target := actuator.Target{InfraID: "one", Credentials: goodCredentials()}
		change(&target)
		name, err := a.AccountOf(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	replace := func(old, with string) func(*actuator.Target) {
		return func(t *actuator.Target) {
			t.Credentials = map[string][]byte{servicePrincipalKey: bytes.Replace(t.Credentials[servicePrincipalKey], []byte(old), []byte(with), 1)}
		}
	}
	first := account(func(*actuator.Target) {})
	for name, row := range map[string]struct {
		change func(*actuator.Target)
		shared bool
	}{
		"targets with different resource groups have the same account":  {func(t *actuator.Target) { t.InfraID = "other" }, true},
		"targets with different regions have the same account":          {func(t *actuator.Target) { t.Region = "westeurope" }, true},
		"targets with different clouds have different accounts":         {func(t *actuator.Target) { t.Cloud = "AzureChinaCloud" }, false},
		"targets with different subscriptions have different accounts":  {replace(goodSubscription, "other"), false},
		"targets with different tenants have different accounts":        {replace(goodTenant, "other"), false},
		"targets with different clients have different accounts":        {replace(goodClient, "other"), false},
		"targets with different client secrets have different accounts": {replace(goodSecret, "other"), false},
	} {
		if got := account(row.change); (got == first) != row.shared || strings.Contains(got, goodSecret) {
			t.Errorf("%s: accounts %s and %s, want it to be shared: %t", name, got, first, row.shared)
		}
	}
}
