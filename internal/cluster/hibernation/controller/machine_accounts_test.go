// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// TestTemporaryFailuresKeepMachineOwners renews an outdated state by a poll that fails.
func TestTemporaryFailuresKeepMachineOwners(t *testing.T) {
	now, older := time.Now(), types.NamespacedName{Namespace: "ns", Name: "older"}
	machine := actuator.Machine{ID: "i-0", Account: "aws/1"}
	for name, row := range map[string]struct {
		failures []actuator.ErrorClass
		owns     bool
	}{
		"cloud throttles: the older cluster keeps its machines":                {[]actuator.ErrorClass{actuator.Throttled}, true},
		"cloud does not answer: the older cluster keeps its machines":          {[]actuator.ErrorClass{actuator.Unreachable}, true},
		"cloud returns an unknown error: the older cluster keeps its machines": {[]actuator.ErrorClass{actuator.Other}, true},
		"several temporary failures: the older cluster keeps its machines":     {[]actuator.ErrorClass{actuator.Throttled, actuator.Unreachable, actuator.Throttled}, true},
		"cloud rejects the credentials: the machines are released":             {[]actuator.ErrorClass{actuator.CredentialsInvalid}, false},
		"credentials are missing: the machines are released":                   {[]actuator.ErrorClass{actuator.CredentialsMissing}, false},
		"credentials may not list machines: the machines are released":         {[]actuator.ErrorClass{actuator.PermissionDenied}, false},
		"resource group does not exist: the machines are released":             {[]actuator.ErrorClass{actuator.NotFound}, false},
		"throttling after rejected credentials: the machines stay released":    {[]actuator.ErrorClass{actuator.CredentialsInvalid, actuator.Throttled}, false},
	} {
		known := newMachineAccounts()
		known.store(older, []actuator.Machine{machine}, now)
		at := now.Add(accountTTL)
		for _, class := range row.failures {
			known.storeFailure(older, class, at)
			at = at.Add(unknownAccountTTL)
		}
		if got := known.find(older).has(machine); got != row.owns {
			t.Errorf("%s: expected the older one to own the machines: %t, found %t", name, row.owns, got)
		}
	}
	known := newMachineAccounts()
	known.storeFailure(older, actuator.Throttled, now)
	if found := known.find(older); found.has(machine) || !found.isFresh(now) {
		t.Errorf("expected a cluster that was never observed with machines to own none, found %+v", found)
	}
}
