// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// dump is the content of a dump. hasRecord is true if it contains the record of the hibernation.
type dump struct {
	keep      keptParts
	hasRecord bool
}

func dumps() map[string]dump {
	return map[string]dump{
		"a dump of status and annotations":      {keptParts{status: true, annotations: true}, true},
		"a dump of annotations without status":  {keptParts{annotations: true}, true},
		"a dump of status without annotations":  {keptParts{status: true}, true},
		"a dump of only the user's annotation":  {keptParts{option: true}, false},
		"a dump without status and annotations": {keptParts{}, false},
	}
}

// changingCalls are the calls that change machines or groups.
func changingCalls() []string {
	return []string{
		"StartInstances", "StopInstances", "TerminateInstances", "RunInstances",
		"SuspendProcesses", "ResumeProcesses", "UpdateAutoScalingGroup", "UpdateNodegroupConfig",
	}
}

// expectNoChange starts a manager after a restore, and expects that it changes no cluster.
func (e *env) expectNoChange(t *testing.T, all ...*testCluster) {
	t.Helper()
	e.cloud.ResetCalls(t)
	e.startManager(t, clouds())
	for pass := range 2 { // The second pass begins with the saved status of the restored object.
		for _, s := range all {
			s.touchAnnotation(t, pass+1)
		}
		for _, s := range all {
			s.awaitSettled(t, hivev1.PowerStateHibernating)
		}
	}
	calls := e.cloud.CountCalls(t)
	for _, name := range changingCalls() {
		testenv.ExpectEqual(t, "calls of "+name, 0, calls[name])
	}
}

// resumeUnconfirmed resumes the cluster. Ready before the resume, and Degraded after it, must list the names that a
// user has to confirm.
func (s *testCluster) resumeUnconfirmed(t *testing.T, names ...string) {
	t.Helper()
	says := append([]string{"is not recorded"}, names...)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.HibernatingHibernationReason, says})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, settledCondition(hivev1.PowerStateRunning))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "True", hivev1.MachineGroupsUnconfirmedReason, says})
}

// awaitWhole waits until the cluster is no longer degraded, after a user has changed something outside of the object.
func (s *testCluster) awaitWhole(t *testing.T) {
	t.Helper()
	n := 2
	testenv.Eventually(t, s.infraID+" is whole", func() error {
		n++
		s.touchAnnotation(t, n)
		return s.hasCondition(expectedCondition{hivev1.ClusterDegradedCondition, "False", hivev1.AsExpectedReason, nil})
	})
}

// restoredGroup is a hibernating cluster of a restored hub. held is its group during the hibernation.
type restoredGroup struct {
	*groupedCluster
	dump

	mode string
	held testenv.CloudGroup
	gone int
}

// TestRestoredHubKeepsGroups restores a hub while groups of machines are held. With the record, the resume restores a
// group. Without it, the group is not changed, and conditions describe what a user has to confirm.
func TestRestoredHubKeepsGroups(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	stop := e.startManager(t, clouds())
	rows := map[string]*restoredGroup{}
	for _, mode := range []string{hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero} {
		for name, d := range dumps() {
			s := &restoredGroup{groupedCluster: e.newGroupedCluster(t, mode), dump: d, mode: mode}
			s.setPowerState(t, hivev1.PowerStateHibernating)
			rows[mode+" with "+name] = s
		}
	}
	var all []*testCluster
	for _, s := range rows {
		s.awaitSettled(t, hivev1.PowerStateHibernating)
		s.held, s.gone, all = s.cloud.DescribeGroup(t, s.group), len(s.terminated(t)), append(all, s.testCluster)
	}
	stop()
	for _, s := range rows {
		s.restore(t, s.keep)
	}
	e.expectNoChange(t, all...)
	for name, s := range rows {
		t.Run(name, func(t *testing.T) {
			s.expectGroup(t, s.held)
			s.resumeRestored(t)
			testenv.ExpectEqual(t, "terminated machines", s.gone, len(s.terminated(t)))
		})
	}
}

// resumeRestored resumes the cluster. If the record was lost, the group is restored as a user does it.
func (s *restoredGroup) resumeRestored(t *testing.T) {
	t.Helper()
	isSuspended := s.mode == hivev1.MachineGroupsSuspend
	switch {
	case s.hasRecord:
		s.awaitResume(t)
		s.expectGroup(t, s.before)
		return
	case isSuspended:
		s.resumeUnconfirmed(t, s.group)
	case s.keep.option:
		s.resumeUnconfirmed(t, hivev1.MachineGroupsScaleToZero)
	default: // Neither the object nor a machine refers to the group.
		s.setPowerState(t, hivev1.PowerStateRunning)
		s.awaitSettled(t, hivev1.PowerStateRunning)
		s.expectGroup(t, s.held)
		return
	}
	s.expectGroup(t, s.held)
	if isSuspended {
		s.cloud.CallAutoScaling(t, "ResumeProcesses", s.group)
	} else {
		size := []string{"MinSize", strconv.Itoa(s.before.Min), "DesiredCapacity", strconv.Itoa(s.before.Desired)}
		s.cloud.CallAutoScaling(t, "UpdateAutoScalingGroup", s.group, size...)
	}
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hivev1.MachineGroupsAnnotation, s.mode))
	s.awaitWhole(t)
}

