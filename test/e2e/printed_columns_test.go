// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// A column of the type date shows the age of a time, and the API server prints <invalid> for a future time.
func TestColumnsShowTheEndOfAStop(t *testing.T) {
	env := testenv.StartAPIServer(t)
	const crds = "../../config/crd/"
	env.InstallCRDs(t, crds+"hive.openshift.io_clusterdeployments.yaml", crds+"moco.cybozu.com_mysqlclusters.yaml",
		crds+"korifi.cloudfoundry.org_cfapps.yaml")
	name := types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "shop"}
	until := time.Now().UTC().Add(60 * time.Hour).Format(time.RFC3339)
	for _, row := range []struct {
		obj      client.Object
		resource schema.GroupVersionResource
		lists    []string
	}{
		{
			testenv.BuildClusterDeployment(name, "cloud", "admin"),
			schema.GroupVersionResource{Group: "hive.openshift.io", Version: "v1", Resource: "clusterdeployments"},
			[]string{"stops"},
		},
		{
			testenv.BuildMySQLCluster(t, name, 1),
			schema.GroupVersionResource{Group: "moco.cybozu.com", Version: "v1beta2", Resource: "mysqlclusters"},
			[]string{"clusteringStops", "reconciliationStops", "instanceStops"},
		},
		{
			testenv.BuildCFApp(name),
			schema.GroupVersionResource{Group: "korifi.cloudfoundry.org", Version: "v1alpha1", Resource: "cfapps"},
			[]string{"stops"},
		},
	} {
		env.ExpectCreated(t, row.obj)
		status := map[string]any{}
		for _, list := range row.lists {
			status[list] = []any{map[string]any{"requested": true, "since": "2026-11-20T10:00:00Z", "by": "alice", "until": until}}
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		testenv.ExpectNoError(t, err)
		testenv.ExpectNoError(t, env.Client.Status().Patch(t.Context(), row.obj, client.RawPatch(types.MergePatchType, patch)))
		expectEndShown(t, env.GetTable(t, row.resource, name), until, len(row.lists))
	}
}

func expectEndShown(t *testing.T, table metav1.Table, until string, columns int) {
	t.Helper()
	found := 0
	for i, column := range table.ColumnDefinitions {
		cell := fmt.Sprint(table.Rows[0].Cells[i])
		if cell == "<invalid>" {
			t.Errorf("column %s: expected a time, found %s", column.Name, cell)
		}
		if strings.HasSuffix(column.Name, "Until") && cell == until {
			found++
		}
	}
	if found != columns {
		t.Errorf("expected %d columns with the end %s, found %d in %v", columns, until, found, table.Rows[0].Cells)
	}
}
