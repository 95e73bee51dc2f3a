// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crashed has one of two instances end with a status.
func (s *stage) crashed(t *testing.T) {
	before := s.shop.instances(t)
	s.tellPod(t, s.shop, 0, "/exit/7")
	eventually(t, "stats show the crash", func() error {
		if got := s.shop.rows(t); got[0].State != "CRASHED" || !strings.Contains(got[0].Details, "status 7") {
			return fmt.Errorf("found %+v", got)
		}
		return nil
	})
	if got := s.shop.rows(t)[1]; got.State != "RUNNING" {
		t.Errorf("the other instance: expected RUNNING, found %+v", got)
	}
	began := time.Now()
	s.shop.runs(t, two)
	if now := s.shop.instances(t); now[0].UID != before[0].UID || restarts(now[0]) != 1 {
		t.Errorf("expected the kubelet to have started the container once more, found it %d times", restarts(now[0]))
	}
	if lines := s.shop.recent(t); !slices.Contains(lines, "0 ends with status 7") {
		t.Errorf("what a crashed container printed last: expected it in the logs, found %q", lines)
	}
	s.tell(t, "a crashed instance runs again %.2fs after stats had shown it", time.Since(began).Seconds())
}

// broken are apps that can never run, all at once; each has to say why.
func (s *stage) broken(t *testing.T) {
	began := time.Now()
	for name, of := range map[string]struct {
		image, state, details string
		manifest              []string
	}{
		"exits":    {webapp, "CRASHED", "status 3", []string{"env: {EXIT: '3'}"}},
		"ends":     {webapp, "CRASHED", "status 0", []string{"env: {EXIT: '0'}"}},
		"root":     {"localhost/busybox:1", "CRASHED", "root", nil},
		"missing":  {"localhost/nothing:1", "STARTING", "localhost/nothing:1", nil},
		"shell":    {webapp, "CRASHED", "/bin/sh", []string{"command: run"}},
		"unwell":   {webapp, "CRASHED", "health check", []string{"health-check-type: http", "health-check-http-endpoint: /health", "timeout: 2", "env: {SICK: 'yes'}"}},
		"unheeded": {webapp, "CRASHED", "health check", []string{"timeout: 2", "env: {PORT: '9999'}"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.push(t, name, of.image, of.manifest...)
			t.Cleanup(func() { s.remove(t, a) })
			eventually(t, "it says why", func() error {
				got := a.rows(t)[0]
				if got.State != of.state || !strings.Contains(got.Details, of.details) {
					return fmt.Errorf("expected %s %q, found %+v", of.state, of.details, got)
				}
				t.Logf("%s after %.2fs: %s", got.State, time.Since(began).Seconds(), got.Details)
				return nil
			})
		})
	}
}

// sick has two apps that ran, whose health checks begin to fail: that of one by HTTP, that of the other at its port.
func (s *stage) sick(t *testing.T) {
	orders := map[string]app{
		"/sick": s.push(t, "sick", webapp, "health-check-type: http", "health-check-http-endpoint: /health"), "/deaf": s.push(t, "deaf", webapp),
	}
	began := time.Now()
	for order, a := range orders {
		t.Cleanup(func() { s.remove(t, a) })
		a.runs(t, 1)
		s.tellPod(t, a, 0, order)
	}
	for order, a := range orders {
		eventually(t, "it is not said to run, and is restarted", func() error {
			if n := restarts(a.instances(t)[0]); n != 1 {
				return fmt.Errorf("found it restarted %d times", n)
			}
			return nil
		})
		s.tell(t, "%s was noticed %.1fs after the app had run", order, time.Since(began).Seconds())
		a.runs(t, 1)
	}
}

func (s *stage) remove(t *testing.T, a app) {
	t.Helper()
	s.kubectl(t, "delete", "cfapp", a.guid, "--namespace="+space, "--wait=false")
	eventually(t, "its Pods are gone", func() error {
		if len(a.instances(t)) > 0 {
			return errors.New("found some")
		}
		return nil
	})
}

func restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
