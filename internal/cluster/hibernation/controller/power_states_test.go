// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// busyServer is the reported error of an overloaded API server, as on a busy machine.
const busyServer = "the server responds with 500"

const machineLatency = 300 * time.Millisecond

// TestPowerStates runs all scenarios on one hub at the same time. Each scenario has a separate cluster. The cluster's
// status history must be consistent.
func TestPowerStates(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	e.startManager(t, clouds())
	t.Run("rows", func(t *testing.T) {
		for name, scenario := range scenarios() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(t, e)
			})
		}
		for name, moment := range moments() {
			t.Run("Reversal: "+name, func(t *testing.T) {
				t.Parallel()
				e.changeMindAt(t, moment)
			})
		}
	})
	conflicts := 0
	for _, c := range e.counts.all() {
		conflicts += c.conflicts
	}
	t.Logf("%d clusters, %d status writes lost a race", len(e.counts.all()), conflicts)
}

func scenarios() map[string]func(*testing.T, *env) {
	return map[string]func(*testing.T, *env){
		"cluster hibernates and resumes with one event for each step":               hibernatesAndResumes,
		"status of a settled cluster is not written":                                settledIsNotWritten,
		"machine without capacity does not delay other machines":                    startsOtherMachines,
		"cluster that cannot be stopped completely is not stopped partly":           keepsUnstoppableCluster,
		"cluster without its kubeconfig hibernates with a warning":                  warnsOfUnrecordedNodes,
		"unreachable API server is awaited before its nodes are recorded":           waitsForNodeRecord,
		"more recent of two ClusterDeployments with one infraID waits":              refusesSecondOwner,
		"clusters with one infraID in two accounts are independent":                 tellsAccountsApart,
		"older ClusterDeployment with wrong credentials does not block a newer one": ignoresOwnersWithoutMachines,
		"cluster that may not be started again is not stopped":                      asksForRightsFirst,
		"machine stopped by another tool is started again":                          startsStoppedMachine,
		"start that the cloud accepts but drops is repeated":                        repeatsLostStarts,
		"hibernated cluster resumes although its version has become unknown":        resumesWithoutVersion,
		"plain Kubernetes cluster hibernates without a version":                     hibernatesWithoutVersion,
		"paused cluster is not changed until the pause is removed":                  pausesAndContinues,
		"cluster that is deleted while it hibernates is not changed":                deletedWhileHibernated,
		"a cluster whose run time has elapsed hibernates, and resumes on request":   hibernatesAfterItsTime,
		"new cluster hibernates once its SyncSets are applied":                      awaitsFirstSync,
		"workers stop before the control plane, and start after it":                 stopsWorkersFirst,
		"stop expires although the spec still requests it":                          endsStopAtItsTime,
		"stop that expired before the first pass stops nothing":                     ignoresStopThatIsOver,
	}
}

func hibernatesAndResumes(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	hibernated := s.get(t)
	record := hibernated.Status.Hibernation
	if record.RequestedBy != requestingUser {
		t.Errorf("the hibernation was asked for by %q, want %s", record.RequestedBy, requestingUser)
	}
	if len(record.Nodes) != 1 || record.Nodes[0].Name != readyNodeName || !record.Nodes[0].Ready || len(record.Nodes[0].Addresses) != 1 {
		t.Errorf("recorded nodes %+v, want the ready %s with its address", record.Nodes, readyNodeName)
	}
	if err := (expectedCondition{hivev1.ClusterUnreachableCondition, "True", hivev1.ClusterAsleepReason, []string{"does not connect"}}).check(hibernated); err != nil {
		t.Error(err)
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the end of the hibernation is recorded", func() error {
		if s.get(t).Status.Hibernation.ResumedAt == nil {
			return errors.New("no time")
		}
		return nil
	})
	s.awaitEvents(t, "Stopping", "Hibernating", "Resuming", "Running")
}

