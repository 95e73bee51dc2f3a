// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// gauges holds the two metrics, which all groups of a process share through the registry.
type gauges struct {
	state       *prometheus.GaugeVec
	transitions *prometheus.CounterVec
}

func newGauges() (gauges, error) {
	state, err := register(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "torpor_gate_state", Help: "1 for the phase a conditional group is in, 0 for the others.",
	}, []string{"group", "state"}))
	if err != nil {
		return gauges{}, err
	}
	transitions, err := register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "torpor_gate_transitions_total", Help: "Phase changes of a conditional group.",
	}, []string{"group", "to", "reason"}))
	return gauges{state: state, transitions: transitions}, err
}

// register returns the collector that is already there, if any: two managers may live in one process.
func register[C prometheus.Collector](c C) (C, error) {
	err := metrics.Registry.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register the metrics of conditional groups: %w", err)
	}
	return c, nil
}

func (m gauges) show(group string, now Phase) {
	for _, p := range phases() {
		value := 0.0
		if p == now {
			value = 1
		}
		m.state.WithLabelValues(group, string(p)).Set(value)
	}
}

func (m gauges) count(group string, to Phase, reason fact) {
	m.transitions.WithLabelValues(group, string(to), string(reason)).Inc()
}
