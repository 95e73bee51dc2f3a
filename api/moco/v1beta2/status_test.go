// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func (s *schemaServer) testStatus(t *testing.T) {
	u := minimalCluster()
	u.SetNamespace(s.CreateNamespace(t))
	if err := s.Client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(u.GetCreationTimestamp().Local())
	want := fullStatus(now)
	var cluster mocov1beta2.MySQLCluster
	if err := s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	want.DeepCopyInto(&cluster.Status)
	if err := s.typed.SubResource("status").Patch(t.Context(), &cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	var read mocov1beta2.MySQLCluster
	if err := s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read.Status); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	before = read.DeepCopy()
	read.Status.Instances[0].Role = "boss"
	if err := s.typed.SubResource("status").Patch(t.Context(), &read, client.MergeFrom(before)); !k8serrors.IsInvalid(err) {
		t.Errorf("found %v, want a role that does not exist to be refused", err)
	}
}

// fullStatus sets every field.
func fullStatus(now metav1.Time) mocov1beta2.MySQLClusterStatus {
	return mocov1beta2.MySQLClusterStatus{
		Conditions: []metav1.Condition{{
			Type: mocov1beta2.ClusteringActiveCondition, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: now,
			Reason: mocov1beta2.ClusteringInactiveReason, Message: "somebody stopped clustering",
		}},
		CurrentPrimaryIndex: 1, SyncedReplicas: 2, ErrantReplicas: 1, ErrantReplicaList: []int{2}, RestoredTime: &now, Cloned: true,
		Backup: mocov1beta2.BackupStatus{
			Time: &now, Elapsed: metav1.Duration{Duration: time.Minute}, SourceIndex: 2, SourceUUID: "u", UUIDSet: map[string]string{"0": "u"},
			BinlogFilename: "binlog.000001", GTIDSet: "u:1-5", DumpSize: 1, BinlogSize: 2, WorkDirUsage: 3, Warnings: []string{"w"},
		},
		ReconcileInfo: mocov1beta2.ReconcileInfo{Generation: 1, ReconcileVersion: 1},
		Pause: &mocov1beta2.Pause{
			Clustering:     &mocov1beta2.Stop{Since: now, By: "kubectl-moco", Reason: "to compare the replicas", Until: &now},
			Reconciliation: &mocov1beta2.Stop{Since: now},
			Quiescing:      "switchover",
		},
		Instances: []mocov1beta2.InstanceStatus{
			{Ordinal: 0, Role: mocov1beta2.RolePrimary, Writable: new(true), ExecutedGTIDs: "u:1-5"},
			{
				Ordinal: 1, Role: mocov1beta2.RoleReplica, Stopped: true, Writable: new(false), ExecutedGTIDs: "u:1-7,v:1", ErrantGTIDs: "v:1", AheadGTIDs: "u:6-7",
				LagSeconds: new(int64(0)), IOThread: "Yes", SQLThread: "No", Message: "the SQL thread is stopped; start it",
			},
			{Ordinal: 2, Message: "does not answer"},
		},
	}
}