// restoreTool is the field manager of a tool that restores objects from a dump.
const restoreTool = "restore-tool"

// restoreCluster replaces the Cluster with a copy that the restore tool creates. keepsManagers is true if the tool also
// restores the field managers, as Velero does in a second request.
func (s *managedCluster) restoreCluster(t *testing.T, keepsManagers bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	found := s.cluster.DeepCopy()
	testenv.ExpectNoError(t, s.env.Client.Get(ctx, client.ObjectKeyFromObject(s.cluster), found))
	testenv.ExpectNoError(t, s.env.Client.Delete(ctx, found.DeepCopy()))
	restored := found.DeepCopy()
	unstructured.RemoveNestedField(restored.Object, "metadata")
	restored.SetName(found.GetName())
	restored.SetNamespace(found.GetNamespace())
	testenv.ExpectNoError(t, s.env.Client.Create(ctx, restored, client.FieldOwner(restoreTool)))
	if keepsManagers {
		before := restored.DeepCopy()
		restored.SetManagedFields(found.GetManagedFields())
		testenv.ExpectNoError(t, s.env.Client.Patch(ctx, restored, client.MergeFrom(before), client.FieldOwner(restoreTool)))
	}
}

// deleteHealthChecks deletes the MachineHealthChecks, which belong to every cluster of the API server.
func (s *managedCluster) deleteHealthChecks(t *testing.T) {
	t.Helper()
	for _, check := range s.healthChecks {
		testenv.ExpectNoError(t, s.env.Client.Delete(context.WithoutCancel(t.Context()), check))
	}
}

// TestRestoredHubEndsPauses restores a hub while the controllers of machines are paused. Torpor's mark on a paused
// object suffices to end the pause. A Cluster without the mark was paused by Torpor if the record contains it, and
// otherwise a user has to confirm its pause.
func TestRestoredHubEndsPauses(t *testing.T) {
	t.Parallel()
	const whole, withoutStatus = "a dump of status and annotations", "a dump of annotations without status"
	const withoutRecord, withoutBoth = "a dump of only the user's annotation", "a dump without status and annotations"
	e := newEnv(t)
	e.installMachineControllers(t)
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	for name, row := range map[string]struct {
		dump          string
		keepsManagers bool
	}{
		"restore with status, annotations and field managers: resume ends the pauses":   {whole, true},
		"restore with status and annotations: resume ends the pauses":                   {whole, false},
		"restore with annotations only: resume ends the pauses":                         {withoutStatus, false},
		"restore with the user's annotation and field managers: resume ends the pauses": {withoutRecord, true},
		"restore with field managers only: resume ends the pauses":                      {withoutBoth, true},
		"restore with the user's annotation only: user must end the Cluster's pause":    {withoutRecord, false},
		"restore without these parts: user must end the Cluster's pause":                {withoutBoth, false},
	} {
		t.Run(name, func(t *testing.T) {
			stop := e.startManager(t, clouds())
			s := e.newManagedCluster(t, hivev1.MachineGroupsSuspend, nil)
			defer s.deleteHealthChecks(t)
			before := s.stateOf(t, s.objects()...)
			s.hibernate(t)
			held, heldCluster := s.stateOf(t, s.objects()...), s.stateOf(t, s.cluster)
			stop()
			s.restore(t, dumps()[row.dump].keep)
			s.restoreCluster(t, row.keepsManagers)
			e.expectNoChange(t, s.testCluster)
			testenv.ExpectEqual(t, "the controllers", held, s.stateOf(t, s.objects()...))
			if dumps()[row.dump].hasRecord || row.keepsManagers {
				s.resume(t)
			} else {
				s.resumeUnconfirmed(t, s.groupNames()[0])
				testenv.ExpectEqual(t, "the Cluster", heldCluster, s.stateOf(t, s.cluster))
				s.patchObject(t, s.cluster, `{"spec":{"paused":null}}`)
				s.awaitWhole(t)
			}
			testenv.ExpectEqual(t, "the controllers", before, s.stateOf(t, s.objects()...))
			s.expectSameMachines(t)
		})
	}
}
