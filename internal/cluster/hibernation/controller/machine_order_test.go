// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func stopsWorkersFirst(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) {
		r.cloud = testenv.StartCloud(t, "--start-latency", machineLatency.String(), "--stop-latency", machineLatency.String())
		r.named = []string{"worker-a-0", "master-0", "infra-0", "master-1"}
		r.cd.Annotations = map[string]string{hivev1.StopOrderAnnotation: "workers-last"}
	})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, []string{`expected workers-first, found "workers-last"`}})
	e.WaitForEvent(t, s.key.Namespace, stoprecord.EventAnnotationIgnored, `expected workers-first, found "workers-last"`)
	s.patch(t, requestingUser, `{"metadata":{"annotations":{"`+hivev1.StopOrderAnnotation+`":"`+hivev1.StopWorkersFirst+`"}},"spec":{"powerState":"Hibernating"}}`)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.expectTold(t, "workers stop first, and the control plane when all workers are off", "the workers are off")
	controlPlane, workers := s.machinesByRole(t)
	for _, last := range controlPlane {
		for _, first := range workers {
			if last.AskedAt.Before(first.ChangedAt) {
				t.Errorf("%s was ordered to stop at %s, before %s was off at %s", last.Name, last.AskedAt, first.Name, first.ChangedAt)
			}
		}
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.expectTold(t, "the control plane starts first, and the workers when the API server answers")
	controlPlane, workers = s.machinesByRole(t)
	for _, first := range controlPlane {
		for _, last := range workers {
			if last.AskedAt.Before(first.ChangedAt) {
				t.Errorf("%s was ordered to start at %s, before %s ran at %s", last.Name, last.AskedAt, first.Name, first.ChangedAt)
			}
		}
	}
}

// expectTold expects that the message of Ready contains each of the parts at some time.
func (s *testCluster) expectTold(t *testing.T, parts ...string) {
	t.Helper()
	var told []string
	for _, cd := range s.history.all() {
		if ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition); ready != nil {
			told = append(told, ready.Message)
		}
	}
	for _, part := range parts {
		if !slices.ContainsFunc(told, func(message string) bool { return strings.Contains(message, part) }) {
			t.Errorf("expected %q in a message of Ready, found %q", part, told)
		}
	}
}

// machinesByRole returns the machines of each role as the cloud lists them.
func (s *testCluster) machinesByRole(t *testing.T) (controlPlane, workers []testenv.CloudInstance) {
	t.Helper()
	masters := []string{s.infraID + "-master-0", s.infraID + "-master-1"}
	for _, i := range s.cloud.ListInstances(t, s.infraID) {
		if slices.Contains(masters, i.Name) {
			controlPlane = append(controlPlane, i)
		} else {
			workers = append(workers, i)
		}
	}
	testenv.ExpectEqual(t, "machines of each role", [2]int{2, 2}, [2]int{len(controlPlane), len(workers)})
	return controlPlane, workers
}
