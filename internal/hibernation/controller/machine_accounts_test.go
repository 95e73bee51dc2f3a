// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// TestSilenceChangesNoOwners renews what is known after it has become old, by a look that fails.
func TestSilenceChangesNoOwners(t *testing.T) {
	now, older := time.Now(), types.NamespacedName{Namespace: "ns", Name: "older"}
	machine := actuator.Machine{ID: "i-0", Account: "aws/1"}
	for name, row := range map[string]struct {
		failures []actuator.ErrorClass
		owns     bool
	}{
		"it is throttled":                        {[]actuator.ErrorClass{actuator.Throttled}, true},
		"it does not answer":                     {[]actuator.ErrorClass{actuator.Unreachable}, true},
		"it says something that nobody knows":    {[]actuator.ErrorClass{actuator.Other}, true},
		"one failure after the other":            {[]actuator.ErrorClass{actuator.Throttled, actuator.Unreachable, actuator.Throttled}, true},
		"it does not know the credentials":       {[]actuator.ErrorClass{actuator.CredentialsInvalid}, false},
		"there are no credentials":               {[]actuator.ErrorClass{actuator.CredentialsMissing}, false},
		"the credentials may not see machines":   {[]actuator.ErrorClass{actuator.PermissionDenied}, false},
		"what the machines are in is not there":  {[]actuator.ErrorClass{actuator.NotFound}, false},
		"credentials that are lost stay unknown": {[]actuator.ErrorClass{actuator.CredentialsInvalid, actuator.Throttled}, false},
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
		t.Errorf("expected a cluster that was never seen with machines to own none, found %+v", found)
	}
}