func awaitsFirstSync(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	cd := s.get(t)
	sync := &hiveinternalv1alpha1.ClusterSync{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: cd.Name}}
	e.ExpectCreated(t, sync)
	installed := fmt.Sprintf(`{"status":{"installedTimestamp":%q}}`, time.Now().UTC().Format(time.RFC3339))
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cd, client.RawPatch(types.MergePatchType, []byte(installed))))
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.SyncSetsNotAppliedReason, []string{"at the latest"}})
	waiting := s.get(t)
	if !hibernation.MayDial(waiting, time.Now()) || waiting.Status.PowerState != hivev1.SyncSetsNotAppliedReason {
		t.Errorf("expected a running cluster to which SyncSets can be applied, found %+v", waiting.Status)
	}
	sync.Status.FirstSuccessTime = new(metav1.NewTime(time.Now()))
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), sync))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if hibernation.MayDial(s.get(t), time.Now()) {
		t.Error("expected a cluster that hibernates not to be dialled")
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func hibernatesAfterItsTime(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Spec.HibernateAfter = "1h" })
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, []string{"spec.hibernateAfter hibernates the cluster at"}})
	s.patch(t, requestingUser, `{"spec":{"hibernateAfter":"1s"}}`)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	hibernated := s.get(t)
	if by := hibernated.Status.Hibernation.RequestedBy; by != "spec.hibernateAfter" || hibernated.Spec.PowerState != "" {
		t.Errorf("expected spec.hibernateAfter as the requester and an empty spec.powerState, found %q and %q", by, hibernated.Spec.PowerState)
	}
	s.patch(t, requestingUser, `{"spec":{"hibernateAfter":"2h"}}`)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)

	s.patch(t, requestingUser, `{"spec":{"hibernateAfter":"1s"}}`)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"hibernateAfter":"2h"}}`,
		hivev1.ResumeRequestedAtAnnotation, time.Now().UTC().Format(time.RFC3339)))
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func endsStopAtItsTime(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:"48h",%q:"a change of disks"}},"spec":{"powerState":"Hibernating"}}`,
		torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.HibernatingHibernationReason, []string{"asked for by " + requestingUser + ": a change of disks; until 20"}})
	s.awaitSettled(t, hivev1.PowerStateHibernating)

	s.setUntil(t, "1ms")
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, []string{"torpor.dev/until ended that stop at 20"}})
	s.awaitSettled(t, hivev1.PowerStateRunning)
	ended := s.get(t)
	testenv.ExpectEqual(t, "spec.powerState", hivev1.PowerStateHibernating, ended.Spec.PowerState)
	if stops := ended.Status.Stops; len(stops) != 1 || stops[0].By != requestingUser || stops[0].StartedBy != torporv1alpha1.UntilAnnotation || !stops[0].Requested {
		t.Errorf("found %+v", stops)
	}
	e.WaitForEvent(t, s.key.Namespace, stoprecord.EventStopEnded, "The stop has ended by itself")

	s.setUntil(t, "tomorrow")
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	e.WaitForEvent(t, s.key.Namespace, stoprecord.EventAnnotationIgnored, `found "tomorrow"`)
	s.patch(t, "carol", `{"spec":{"powerState":"Running"}}`)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	if stops := s.get(t).Status.Stops; len(stops) != 2 || stops[0].Requested || stops[0].StartedBy != "carol" {
		t.Errorf("found %+v", stops)
	}
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}

// setUntil writes only the end of the stop.
func (s *testCluster) setUntil(t *testing.T, until string) {
	t.Helper()
	s.patch(t, "carol", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, torporv1alpha1.UntilAnnotation, until))
}

func ignoresStopThatIsOver(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) {
		r.cloud = testenv.StartCloud(t)
		r.cd.Spec.PowerState, r.cd.Annotations = hivev1.PowerStateHibernating, map[string]string{torporv1alpha1.UntilAnnotation: "1ns"}
	})
	s.awaitSettled(t, hivev1.PowerStateRunning)
	if calls := s.cloud.CountCalls(t)["StopInstances"]; calls != 0 {
		t.Errorf("expected no machine to be stopped, found %d calls", calls)
	}
}

// awaitEvents waits for exactly one event for each reason, and for no other events.
func (s *testCluster) awaitEvents(t *testing.T, reasons ...string) {
	t.Helper()
	testenv.Eventually(t, "the events of "+s.infraID, func() error {
		var list eventsv1.EventList
		if err := s.env.Client.List(t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return fmt.Errorf("list events: %w", err)
		}
		found := map[string]int{}
		for _, e := range list.Items {
			found[e.Reason]++
			if e.Series != nil {
				return fmt.Errorf("%s was repeated %d times", e.Reason, e.Series.Count)
			}
			if e.Reason == hivev1.StoppingHibernationReason && !strings.Contains(e.Note, "asked for by "+requestingUser) {
				return fmt.Errorf("%s does not name the requester: %s", e.Reason, e.Note)
			}
		}
		for _, reason := range reasons {
			if found[reason] != 1 {
				return fmt.Errorf("%s has %d events, want one: %v", reason, found[reason], found)
			}
		}
		if len(found) != len(reasons) {
			return fmt.Errorf("events %v, want %v", found, reasons)
		}
		return nil
	})
}

