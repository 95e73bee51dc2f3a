// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"math"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestSavingsOfAnAppSurviveAKilledManager stops an app with three instances, kills the manager, and starts the app
// under the next manager. The status holds the instances' resource requests multiplied by the duration of the stop in
// seconds.
func TestSavingsOfAnAppSurviveAKilledManager(t *testing.T) {
	binary := testenv.TorporPath(t)
	e := newEnvWithoutManager(t)
	start := func() *testenv.Process {
		p := testenv.StartProcess(t, binary, []string{
			"manager", "--kubeconfig", e.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0",
			"--webhook-address", e.address, "--namespace", e.namespace, "--image-registries", "none",
		}, nil)
		e.WaitForAppAdmission(t, e.namespace, korifiv1alpha1.FirstRevision)
		return p
	}
	p := start()
	const instances, cpuMillis, memoryKiB = 3, 5, 16 << 10
	a := e.createApp(t, appOptions{instances: instances})
	a.waitUntilRunning(t)
	if is := a.getApp(t).Status.Savings; is != nil {
		t.Errorf("expected no savings of an app that runs, found %+v", is)
	}
	a.setState(t, korifiv1alpha1.StoppedState)
	a.waitUntilStopped(t)
	off := a.getApp(t).Status.Savings
	if off == nil || off.Since == nil || off.CPUMillis != instances*cpuMillis || off.MemoryKiB != instances*memoryKiB {
		t.Fatalf("expected the requests of %d instances, found %+v", instances, off)
	}
	p.KillAtOnce(t)
	start()
	if again := a.getApp(t).Status.Savings; again.Since == nil || !again.Since.Equal(off.Since) || again.CPUMilliSeconds != 0 {
		t.Errorf("expected the same savings after the restart, found %+v", again)
	}
	least := time.Since(off.Since.Time)
	a.setState(t, started)
	a.waitUntilRunning(t)
	is, longest := a.getApp(t).Status.Savings, time.Since(off.Since.Time)
	of := func(rate int64, d time.Duration) int64 { return int64(math.Round(float64(rate) * d.Seconds())) }
	if is.Since != nil || is.CPUMilliSeconds < of(off.CPUMillis, least) || is.CPUMilliSeconds > of(off.CPUMillis, longest) ||
		is.MemoryKiBSeconds < of(off.MemoryKiB, least) || is.MemoryKiBSeconds > of(off.MemoryKiB, longest) {
		t.Errorf("expected the savings of %s to %s, found %+v", least, longest, is)
	}
}
