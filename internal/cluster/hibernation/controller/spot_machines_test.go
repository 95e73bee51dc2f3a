// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	machineNamespace = "openshift-machine-api"
	machineFinalizer = "machine.machine.openshift.io"
	terminations     = "TerminateInstances"
)

func machineKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: kind}
}

// TestSpotMachines uses clusters with a MachineSet's spot machine, on one API server with OpenShift's Machines.
func TestSpotMachines(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.InstallCRDs(t, "testdata/openshift-machines.yaml")
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineNamespace}})
	stop := e.startManager(t, clouds())
	t.Run("rows", func(t *testing.T) {
		for name, row := range map[string]func(*testing.T, *env){
			"spot machines are terminated last, and replaced at the resume":           terminatesAndReplaces,
			"spot machine created after the record was written is terminated":         terminatesLateSpotMachine,
			"cancelled hibernation terminates no spot machine":                        cancelledTerminatesNone,
			"spot machine without the label on its Machine keeps its cluster running": keepsOtherSpotMachines,
			"missing right to terminate prevents the stop":                            asksForTerminationFirst,
			"protected spot machine prevents a complete hibernation":                  tellsProtectedSpotMachine,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				row(t, e)
			})
		}
	})
	stop()
	terminatesBesideManagersThatEnd(t, e)
}

// spotCluster is a cluster with an additional machine of a MachineSet. The MachineSet replaces the machine when its
// Machine is deleted.
type spotCluster struct {
	*testCluster
	set *unstructured.Unstructured
	// spot is the current spot machine, and made are the names of all Machines created so far.
	spot string
	made []string
	// withoutDrain records for each deleted Machine whether the drain of its node was skipped.
	withoutDrain map[string]bool
	labels       map[string]string
}

// newSpotCluster creates a cluster in a separate cloud, and counts the cloud's calls.
func (e *env) newSpotCluster(t *testing.T, labels map[string]string) *spotCluster {
	t.Helper()
	s := &spotCluster{labels: labels, withoutDrain: map[string]bool{}, set: &unstructured.Unstructured{}}
	s.testCluster = e.newCluster(t, func(r *clusterSetup) {
		r.cloud = testenv.StartCloud(t)
		// The manager must have listed the machine before it hibernates the cluster.
		s.testCluster = &testCluster{env: e, cloud: r.cloud, infraID: r.cd.Spec.ClusterMetadata.InfraID}
		s.set.SetGroupVersionKind(machineKind("MachineSet"))
		s.set.SetNamespace(machineNamespace)
		s.set.SetName(s.infraID)
		e.ExpectCreated(t, s.set)
		s.reconcileMachines(t)
	})
	s.awaitRunning(t)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	return s
}

func interruptible() map[string]string {
	return map[string]string{"machine.openshift.io/interruptible-instance": ""}
}

// reconcileMachines acts like OpenShift's controllers: it finalizes deleted Machines, and creates one if there is
// none.
func (s *spotCluster) reconcileMachines(t *testing.T) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(machineKind("MachineList"))
	if err := s.env.Client.List(t.Context(), list, client.InNamespace(machineNamespace)); err != nil {
		t.Fatal(err)
	}
	stays := 0
	for i := range list.Items {
		m := &list.Items[i]
		switch {
		case !metav1.IsControlledBy(m, s.set):
		case m.GetDeletionTimestamp() == nil:
			stays++
		default:
			s.withoutDrain[m.GetName()] = m.GetAnnotations()["machine.openshift.io/exclude-node-draining"] != ""
			controllerutil.RemoveFinalizer(m, machineFinalizer)
			if err := client.IgnoreNotFound(s.env.Client.Update(t.Context(), m)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if stays == 0 {
		s.makeMachine(t)
	}
}

// makeMachine creates a spot machine and its Machine.
func (s *spotCluster) makeMachine(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("%s-%d", s.infraID, len(s.made))
	s.spot = s.cloud.RunSpotInstance(t, s.infraID, name)
	m := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"providerID": "aws:///" + testenv.Region + "a/" + s.spot}}}
	m.SetGroupVersionKind(machineKind("Machine"))
	m.SetNamespace(machineNamespace)
	m.SetName(name)
	m.SetLabels(s.labels)
	m.SetFinalizers([]string{machineFinalizer})
	m.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(s.set, machineKind("MachineSet"))})
	s.env.ExpectCreated(t, m)
	s.made = append(s.made, name)
}