func settledIsNotWritten(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	touches := 0
	for round, state := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating, hivev1.PowerStateRunning} {
		s.setPowerState(t, state)
		s.awaitSettled(t, state)
		if round == 2 {
			continue
		}
		settledAt := s.get(t).Status
		testenv.Eventually(t, string(state)+" is not written to", func() error { // On a busy machine, a late finding or a slow answer is written first.
			const touchesInTurn = 4
			before := e.counts.of(s.key)
			for range touchesInTurn {
				touches++
				s.touchAndAwaitPass(t, touches)
			}
			after := e.counts.of(s.key)
			return testenv.ErrorIf(after.writes != before.writes, "%d passes wrote the status %d times", after.passes-before.passes, after.writes-before.writes)
		})
		if now := s.get(t).Status; now.PowerState != settledAt.PowerState || len(now.Conditions) != len(settledAt.Conditions) {
			t.Errorf("%s: the status changed from %+v to %+v", state, settledAt, now)
		}
	}
}

func (s *testCluster) touchAndAwaitPass(t *testing.T, value int) {
	t.Helper()
	began := s.env.counts.of(s.key).passes
	s.touchAnnotation(t, value)
	testenv.Eventually(t, "a pass after the touch", func() error {
		return testenv.ErrorIf(s.env.counts.of(s.key).passes == began, "%d passes", began)
	})
}

func startsOtherMachines(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.machines, r.cloud = 3, testenv.StartCloud(t) })
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.cloud.InjectFault(t, testenv.CloudFault{Action: "StartInstances", Code: "InsufficientInstanceCapacity", Message: "No room.", InstanceIDs: s.ids[1:2]})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "True", hivev1.MachinesMissingReason, []string{s.ids[1], "InsufficientInstanceCapacity for " + s.ids[1], "No room."}})
	testenv.Eventually(t, "the other machines run", func() error {
		for _, m := range s.cloud.ListInstances(t, s.infraID) {
			if want := map[bool]string{true: "stopped", false: "running"}[m.ID == s.ids[1]]; m.State != want {
				return fmt.Errorf("%s is %s, want %s", m.Name, m.State, want)
			}
		}
		return nil
	})
	s.cloud.ClearFaults(t)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "False", hivev1.AsExpectedReason, nil})
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func keepsUnstoppableCluster(t *testing.T, e *env) {
	t.Helper()
	// The cluster has a separate cloud, because otherwise the calls would also contain orders for other clusters.
	s := e.newCluster(t, func(r *clusterSetup) { r.cloud = testenv.StartCloud(t) })
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.cloud.InjectFault(t, testenv.CloudFault{Action: "StopInstances", Code: "OperationNotPermitted", Message: "Stop protection.", InstanceIDs: s.ids[:1]})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{"OperationNotPermitted for one of ", s.ids[0], "Stop protection.", "no machine is stopped"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterStalledCondition, "True", hivev1.FailedToStopReason, nil})
	if err := s.cloud.ExpectState(t, s.infraID, "running"); err != nil {
		t.Error(err)
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterStalledCondition, "False", hivev1.AsExpectedReason, nil})
}

func waitsForNodeRecord(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.kubeconfig = nil })
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.RecordingNodesReason, []string{"Waiting for the API server"}})
	s.putSecret(t, adminSecret, e.adminKubeconfig(t))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if len(s.get(t).Status.Hibernation.Nodes) == 0 {
		t.Error("expected the nodes to be recorded before the stop, found none")
	}
}

func warnsOfUnrecordedNodes(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.kubeconfig = nil })
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.RecordingNodesReason, []string{"Waiting for the API server"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.StoppingMachinesReason, []string{"could not be recorded", "approve their certificate requests at the resume"}})
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.WaitingForAPIReason, nil})
	s.putSecret(t, adminSecret, e.adminKubeconfig(t))
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func startsStoppedMachine(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.cloud.StopInstance(t, s.ids[0])
	testenv.Eventually(t, "a machine is stopped", func() error {
		for _, m := range s.cloud.ListInstances(t, s.infraID) {
			if m.State == "stopped" {
				return nil
			}
		}
		return errors.New("all run")
	})
	s.touchAnnotation(t, 1)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "True", hivev1.MachinesMissingReason, []string{s.ids[0]}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "False", hivev1.AsExpectedReason, nil})
	s.awaitSettled(t, hivev1.PowerStateRunning)
	for _, cd := range s.history.all() {
		if u := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterUnreachableCondition); u != nil && u.Status == metav1.ConditionTrue && !strings.Contains(u.Message, busyServer) {
			t.Errorf("a machine that stopped made the cluster unreachable: %s", u.Message)
		}
	}
}

