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

// crashed has one of two instances end with a status. The kubelet starts it again at once, so what is seen is its start.
func (s *stage) crashed(t *testing.T) {
	before, p, began := s.shop.instances(t), s.shop.probe(t), time.Now()
	s.tellPod(t, s.shop, 0, "/exit/7")
	eventually(t, "the kubelet starts the container once more", func() error {
		if n := restarts(s.shop.instances(t)[0]); n != 1 {
			return fmt.Errorf("found it restarted %d times", n)
		}
		return nil
	})
	s.shop.runs(t, two)
	s.tell(t, "an instance that crashed ran again after %.2fs", time.Since(began).Seconds())
	_, stats := p.end()
	if !slices.ContainsFunc(stats, func(a answer) bool { return a.running == 1 && strings.Contains(a.body, "exited with status 7") }) {
		t.Error("expected stats to tell of the crash, and that the other instance runs, found that they never did")
	}
	if now := s.shop.instances(t); now[0].UID != before[0].UID || now[1].UID != before[1].UID || restarts(now[1]) > 0 {
		t.Error("expected both Pods and the other container to be left alone, found another")
	}
	if lines := s.shop.recent(t); !slices.Contains(lines, "0 ends with status 7") {
		t.Errorf("what a crashed container printed last: expected it in the logs, found %q", lines)
	}
}

// broken are apps that can never run, all at once; each has to say why.
func (s *stage) broken(t *testing.T) {
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
	began, apps := time.Now(), map[string]app{}
	for name, of := range rows {
		apps[name] = s.push(t, name, of.image, of.manifest...)
	}
	for name, want := range rows {
		t.Run(name, func(t *testing.T) {
			a := apps[name]
			eventually(t, "it says why", func() error {
				got := a.rows(t)[0]
				if got.State != want.state || !strings.Contains(got.Details, want.details) {
					return fmt.Errorf("expected %s %q, found %+v", want.state, want.details, got)
				}
				s.tell(t, "%s after %.1fs: %s", got.State, time.Since(began).Seconds(), got.Details)
				return nil
			})
		})
	}
	if lines := apps["exits"].recent(t); !slices.Contains(lines, "0 ends at once with status 3") {
		t.Errorf("what an app printed that never ran: expected it in the logs, found %q", lines)
	}
	for _, a := range apps {
		s.remove(t, a)
	}
}

// ailing is an app whose health check fails since a while.
type ailing struct {
	app
	order string
	probe *probe
	since time.Time
}

// ail has two apps that run fail their health checks from now on: one by HTTP, the other at its port.
func (s *stage) ail(t *testing.T) {
	for _, it := range []*ailing{
		{order: "/sick", app: s.push(t, "sick", webapp, "health-check-type: http", "health-check-http-endpoint: /health")},
		{order: "/deaf", app: s.push(t, "deaf", webapp)},
	} {
		it.runs(t, 1)
		s.tellPod(t, it.app, 0, it.order)
		it.since, it.probe = time.Now(), it.app.probe(s.whole)
		s.ill = append(s.ill, it)
	}
}

// sick waits until that was noticed; the liveness check is made twice a minute.
func (s *stage) sick(t *testing.T) {
	for _, it := range s.ill {
		eventually(t, "it is restarted", func() error {
			if n := restarts(it.instances(t)[0]); n != 1 {
				return fmt.Errorf("found it restarted %d times", n)
			}
			return nil
		})
		s.tell(t, "%s: it was restarted %.1fs later", it.order, time.Since(it.since).Seconds())
		it.runs(t, 1)
		_, stats := it.probe.end()
		if !slices.ContainsFunc(stats, func(a answer) bool { return a.running == 0 }) {
			t.Errorf("%s: expected stats not to call it running meanwhile, found that they always did", it.order)
		}
		s.remove(t, it.app)
	}
}

// remove deletes an app and does not wait.
func (s *stage) remove(t *testing.T, a app) {
	t.Helper()
	s.must(t, http.StatusAccepted, "DELETE", a.path(""), "")
}

func restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
