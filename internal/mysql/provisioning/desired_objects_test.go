// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

var update = flag.Bool("update", false, "write the golden files")

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, which -update writes anew (-want +got):\n%s", path, diff)
	}
}

func parseCluster(t *testing.T, text string) *mocov1beta2.MySQLCluster {
	t.Helper()
	c := &mocov1beta2.MySQLCluster{}
	if err := yaml.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

const minimalCluster = `
metadata: {namespace: default, name: test, uid: "1"}
spec:
  replicas: 3
  serverIDBase: 100
  startupWaitSeconds: 3600
  podTemplate: {spec: {containers: [{name: mysqld, image: "mysql:1"}]}}
  volumeClaimTemplates:
  - metadata: {name: mysql-data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

const richCluster = `
metadata: {namespace: default, name: test, uid: "1"}
spec:
  replicas: 1
  offline: true
  serverIDBase: 100
  startupWaitSeconds: 60
  podTemplate:
    metadata: {labels: {team: data, app.kubernetes.io/instance: other}, annotations: {note: here}}
    spec:
      securityContext: {runAsUser: 0}
      serviceAccountName: mine
      priorityClassName: high
      affinity: {}
      containers:
      - {name: sidecar, image: "sidecar:1"}
      - name: mysqld
        image: mysql:1
        args: [--max-connections=5]
        env: [{name: TZ, value: UTC}]
        resources: {limits: {memory: 10Gi}}
        livenessProbe: {failureThreshold: 3, terminationGracePeriodSeconds: 200}
        readinessProbe: {exec: {command: [/bin/true]}}
      initContainers: [{name: before, image: "before:1"}]
      volumes: [{name: scratch, emptyDir: {}}]
    overwriteContainers: [{name: moco-init, resources: {limits: {memory: 1Gi}}}]
  primaryServiceTemplate:
    metadata: {labels: {team: data}, annotations: {note: here}}
    spec: {type: LoadBalancer, selector: {wrong: "yes"}}
  volumeClaimTemplates:
  - metadata: {name: mysql-data, labels: {team: data}}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

func TestBuildObjects(t *testing.T) {
	passwords := map[string][]byte{}
	for _, a := range instanceAccounts() {
		passwords[a.key] = []byte("secret of " + a.name)
	}
	for name, text := range map[string]string{"minimal.yaml": minimalCluster, "rich.yaml": richCluster} {
		t.Run(name, func(t *testing.T) {
			w, err := BuildObjects(BuildInput{Cluster: parseCluster(t, text), Passwords: passwords})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, o := range append(w.Objects, w.StatefulSet) {
				if o.GetKind() == "Secret" || o.GetKind() == "ConfigMap" {
					continue // Their content has files of its own.
				}
				data, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("---\n" + strings.ReplaceAll(string(data), w.ConfigMapName, "CONFIG"))
			}
			compareGolden(t, name, b.String())
		})
	}
}

func TestMyCnf(t *testing.T) {
	const gib = 1 << 30
	user := map[string]string{
		"long-query-time": "5", "loose_innodb_flush_method": "fsync", "super_read_only": "OFF", "server-id": "1",
		"loose_skip_slave_start": "OFF", includeKey: "# more\nsql_mode=ANSI\n",
	}
	text, overruled := BuildMyCnf(user, gib)
	compareGolden(t, "my.cnf", text)
	if diff := cmp.Diff([]string{"loose_skip_slave_start", "server-id", "super_read_only"}, overruled); diff != "" {
		t.Errorf("overruled (-want +got):\n%s", diff)
	}
}

func TestUsersSQL(t *testing.T) {
	compareGolden(t, "users.sql", buildUsersSQL(map[string][]byte{"ADMIN_PASSWORD": []byte(`a'b\c"d`)}))
}

func TestTheNameOfTheConfigurationChangesWithIt(t *testing.T) {
	c := parseCluster(t, minimalCluster)
	one, same, other := buildConfigMap(c, "a"), buildConfigMap(c, "a"), buildConfigMap(c, "b")
	if one.GetName() != same.GetName() || one.GetName() == other.GetName() {
		t.Errorf("expected two equal names and another one, found %s, %s and %s", one.GetName(), same.GetName(), other.GetName())
	}
}

func TestMissingKeys(t *testing.T) {
	passwords := map[string][]byte{}
	for _, a := range instanceAccounts() {
		passwords[a.key] = []byte("x")
	}
	passwords["BACKUP_PASSWORD"] = nil
	if diff := cmp.Diff([]string{"BACKUP_PASSWORD"}, MissingPasswordKeys(passwords)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
