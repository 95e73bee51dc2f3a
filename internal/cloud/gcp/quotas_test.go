// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"net/http"
	"testing"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestExceededQuotasAreReported uses quotas of every kind in the region of the machines. The quotas are read once for
// all machines and listings.
func TestExceededQuotasAreReported(t *testing.T) {
	cloud := startGCP(t)
	c := cloud.newCluster()
	ids := c.Create(t, 3)
	quota := func(metric string, limit, usage float64) map[string]any {
		return map[string]any{"metric": metric, "limit": limit, "usage": usage}
	}
	cloud.quotas = map[string]map[string]any{regionOf(ids[0]): {"quotas": []any{
		quota("CPUS", 24, 24), quota("N2_CPUS", 24, 24.5), quota("NVIDIA_T4_GPUS", 0, 1), quota("COMMITTED_CPUS", 0, 8), quota("DISKS_TOTAL_GB", 1, 2),
	}}}
	c.Change(func() { c.instances[ids[2]].status = "TERMINATED" })
	for range 2 {
		machines, err := c.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		found := map[string][]string{}
		for _, m := range machines {
			found[m.ID] = m.ExceededQuotas
		}
		exceeded := []string{regionOf(ids[0]) + "/N2_CPUS", regionOf(ids[0]) + "/NVIDIA_T4_GPUS"}
		testenv.ExpectEqual(t, "exceeded quotas", map[string][]string{ids[0]: exceeded, ids[1]: exceeded, ids[2]: nil}, found)
	}
	testenv.ExpectEqual(t, "reads of the quotas", 1, c.CountCalls()[quotaRead])
}

func TestUnreadableQuotasDoNotFailAListing(t *testing.T) {
	for name, fault := range map[string]actuatortest.Fault{
		"listing without the right to read quotas succeeds":          {Status: http.StatusForbidden, Code: "forbidden"},
		"listing with a server error at the read of quotas succeeds": {Status: http.StatusInternalServerError, Code: "backendError"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startGCP(t).newCluster()
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
