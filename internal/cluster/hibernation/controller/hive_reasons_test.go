// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestReasonsOfHiveAreReported hibernates and resumes a cluster with Hive's reasons. The events still have Torpor's
// reasons, with one event for each step. A manager with Torpor's reasons that takes over, and the next manager with
// Hive's reasons, emit no further event.
func TestReasonsOfHiveAreReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.usesHiveReasons = true
	stop := e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	running := expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.ResumingOrRunningHibernationReason, nil}
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, running)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.StoppingOrHibernatingReason, nil})
	testenv.ExpectEqual(t, "status.powerState", "Hibernating", s.get(t).Status.PowerState)
	s.awaitEvents(t, "Stopping", "Hibernating")

	stop()
	e.usesHiveReasons = false
	stop = e.startManager(t, clouds())
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.HibernatingHibernationReason, nil})
	stop()
	e.usesHiveReasons = true
	e.startManager(t, clouds())
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.StoppingOrHibernatingReason, nil})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, running)
	testenv.ExpectEqual(t, "status.powerState", "Running", s.get(t).Status.PowerState)
	s.awaitEvents(t, "Stopping", "Hibernating", "Resuming", "Running")
}
