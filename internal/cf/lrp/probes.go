// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

const (
	millisPerSecond = 1000
	// startPeriod and livePeriod are in seconds. startPeriod is the shortest possible period, because a responding
	// instance should soon be ready.
	startPeriod    = 1
	livePeriod     = 30
	defaultStartMs = 60_000
)

// buildProbes returns the probes for a health check. An instance becomes ready once its first check succeeds, and is
// restarted if a later check fails. A check of type process needs no probe.
func buildProbes(health eiriniv1.Healthcheck) (startup, liveness *corev1.Probe) {
	var handler corev1.ProbeHandler
	port := intstr.FromInt32(health.Port)
	switch korifiv1alpha1.HealthCheckType(health.Type) {
	case korifiv1alpha1.HTTPHealthCheck:
		handler.HTTPGet = &corev1.HTTPGetAction{Path: health.Endpoint, Port: port}
	case korifiv1alpha1.PortHealthCheck:
		handler.TCPSocket = &corev1.TCPSocketAction{Port: port}
	case korifiv1alpha1.ProcessHealthCheck:
		return nil, nil
	default:
		return nil, nil
	}
	if health.Port == 0 {
		return nil, nil
	}
	start := health.TimeoutMs
	if start == 0 {
		start = defaultStartMs
	}
	timeout := ceilSeconds(max(health.InvocationTimeoutMs, 1))
	// The first check happens at the start, so the threshold is one more than the number of periods.
	startup = &corev1.Probe{
		ProbeHandler: handler, PeriodSeconds: startPeriod, TimeoutSeconds: timeout, FailureThreshold: min(ceilSeconds(start), math.MaxInt32-1) + 1,
	}
	liveness = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: livePeriod, TimeoutSeconds: timeout, FailureThreshold: 1}
	return startup, liveness
}

// ceilSeconds converts milliseconds to seconds, rounded up.
func ceilSeconds(ms int64) int32 {
	rounded := (ms + millisPerSecond - 1) / millisPerSecond
	if rounded < 0 || rounded > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(rounded)
}
