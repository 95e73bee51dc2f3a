// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestRestoredHub restores the objects of a hub from a dump while their clusters hibernate or run. No machine may be
// started or stopped. Tools such as Velero drop the status unless they are configured to restore it. The user who
// restores an object becomes the requester of its stop, unless the status contains the record.
func TestRestoredHub(t *testing.T) {
	t.Parallel()
	asleep := func(says string) expectedCondition {
		return expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.HibernatingHibernationReason, []string{says}}
	}
	running := settledCondition(hivev1.PowerStateRunning)
	for name, row := range map[string]struct {
		state hivev1.PowerState
		keep  keptParts
		ready expectedCondition
	}{
		"hibernating cluster restored with its status keeps the requester":                         {hivev1.PowerStateHibernating, keptParts{status: true, annotations: true}, asleep("asked for by bob")},
		"hibernating cluster restored without its status has the restoring user as the requester":  {hivev1.PowerStateHibernating, keptParts{annotations: true}, asleep("asked for by admin")},
		"hibernating cluster restored without status and annotations warns about unrecorded nodes": {hivev1.PowerStateHibernating, keptParts{}, asleep("the cluster's nodes could not be recorded")},
		"running cluster restored with its status keeps running":                                   {hivev1.PowerStateRunning, keptParts{status: true, annotations: true}, running},
		"running cluster restored without status and annotations keeps running":                    {hivev1.PowerStateRunning, keptParts{}, running},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			stop := e.startManager(t, clouds())
			s := e.newCluster(t, nil)
			s.awaitSettled(t, hivev1.PowerStateRunning)
			if row.state == hivev1.PowerStateHibernating {
				s.setPowerState(t, row.state)
				s.awaitSettled(t, row.state)
			}
			stop()
			recorded := s.get(t).Status.Hibernation
			s.restore(t, row.keep)
			if row.state == hivev1.PowerStateHibernating {
				s.putSecret(t, adminSecret, e.kubeconfigWithServer(t, "https://127.0.0.1:1"))
			}
			s.cloud.ResetCalls(t)

			e.startManager(t, clouds())
			s.touchAnnotation(t, 1)
			s.awaitSettled(t, row.state)
			s.awaitCondition(t, row.ready)
			if found := s.get(t).Status.Hibernation; row.keep.annotations && recorded != nil {
				testenv.ExpectEqual(t, "recorded nodes", recorded.Nodes, found.Nodes)
			}
			if calls := s.cloud.CountCalls(t); calls["StartInstances"]+calls["StopInstances"] != 0 {
				t.Errorf("expected no order, found %v", calls)
			}
			s.putSecret(t, adminSecret, e.adminKubeconfig(t))
			s.setPowerState(t, hivev1.PowerStateRunning)
			s.awaitSettled(t, hivev1.PowerStateRunning)
		})
	}
}

// keptParts are the parts of an object that a dump contains in addition to its spec. Without annotations, option keeps
// the annotation MachineGroups alone, as a repository with the user's manifests does.
type keptParts struct{ status, annotations, option bool }

// restore replaces the ClusterDeployment with a copy under another UID, as a restore from a dump does.
func (s *testCluster) restore(t *testing.T, keep keptParts) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	dump := s.get(t)
	gone := dump.DeepCopy()
	testenv.ExpectNoError(t, s.env.Client.Delete(ctx, gone))
	testenv.ExpectNoError(t, client.IgnoreNotFound(s.env.Client.Patch(ctx, gone, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	dump.ResourceVersion, dump.UID, dump.CreationTimestamp, dump.Generation = "", "", metav1.Time{}, 0
	restored := dump.DeepCopy()
	if !keep.annotations {
		restored.Annotations = nil
	}
	if keep.option {
		restored.Annotations = map[string]string{hivev1.MachineGroupsAnnotation: dump.Annotations[hivev1.MachineGroupsAnnotation]}
	}
	restored.Status = hivev1.ClusterDeploymentStatus{}
	s.env.ExpectCreated(t, restored)
	if keep.status {
		restored.Status = dump.Status
		testenv.ExpectNoError(t, s.env.Client.Status().Update(ctx, restored))
	}
	s.desiredGeneration = restored.Generation
}
