// SPDX-License-Identifier: Apache-2.0

package app

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

const kibibytesPerMebibyte = 1024

// savedRate returns the resources that a stopped app saves: the requests of its desired instances. It returns zero
// while no stop is in effect, and until all instances have ended after a stop. If a user scales a stopped app, the rate
// stays above zero until the processes report their state again.
func savedRate(o Observed, ready decision.Condition) savings.Rate {
	isAsked := !o.shouldRun() && (o.Stops.Holds() || o.Scheduled != nil)
	isOff := ready.Status == metav1.ConditionTrue || !savings.RateOf(o.App.Status.Savings).IsZero()
	if !isAsked || !isOff {
		return savings.Rate{}
	}
	var rate savings.Rate
	for i := range o.Processes {
		p := &o.Processes[i]
		memory, instances := process.LimitMegabytes(p.Spec.MemoryMB), int64(process.DesiredInstances(p))
		rate.CPUMillis += lrp.DefaultCPURequest(memory) * instances
		rate.MemoryKiB += max(0, memory) * kibibytesPerMebibyte * instances
	}
	return rate
}
