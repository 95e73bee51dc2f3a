// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// expectGroups checks the groups of a cluster's machines, and the number of instances read for them.
func (c *simulatedCluster) expectGroups(t *testing.T, reads int, want map[string]string) {
	t.Helper()
	c.CountCalls()
	machines, err := c.actuator.Observe(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	found := map[string]string{}
	for _, m := range machines {
		found[m.ID] = m.Group
	}
	testenv.ExpectEqual(t, "groups", want, found)
	testenv.ExpectEqual(t, "instances that were read", reads, c.CountCalls()[zoneRead])
}

func TestMembersOfManagedGroupsAreFoundByTheirMetadata(t *testing.T) {
	c := startGCP(t).newCluster()
	want := map[string]string{}
	for value, group := range map[string]string{
		"projects/123456789012/zones/europe-west3-a/instanceGroupManagers/pool-of-a-zone":                                     "pool-of-a-zone",
		"projects/123456789012/regions/europe-west3/instanceGroupManagers/pool-of-a-region":                                   "pool-of-a-region",
		"https://www.googleapis.com/compute/v1/projects/fleet-of-tests/zones/europe-west3-a/instanceGroupManagers/by-address": "by-address",
		"terraform":                       "",
		"":                                "",
		"projects/1/instanceGroups/other": "",
		strings.Repeat("a line that a user has written\n", 8_000): "",
	} {
		id := c.Create(t, 1)[0]
		c.setMetadata(id, "created-by", value)
		want[id] = group
	}
	candidates := len(want)
	other := c.Create(t, 2)
	c.setMetadata(other[0], "instance-template", "projects/1/zones/a/instanceGroupManagers/none")
	want[other[0]], want[other[1]] = "", ""
	c.expectGroups(t, candidates, want)
	c.expectGroups(t, 0, want)
	c.setMetadata(other[1], "created-by", "me")
	c.expectGroups(t, 1, want)
	c.JoinGroup(t, other[1], "workers")
	want[other[1]] = "workers"
	c.expectGroups(t, 1, want)
}

// TestAnInstanceWhoseMetadataCannotBeReadCountsAsAMember uses an instance with the metadata key of managed groups.
func TestAnInstanceWhoseMetadataCannotBeReadCountsAsAMember(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		class actuator.ErrorClass
	}{
		"instance that may not be read counts as a member": {actuatortest.Fault{Status: http.StatusForbidden, Code: "forbidden"}, ""},
		"missing instance counts as a member":              {actuatortest.Fault{Status: http.StatusNotFound, Code: "notFound"}, ""},
		"instance with a server error counts as a member":  {actuatortest.Fault{Status: http.StatusInternalServerError, Code: "backendError"}, ""},
		"throttled account is an error":                    {actuatortest.Fault{Status: http.StatusForbidden, Code: "rateLimitExceeded"}, actuator.Throttled},
		"rejected login is an error":                       {actuatortest.Fault{Status: http.StatusUnauthorized, Code: "authError"}, actuator.CredentialsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c := startGCP(t).newCluster()
			id := c.Create(t, 1)[0]
			c.setMetadata(id, "created-by", "terraform")
			row.fault.Operation = zoneRead
			c.Inject(t, row.fault)
			machines, err := c.actuator.Observe(t.Context(), c.Target())
			if row.class != "" {
				if err == nil || actuator.ClassOf(err) != row.class {
					t.Errorf("expected class %q, found %v", row.class, err)
				}
				return
			}
			testenv.ExpectNoError(t, err)
			testenv.ExpectEqual(t, "group", c.infraID+"-worker", machines[0].Group)
		})
	}
}

// TestMetadataIsReadInParts uses more instances with the key than one listing reads. The unread instances count as
// members until a later listing reads them.
func TestMetadataIsReadInParts(t *testing.T) {
	c := startGCP(t).newCluster()
	const count, perListing = 250, 200
	for _, id := range c.Create(t, count) {
		c.Change(func() { c.instances[id].metadata = map[string]string{"created-by": "terraform"} })
	}
	for _, want := range []struct{ members, reads int }{{count - perListing, perListing}, {0, count - perListing}, {0, 0}} {
		c.CountCalls()
		machines, err := c.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		members := 0
		for _, m := range machines {
			if m.Group != "" {
				members++
			}
		}
		testenv.ExpectEqual(t, "members", want.members, members)
		testenv.ExpectEqual(t, "reads", want.reads, c.CountCalls()[zoneRead])
	}
}
