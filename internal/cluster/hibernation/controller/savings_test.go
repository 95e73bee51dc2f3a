// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestSavingsOfAClusterSurviveTheManager hibernates a cluster, replaces the manager, and resumes the cluster. The
// status contains the machine-seconds of the record, and the counter of each later manager continues from them.
func TestSavingsOfAClusterSurviveTheManager(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stop := e.startManager(t, clouds())
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Spec.PowerState = hivev1.PowerStateHibernating })
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	asleep := s.get(t)
	if is := asleep.Status.Savings; is == nil || is.Machines != int64(len(asleep.Status.Hibernation.Nodes)) || !is.Since.Equal(asleep.Status.Hibernation.AsleepAt) {
		t.Fatalf("expected savings since %v, found %+v", asleep.Status.Hibernation.AsleepAt, is)
	}
	before := e.readSavedSeconds(t, s)
	stop()
	stop = e.startManager(t, clouds())
	testenv.Eventually(t, "the counter continues", func() error {
		found := e.readSavedSeconds(t, s)
		return testenv.ErrorIf(found <= before, "expected more than %v, found %v", before, found)
	})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	awake := s.get(t)
	is, machines := awake.Status.Savings, float64(asleep.Status.Savings.Machines)
	// The record rounds the start of the resume up to the next second.
	longest := awake.Status.Hibernation.ResumeStartedAt.Sub(asleep.Status.Savings.Since.Time)
	if least := machines * (longest - time.Second).Seconds(); is.Since != nil || float64(is.MachineSeconds) < least-1 || float64(is.MachineSeconds) > machines*longest.Seconds()+1 {
		t.Errorf("expected about %.0f machine-seconds, found %+v", machines*longest.Seconds(), is)
	}
	if len(is.Weeks) == 0 || is.Weeks[0].MachineSeconds > is.MachineSeconds {
		t.Errorf("expected the part of this week, found %+v", is)
	}
	stop()
	e.startManager(t, clouds())
	testenv.Eventually(t, "the counter of the next manager", func() error {
		found := e.readSavedSeconds(t, s)
		return testenv.ErrorIf(found != float64(is.MachineSeconds), "expected %d, found %v", is.MachineSeconds, found)
	})
}

// readSavedSeconds returns a cluster's counter.
func (e *env) readSavedSeconds(t *testing.T, s *testCluster) float64 {
	t.Helper()
	return e.gatherMetrics(t)["torpor_saved_machine_seconds_total kind=ClusterDeployment name="+s.key.Name+" namespace="+s.key.Namespace]
}
