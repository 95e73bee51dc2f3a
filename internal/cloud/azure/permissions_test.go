// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

// TestPermissionsAreDocumented compares the permissions on the page of Azure with the calls of a hibernation and a resume.
func TestPermissionsAreDocumented(t *testing.T) {
	c := startAzure(t).newCluster()
	actuatortest.HibernateAndResume(t, c, c.Create(t, 2))
	const compute, action = "Microsoft.Compute/", "/action"
	actuatortest.ExpectDocumented(t, "azure", `Microsoft\.\w+/\w+[/\w]+`, actuatortest.PermissionsOf(t, c.CountCalls(), map[string][]string{
		"login":       {},
		list:          {compute + list, compute + "virtualMachines/instanceView/read"}, // Power states are a part of the instance view.
		scaleSetRead:  {compute + scaleSetRead},
		quotaRead:     {compute + quotaRead},
		deallocate:    {compute + deallocate + action},
		start:         {compute + start + action},
		"permissions": {"Microsoft.Authorization/permissions/read"},
	}))
}
