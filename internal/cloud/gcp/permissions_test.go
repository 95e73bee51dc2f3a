// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

// TestPermissionsAreDocumented compares the permissions on the page of Google Cloud with the calls of a hibernation and a
// resume of a cluster with a suspended instance and a member of a group.
func TestPermissionsAreDocumented(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	c.JoinGroup(t, c.Create(t, 1)[0], "workers")
	actuatortest.HibernateAndResume(t, c, ids[:2])
	c.Change(func() { c.instances[ids[2]].status = "SUSPENDED" })
	if err := c.Actuator().Start(t.Context(), c.Target(), ids[2:]); err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{login: {}, testRights: {}, quotaRead: {"compute." + quotaRead}, operationRead: {"compute." + operationRead}}
	for _, operation := range []string{list, zoneRead, stop, start, "instances.resume"} {
		table[operation] = []string{"compute." + operation}
	}
	actuatortest.ExpectDocumented(t, "gcp", `compute\.(instances|regions|zoneOperations)\.\w+`, actuatortest.PermissionsOf(t, c.CountCalls(), table))
}
