// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/testenv"
)

func (s *mysqlSuite) testPrimaryKilled(t *testing.T) {
	old := s.readCluster(t, "test").Status.Primary
	s.expectReplacement(t, old, "kill -9 of its server", func() { killServer(t, s.listPods(t)[podName(old)]) })
}

func (s *mysqlSuite) testPrimaryDeleted(t *testing.T) {
	old := s.readCluster(t, "test").Status.Primary
	s.expectReplacement(t, old, "its Pod's deletion", func() { s.kubectl(t, "delete", "pod", podName(old), "--wait=false") })
}

// expectReplacement expects another primary that takes writes within seconds, and the old one to come back as a replica.
func (s *mysqlSuite) expectReplacement(t *testing.T, old int, what string, do func()) {
	t.Helper()
	s.startWriting(t)
	do()
	began := time.Now()
	primary := old
	eventually(t, "another primary", func() error {
		if primary = s.readCluster(t, "test").Status.Primary; primary == old {
			return fmt.Errorf("expected another primary than %d", old)
		}
		return nil
	})
	s.logf(t, "instance %d is the primary %.1fs after %s", primary, time.Since(began).Seconds(), what)
	s.expectNothingLost(t)
	gap := s.writer.longestGap()
	s.logf(t, "the longest time without an acknowledgement was %s", gap)
	if gap > time.Minute {
		t.Errorf("time without an acknowledgement: expected seconds, found %s", gap)
	}
	testenv.Eventually(t, "the old primary is a replica", func() error {
		if p := s.listPods(t)[podName(old)]; !p.ready() || p.role() != "replica" {
			return fmt.Errorf("expected %s to be ready and a replica, found role %q", podName(old), p.role())
		}
		return nil
	})
	s.waitUntilHealthy(t, "test")
	s.logf(t, "instance %d is back as a replica, and the cluster is healthy", old)
}