// awaitPowerState reconciles Machines while it waits.
func (s *spotCluster) awaitPowerState(t *testing.T, state hivev1.PowerState) {
	t.Helper()
	testenv.Eventually(t, s.infraID+" becomes "+string(state), func() error {
		s.reconcileMachines(t)
		return s.hasCondition(settledCondition(state))
	})
	if state == hivev1.PowerStateRunning {
		s.awaitRunning(t) // The cluster is reported as running before its new spot machine runs.
	}
	s.awaitSettled(t, state)
}

// awaitRunning waits until all machines of the cluster run, including the spot machine.
func (s *spotCluster) awaitRunning(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "all machines run", func() error { return s.cloud.ExpectState(t, s.infraID, "running") })
}

func (s *spotCluster) find(t *testing.T, id string) testenv.CloudInstance {
	t.Helper()
	all := s.cloud.ListInstances(t, s.infraID)
	i := slices.IndexFunc(all, func(m testenv.CloudInstance) bool { return m.ID == id })
	if i < 0 {
		t.Fatalf("expected the machine %s, found %+v", id, all)
	}
	return all[i]
}

func terminatesAndReplaces(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, interruptible())
	first := s.spot
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitPowerState(t, hivev1.PowerStateHibernating)
	s.expectTerminatedLast(t, first)
	testenv.ExpectEqual(t, "the recorded spot machines", []string{first}, s.get(t).Status.Hibernation.SpotMachines)
	e.WaitForEvent(t, s.key.Namespace, hivev1.TerminatingSpotMachinesReason, first)

	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitPowerState(t, hivev1.PowerStateRunning)
	s.expectReplaced(t)
	e.WaitForEvent(t, s.key.Namespace, hibernation.SpotMachinesReplaced, s.made[0])
}

func (s *spotCluster) expectTerminatedLast(t *testing.T, spot string) {
	t.Helper()
	terminated := s.find(t, spot)
	if terminated.State != "terminated" && terminated.State != "shutting-down" {
		t.Errorf("the spot machine is %s, want it to be terminated", terminated.State)
	}
	for _, id := range s.ids {
		if m := s.find(t, id); m.State != "stopped" || m.ChangedAt.After(terminated.AskedAt) {
			t.Errorf("%s is %s since %s, want it to be stopped before the spot machine was terminated at %s", id, m.State, m.ChangedAt, terminated.AskedAt)
		}
	}
}

func (s *spotCluster) expectReplaced(t *testing.T) {
	t.Helper()
	s.awaitRunning(t)
	if len(s.made) != 2 || !s.withoutDrain[s.made[0]] {
		t.Errorf("expected one Machine to be deleted without a drain and another one to be made, found %v, %v", s.made, s.withoutDrain)
	}
}

// terminatesLateSpotMachine creates another machine while the others stop. The cluster does not respond until the
// stopped machines run again.
func terminatesLateSpotMachine(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, interruptible())
	first := s.spot
	s.cloud.InjectFault(t, testenv.CloudFault{Kind: "stuckStopping", InstanceIDs: s.ids[:1]})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitState(t, s.ids[1], "stopped")
	good := e.adminKubeconfig(t)
	s.putSecret(t, adminSecret, map[string][]byte{kubeconfigKey: []byte(strings.ReplaceAll(string(good[kubeconfigKey]), e.Config.Host, "https://"+listenSilently(t)))})
	s.makeMachine(t)
	late := s.spot
	s.cloud.ClearFaults(t)

	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.StartingMachinesReason, []string{late, "the stopped machines are started again"}})
	e.WaitForEvent(t, s.key.Namespace, hivev1.StartingMachinesReason, late)
	s.awaitState(t, s.ids[1], "running")
	for _, id := range []string{first, late} {
		if state := s.find(t, id).State; state != "running" {
			t.Errorf("expected %s not to be terminated before the record names both, found it %s", id, state)
		}
	}
	s.putSecret(t, adminSecret, good)
	s.awaitPowerState(t, hivev1.PowerStateHibernating)
	s.expectTerminatedLast(t, first)
	s.expectTerminatedLast(t, late)

	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitPowerState(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "both Machines are deleted", func() error {
		s.reconcileMachines(t)
		return testenv.ErrorIf(len(s.withoutDrain) != 2 || len(s.made) != 3, "they are not: %v, %v", s.withoutDrain, s.made)
	})
}

