// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

// TestPermissionsAreDocumented compares the policies on the page of OpenStack with the calls of a hibernation and a resume
// of clusters that are stopped and shelved, and of a suspended server.
func TestPermissionsAreDocumented(t *testing.T) {
	cloud := startOpenStack(t)
	c, shelved := cloud.newCluster(), cloud.newShelvedCluster()
	ids := c.Create(t, 3)
	actuatortest.HibernateAndResume(t, c, ids[:2])
	actuatortest.HibernateAndResume(t, shelved, shelved.Create(t, 1))
	c.Change(func() { c.servers[ids[2]].status = "SUSPENDED" })
	if err := c.Actuator().Start(t.Context(), c.Target(), ids[2:]); err != nil {
		t.Fatal(err)
	}
	const servers, shelving = "os_compute_api:servers:", "os_compute_api:os-shelve:"
	actuatortest.ExpectDocumented(t, "openstack", `os_compute_api:[\w-]+:\w+`, actuatortest.PermissionsOf(t, c.CountCalls(), map[string][]string{
		"login": {}, list: {servers + "detail"}, "get": {servers + "show"}, stop: {servers + "stop"}, start: {servers + "start"},
		shelve: {shelving + "shelve"}, "unshelve": {shelving + "unshelve"}, "resume": {"os_compute_api:os-suspend-server:resume"},
	}))
}