func repeatsLostStarts(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.cloud.InjectFault(t, testenv.CloudFault{Kind: "lostStart", InstanceIDs: s.ids[:1], Times: 1})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func resumesWithoutVersion(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"powerState":"Running"}}`, hivev1.VersionLabel))
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func hibernatesWithoutVersion(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Labels, r.cd.Spec.PowerState = nil, hivev1.PowerStateHibernating })
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	for _, cd := range s.history.all() {
		if c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition); c != nil && c.Status == metav1.ConditionFalse {
			t.Errorf("a cluster without a version is reported as %s: %s", c.Reason, c.Message)
		}
	}
}

func pausesAndContinues(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"powerState":"Hibernating"}}`, hivev1.ReconcilePauseAnnotation))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", hivev1.PausedReason, nil})
	if err := s.cloud.ExpectState(t, s.infraID, "running"); err != nil {
		t.Error(err)
	}
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, hivev1.ReconcilePauseAnnotation))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}

func deletedWhileHibernated(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Finalizers = []string{"example.com/held"} })
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if err := e.Client.Delete(t.Context(), s.get(t)); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", hivev1.DeletedReason, nil})
	e.WaitForEvent(t, s.key.Namespace, hivev1.DeletedReason, "its machines are left as they are")
	s.patch(t, "alice", `{"metadata":{"finalizers":null}}`)
	if err := s.cloud.ExpectState(t, s.infraID, "stopped"); err != nil {
		t.Error(err)
	}
}

// moment is a state within a transition at which the desired power state changes back.
type moment struct {
	// from is the initial power state of the cluster, which changes and is then restored.
	from hivev1.PowerState
	// reached returns nil once the moment is reached.
	reached func(*testing.T, *testCluster) error
}

func moments() map[string]moment {
	atOnce := func(*testing.T, *testCluster) error { return nil }
	has := func(e expectedCondition) func(*testing.T, *testCluster) error {
		return func(_ *testing.T, s *testCluster) error { return s.hasCondition(e) }
	}
	// A machine changes its state quickly, and a busy test may miss the transition. A machine that has left its old
	// state counts as changing.
	leave := func(state string) func(*testing.T, *testCluster) error {
		return func(t *testing.T, s *testCluster) error {
			t.Helper()
			for _, m := range s.cloud.ListInstances(t, s.infraID) {
				if m.State != state {
					return nil
				}
			}
			return fmt.Errorf("all machines are %s", state)
		}
	}
	all := func(state string) func(*testing.T, *testCluster) error {
		return func(t *testing.T, s *testCluster) error { t.Helper(); return s.cloud.ExpectState(t, s.infraID, state) }
	}
	const running, hibernating = hivev1.PowerStateRunning, hivev1.PowerStateHibernating
	return map[string]moment{
		"power state is changed back before the hibernation begins":                              {running, atOnce},
		"power state is changed back once the status reports Stopping":                           {running, has(expectedCondition{hivev1.ClusterHibernatingCondition, "True", "Stopping", nil})},
		"power state is changed back when the machines begin to stop":                            {running, leave("running")},
		"power state is changed back when all machines are stopped before the status reports it": {running, all("stopped")},
		"power state is changed back once the cluster hibernates":                                {running, has(settledCondition(hibernating))},
		"power state is changed back before the resume begins":                                   {hibernating, atOnce},
		"power state is changed back once the status reports Resuming":                           {hibernating, has(expectedCondition{hivev1.ClusterHibernatingCondition, "True", "Resuming", nil})},
		"power state is changed back when the machines begin to start":                           {hibernating, leave("stopped")},
		"power state is changed back when all machines run before the status reports it":         {hibernating, all("running")},
		"power state is changed back shortly after the cluster has resumed":                      {hibernating, has(settledCondition(running))},
	}
}

func (e *env) changeMindAt(t *testing.T, m moment) {
	t.Helper()
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Spec.PowerState = m.from })
	s.awaitSettled(t, m.from)
	other := map[hivev1.PowerState]hivev1.PowerState{
		hivev1.PowerStateRunning: hivev1.PowerStateHibernating, hivev1.PowerStateHibernating: hivev1.PowerStateRunning,
	}[m.from]
	s.setPowerState(t, other)
	testenv.Eventually(t, "the moment has come", func() error { return m.reached(t, s) })
	s.setPowerState(t, m.from)
	s.awaitSettled(t, m.from)
	s.setPowerState(t, other)
	s.awaitSettled(t, other)
}
