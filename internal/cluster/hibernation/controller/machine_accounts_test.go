// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
)

// TestTemporaryFailuresKeepMachineOwners stores failed polls of a cluster whose known machines are outdated.
func TestTemporaryFailuresKeepMachineOwners(t *testing.T) {
	now, older := time.Now(), types.NamespacedName{Namespace: "ns", Name: "older"}
	machine := actuator.Machine{ID: "i-0", Account: "aws/1"}
	for name, row := range map[string]struct {
		failures []actuator.ErrorClass
		owns     bool
	}{
		"throttling keeps the owner of the machines":                          {[]actuator.ErrorClass{actuator.Throttled}, true},
		"unresponsive cloud keeps the owner of the machines":                  {[]actuator.ErrorClass{actuator.Unreachable}, true},
		"unknown error keeps the owner of the machines":                       {[]actuator.ErrorClass{actuator.Other}, true},
		"several temporary failures keep the owner of the machines":           {[]actuator.ErrorClass{actuator.Throttled, actuator.Unreachable, actuator.Throttled}, true},
		"rejected credentials release the machines":                           {[]actuator.ErrorClass{actuator.CredentialsInvalid}, false},
		"missing credentials release the machines":                            {[]actuator.ErrorClass{actuator.CredentialsMissing}, false},
		"credentials without the right to list machines release the machines": {[]actuator.ErrorClass{actuator.PermissionDenied}, false},
		"missing resource group releases the machines":                        {[]actuator.ErrorClass{actuator.NotFound}, false},
		"throttling after rejected credentials does not restore the owner":    {[]actuator.ErrorClass{actuator.CredentialsInvalid, actuator.Throttled}, false},
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
