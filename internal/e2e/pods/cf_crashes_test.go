// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// testInstanceCrash has one of two instances end with a status. The kubelet starts it again at once, so what is seen is its start.
func (s *appSuite) testInstanceCrash(t *testing.T) {
	before, p, began := s.shop.listInstances(t), s.shop.startProbe(t), time.Now()
	s.orderInstance(t, s.shop, 0, "/exit/7")
	eventually(t, "the kubelet starts the container once more", func() error {
		if n := countRestarts(s.shop.listInstances(t)[0]); n != 1 {
			return fmt.Errorf("found it restarted %d times", n)
		}
		return nil
	})
	s.shop.waitUntilRunning(t, shopInstances)
	s.logf(t, "an instance that crashed ran again after %.2fs", time.Since(began).Seconds())
	_, stats := p.stopAndRead()
	if !slices.ContainsFunc(stats, func(a probeAnswer) bool { return a.running == 1 && strings.Contains(a.body, "exited with status 7") }) {
		t.Error("expected stats to tell of the crash, and that the other instance runs, found that they never did")
	}
	if now := s.shop.listInstances(t); now[0].UID != before[0].UID || now[1].UID != before[1].UID || countRestarts(now[1]) > 0 {
		t.Error("expected both Pods and the other container to be left alone, found another")
	}
	if lines := s.shop.recentLogs(t); !slices.Contains(lines, "0 ends with status 7") {
		t.Errorf("what a crashed container printed last: expected it in the logs, found %q", lines)
	}
}

// testBrokenApps are apps that can never run, all at once; each has to say why.
func (s *appSuite) testBrokenApps(t *testing.T) {
	rows := map[string]struct {
		image, state, details string
		manifest              []string
	}{
		"exits":   {webapp, "CRASHED", "exited with status 3", []string{"env: {EXIT: '3'}"}},
		"ends":    {webapp, "CRASHED", "exited with status 0", []string{"env: {EXIT: '0'}"}},
		"greedy":  {webapp, "CRASHED", "exited with status 137 (OOMKilled)", []string{"env: {EAT: '128'}"}},
		"root":    {"localhost/busybox:1", "CRASHED", "image will run as root", nil},
		"missing": {"localhost/nothing:1", "CRASHED", "ImagePullBackOff: ", nil},
		"shell":   {webapp, "CRASHED", "/bin/sh", []string{"command: run"}},
		"unwell":  {webapp, "CRASHED", "http health check", []string{"health-check-type: http", "health-check-http-endpoint: /health", "timeout: 2", "env: {SICK: 'yes'}"}},
	}
	began, apps := time.Now(), map[string]pushedApp{}
	for name, of := range rows {
		apps[name] = s.pushApp(t, name, of.image, of.manifest...)
	}
	for name, want := range rows {
		t.Run(name, func(t *testing.T) {
			a := apps[name]
			eventually(t, "it says why", func() error {
				got := a.readStats(t)[0]
				if got.State != want.state || !strings.Contains(got.Details, want.details) {
					return fmt.Errorf("expected %s %q, found %+v", want.state, want.details, got)
				}
				s.logf(t, "%s after %.1fs: %s", got.State, time.Since(began).Seconds(), got.Details)
				return nil
			})
		})
	}
	if lines := apps["exits"].recentLogs(t); !slices.Contains(lines, "0 ends at once with status 3") {
		t.Errorf("what an app printed that never ran: expected it in the logs, found %q", lines)
	}
	for _, a := range apps {
		s.deleteApp(t, a)
	}
}

// unhealthyApp is an app whose health check fails since a while.
type unhealthyApp struct {
	pushedApp
	order string
	probe *appProbe
	since time.Time
}

// failHealthChecks has two apps that run fail their health checks from now on: one by HTTP, the other at its port.
func (s *appSuite) failHealthChecks(t *testing.T) {
	for _, it := range []*unhealthyApp{
		{order: "/sick", pushedApp: s.pushApp(t, "sick", webapp, "health-check-type: http", "health-check-http-endpoint: /health")},
		{order: "/deaf", pushedApp: s.pushApp(t, "deaf", webapp)},
	} {
		it.waitUntilRunning(t, 1)
		s.orderInstance(t, it.pushedApp, 0, it.order)
		it.since, it.probe = time.Now(), it.startProbe(s.whole)
		s.unhealthyApps = append(s.unhealthyApps, it)
	}
}

// testFailedHealthChecks waits until that was noticed; the liveness check is made twice a minute.
func (s *appSuite) testFailedHealthChecks(t *testing.T) {
	for _, it := range s.unhealthyApps {
		eventually(t, "it is restarted", func() error {
			if n := countRestarts(it.listInstances(t)[0]); n != 1 {
				return fmt.Errorf("found it restarted %d times", n)
			}
			return nil
		})
		s.logf(t, "%s: it was restarted %.1fs later", it.order, time.Since(it.since).Seconds())
		it.waitUntilRunning(t, 1)
		_, stats := it.probe.stopAndRead()
		if !slices.ContainsFunc(stats, func(a probeAnswer) bool { return a.running == 0 }) {
			t.Errorf("%s: expected stats not to call it running meanwhile, found that they always did", it.order)
		}
		s.deleteApp(t, it.pushedApp)
	}
}

// deleteApp deletes an app and does not wait.
func (s *appSuite) deleteApp(t *testing.T, a pushedApp) {
	t.Helper()
	s.mustRequest(t, http.StatusAccepted, "DELETE", a.path(""), "")
}

func countRestarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
