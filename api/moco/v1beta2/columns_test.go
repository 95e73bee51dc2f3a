// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// header is what the wish shows, word for word.
const header = "NAME   AVAILABLE   HEALTHY   PRIMARY   SYNCED REPLICAS   ERRANT REPLICAS   CLUSTERING ACTIVE   RECONCILE ACTIVE   LAST BACKUP"

func (s *schemaServer) testColumns(t *testing.T) {
	u := minimalCluster()
	u.SetNamespace(s.CreateNamespace(t))
	if err := s.Client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	var cluster mocov1beta2.MySQLCluster
	if err := s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	for kind, status := range map[string]metav1.ConditionStatus{
		mocov1beta2.AvailableCondition: metav1.ConditionUnknown, mocov1beta2.HealthyCondition: metav1.ConditionUnknown,
		mocov1beta2.ClusteringActiveCondition: metav1.ConditionFalse, mocov1beta2.ReconciliationActiveCondition: metav1.ConditionTrue,
	} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, LastTransitionTime: u.GetCreationTimestamp(), Reason: mocov1beta2.ClusteringStoppedReason, Message: "somebody stopped clustering",
		})
	}
	cluster.Status.SyncedReplicas = 2
	if err := s.typed.SubResource("status").Patch(t.Context(), &cluster, client.MergeFrom(before)); err != nil {
		t.Fatalf("a status of conditions and a number only: %v", err)
	}
	table := s.GetTable(t, mocov1beta2.GroupVersion().WithResource("mysqlclusters"), u.GetNamespace())
	var names []string
	var cells, wide []any
	for i, column := range table.ColumnDefinitions {
		if column.Priority > 0 {
			wide = append(wide, strings.ToUpper(column.Name), table.Rows[0].Cells[i])
			continue
		}
		names = append(names, strings.ToUpper(column.Name))
		cells = append(cells, table.Rows[0].Cells[i])
	}
	if got := strings.Join(names, "   "); got != header {
		t.Errorf("found columns\n%s\nwant\n%s", got, header)
	}
	if diff := cmp.Diff([]any{"test", "Unknown", "Unknown", 0.0, 2.0, nil, "False", "True", "<no value>"}, cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if len(wide) != 4 || wide[0] != "SINCE" || wide[1] == nil || wide[2] != "WHY" || wide[3] != "somebody stopped clustering" {
		t.Errorf("found %v, want what -o wide adds: SINCE and WHY", wide)
	}
}
