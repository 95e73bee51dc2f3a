// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestExceededQuotasAreReported uses quotas of every kind in the location of the machines. The quotas are read once for
// all machines and listings.
func TestExceededQuotasAreReported(t *testing.T) {
	cloud := startAzure(t)
	c := cloud.newCluster()
	ids := c.Create(t, 2)
	quota := func(name string, limit int64, used int32) *armcompute.Usage {
		return &armcompute.Usage{Name: &armcompute.UsageName{Value: &name}, Limit: &limit, CurrentValue: &used, Unit: new("Count")}
	}
	cloud.quotas = []*armcompute.Usage{
		quota("cores", 100, 100), quota("standardDSv3Family", 10, 12), quota("lowPriorityCores", 3, 4), quota("availabilitySets", 1, 2), quota("standard D/Family", 1, 2), {},
	}
	c.Change(func() { c.machines[ids[1]].power = "deallocated" })
	for range 2 {
		machines, err := c.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		found := map[string][]string{}
		for _, m := range machines {
			found[m.ID] = m.ExceededQuotas
		}
		want := []string{"westeurope/lowPriorityCores", "westeurope/standardDSv3Family"}
		testenv.ExpectEqual(t, "exceeded quotas", map[string][]string{ids[0]: want, ids[1]: nil}, found)
	}
	testenv.ExpectEqual(t, "reads of the quotas", 1, c.CountCalls()[quotaRead])
}

func TestUnreadableQuotasDoNotFailAListing(t *testing.T) {
	for name, fault := range map[string]actuatortest.Fault{
		"listing without the right to read quotas succeeds": {Status: http.StatusForbidden, Code: "AuthorizationFailed"},
		"listing with throttled quotas succeeds":            {Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "90"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startAzure(t).newCluster()
			c.Create(t, 1)
			fault.Operation = quotaRead
			c.Inject(t, fault)
			machines, err := c.actuator.Observe(t.Context(), c.Target())
			testenv.ExpectNoError(t, err)
			testenv.ExpectEqual(t, "machines", 1, len(machines))
			testenv.ExpectEqual(t, "exceeded quotas", []string(nil), machines[0].ExceededQuotas)
		})
	}
}
