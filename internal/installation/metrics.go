// SPDX-License-Identifier: Apache-2.0

package installation

import "github.com/prometheus/client_golang/prometheus"

// NewMetric makes the metric of a claim, which is yet to be registered.
func NewMetric(c *Claim) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "torpor_installation_acts", Help: "1 while this replica leads and its installation is the one that acts on the cluster, 0 otherwise.",
	}, func() float64 {
		if c.IsHeld() {
			return 1
		}
		return 0
	})
}