func (s *spotCluster) awaitState(t *testing.T, id, state string) {
	t.Helper()
	testenv.Eventually(t, id+" is "+state, func() error {
		return testenv.ErrorIf(s.find(t, id).State != state, "it is not")
	})
}

func cancelledTerminatesNone(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, interruptible())
	s.cloud.InjectFault(t, testenv.CloudFault{Kind: "stuckStopping", InstanceIDs: s.ids[:1]})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitState(t, s.ids[1], "stopped")
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.cloud.ClearFaults(t)
	s.awaitPowerState(t, hivev1.PowerStateRunning)
	if calls := s.cloud.CountCalls(t); calls[terminations] > 0 || calls[terminations+".dryRun"] == 0 || len(s.made) != 1 {
		t.Errorf("expected a dry run, no termination and no other Machine, found %v and %v", calls, s.made)
	}
	if s.find(t, s.spot).State != "running" {
		t.Errorf("expected %s to run on", s.spot)
	}
}

func keepsOtherSpotMachines(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, nil)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{"spot machines of one-time requests cannot be stopped", s.spot, "no machine is stopped"}})
	s.expectUntouched(t)
}

func (s *spotCluster) expectUntouched(t *testing.T) {
	t.Helper()
	if err := s.cloud.ExpectState(t, s.infraID, "running"); err != nil {
		t.Error(err)
	}
	if calls := s.cloud.CountCalls(t); calls[terminations] > calls[terminations+".errors"] {
		t.Errorf("expected no termination, found %v", calls)
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
}

func asksForTerminationFirst(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, interruptible())
	s.cloud.InjectFault(t, testenv.CloudFault{Action: terminations, Code: "UnauthorizedOperation", Message: "You may not."})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{terminations, "no machine is stopped without the rights"}})
	s.expectUntouched(t)
}

func tellsProtectedSpotMachine(t *testing.T, e *env) {
	t.Helper()
	s := e.newSpotCluster(t, interruptible())
	s.cloud.InjectFault(t, testenv.CloudFault{Action: terminations, Code: "OperationNotPermitted", Message: "Termination protection."})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{s.spot, "Termination protection.", "other machines are stopped"}})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitPowerState(t, hivev1.PowerStateRunning)
	if s.find(t, s.spot).State != "running" || len(s.made) != 1 {
		t.Errorf("expected the spot machine to run on, found %v", s.made)
	}
}

// terminatesBesideManagersThatEnd ends managers during the hibernation and the resume. Each next manager continues
// based on the status alone.
func terminatesBesideManagersThatEnd(t *testing.T, e *env) {
	t.Helper()
	stop := e.startManager(t, clouds())
	s := e.newSpotCluster(t, interruptible())
	s.cloud.InjectFault(t, testenv.CloudFault{Kind: "stuckStopping", InstanceIDs: s.ids[:1]})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitState(t, s.ids[0], "stopping")
	stop()
	s.cloud.ClearFaults(t)
	first := s.spot
	stop = e.startManager(t, clouds())
	s.awaitPowerState(t, hivev1.PowerStateHibernating)
	s.expectTerminatedLast(t, first)
	stop()
	s.setPowerState(t, hivev1.PowerStateRunning)
	stop = e.startManager(t, clouds())
	testenv.Eventually(t, "the Machine is deleted", func() error {
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(machineKind("Machine"))
		err := s.env.Client.Get(t.Context(), client.ObjectKey{Namespace: machineNamespace, Name: s.made[0]}, m)
		if err == nil && m.GetDeletionTimestamp() == nil {
			return errors.New("it is not")
		}
		return err
	})
	stop()
	e.startManager(t, clouds())
	s.awaitPowerState(t, hivev1.PowerStateRunning)
	s.expectReplaced(t)
}
