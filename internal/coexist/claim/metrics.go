// SPDX-License-Identifier: Apache-2.0

package claim

import "github.com/prometheus/client_golang/prometheus"

// NewMetric returns the metric for a claim. The caller must register it.
func NewMetric(c *Claim) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "torpor_installation_acts", Help: "1 if this replica leads and its installation is the active one of the cluster.",
	}, func() float64 {
		if c.IsHeld() {
			return 1
		}
		return 0
	})
}
