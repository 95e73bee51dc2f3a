// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestTheSchema sends objects to a real API server. Its subtests share one server, because a start takes seconds.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	known := runtime.NewScheme()
	testenv.ExpectNoError(t, mocov1beta2.AddToScheme(known))
	typed, err := client.New(hub.Config, client.Options{Scheme: known})
	testenv.ExpectNoError(t, err)
	s := &schemaServer{Environment: hub, typed: typed}
	t.Run("upstream's examples are stored completely", s.testExamples)
	t.Run("defaults", s.testDefaults)
	t.Run("values at creation", s.testRefusedAtCreation)
	t.Run("values of a BackupPolicy", s.testRefusedPolicies)
	t.Run("changes after creation", s.testRefusedLater)
	t.Run("restored users are stored as written", s.testRestoredUsers)
	t.Run("columns of kubectl get", s.testColumns)
	t.Run("the full status is stored", s.testStatus)
}

// TestReplicasOutOfBoundsCountAsZero uses values that MOCO's schema accepts.
func TestReplicasOutOfBoundsCountAsZero(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int32{-1, mocov1beta2.MaxReplicas + 1, math.MaxInt32} {
		c := &mocov1beta2.MySQLCluster{Spec: mocov1beta2.MySQLClusterSpec{Replicas: replicas}}
		if n := c.InstanceCount(); n != 0 {
			t.Errorf("spec.replicas %d: expected no instances, found %d", replicas, n)
		}
		c.Status.Instances = []mocov1beta2.InstanceStatus{{Ordinal: 0}, {Ordinal: 2}}
		if n := c.InstanceCount(); n != 3 {
			t.Errorf("spec.replicas %d: expected the instances that there are to stay, found %d", replicas, n)
		}
	}
}

type schemaServer struct {
	*testenv.Environment
	typed client.Client
}

func (s *schemaServer) testExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("expected manifests in testdata, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			namespace := s.CreateNamespace(t)
			for _, written := range readManifests(t, file) {
				written.SetNamespace(namespace)
				applied := client.ApplyConfigurationFromUnstructured(written.DeepCopy())
				strict := client.WithFieldValidation(s.Client, metav1.FieldValidationStrict)
				if err := strict.Apply(t.Context(), applied, client.FieldOwner("somebody")); err != nil {
					t.Fatalf("apply %s: %v", written.GetKind(), err)
				}
				if written.GroupVersionKind().Group == mocov1beta2.GroupVersion().Group {
					s.expectNothingLost(t, written)
				}
			}
		})
	}
}

// expectNothingLost decodes an object into its Go type, encodes it again, and compares the result with the written
// object.
func (s *schemaServer) expectNothingLost(t *testing.T, written *unstructured.Unstructured) {
	t.Helper()
	known, err := s.typed.Scheme().New(written.GroupVersionKind())
	testenv.ExpectNoError(t, err)
	read, ok := known.(client.Object)
	if !ok {
		t.Fatalf("expected an object, found %T", known)
	}
	testenv.ExpectNoError(t, s.typed.Get(t.Context(), client.ObjectKeyFromObject(written), read))
	text, err := json.Marshal(read)
	testenv.ExpectNoError(t, err)
	again := map[string]any{}
	testenv.ExpectNoError(t, json.Unmarshal(text, &again))
	if diff := cmp.Diff(normalizeJSON(t, written.Object["spec"]), commonFields(normalizeJSON(t, written.Object["spec"]), again["spec"])); diff != "" {
		t.Errorf("%s (-written +read):\n%s", written.GetKind(), diff)
	}
	if cluster, ok := read.(*mocov1beta2.MySQLCluster); ok {
		pod, _, _ := unstructured.NestedMap(written.Object, "spec", "podTemplate", "spec")
		testenv.ExpectEqual(t, "the Pod's spec", normalizeJSON(t, pod), normalizeJSON(t, cluster.Spec.PodTemplate.Spec))
	}
}

// commonFields returns the fields of got that are also in want, so that defaults are not compared.
func commonFields(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return got
		}
		kept := map[string]any{}
		for key, value := range want {
			if found, ok := fields[key]; ok {
				kept[key] = commonFields(value, found)
			}
		}
		return kept
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return got
		}
		kept := make([]any, len(items))
		for i := range items {
			kept[i] = commonFields(want[i], items[i])
		}
		return kept
	default:
		return got
	}
}

// normalizeJSON converts a value into the types of decoded JSON.
func normalizeJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	testenv.ExpectNoError(t, err)
	var out any
	testenv.ExpectNoError(t, json.Unmarshal(text, &out))
	return out
}

func readManifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.ExpectNoError(t, err)
	var all []*unstructured.Unstructured
	for in := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)); ; {
		u := &unstructured.Unstructured{}
		switch err := in.Decode(u); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		default:
			all = append(all, u)
		}
	}
}

func (s *schemaServer) testDefaults(t *testing.T) {
	for name, row := range map[string]struct {
		object *unstructured.Unstructured
		path   []string
		want   map[string]any
	}{
		"a cluster gets defaults": {minimalCluster(), []string{"spec"}, map[string]any{
			"replicas": int64(1), "maxDelaySeconds": int64(60), "maxDelaySecondsForPodDeletion": int64(0), "startupWaitSeconds": int64(3600),
			"initializeTimezoneData": false,
		}},
		"a BackupPolicy gets defaults":            {minimalPolicy(), []string{"spec"}, map[string]any{"concurrencyPolicy": "Allow"}},
		"the Job of a BackupPolicy gets defaults": {minimalPolicy(), []string{"spec", "jobConfig"}, map[string]any{"threads": int64(4), "cpu": int64(4), "memory": "4Gi"}},
		"the bucket of a BackupPolicy gets defaults": {
			testenv.WithField(minimalPolicy(), map[string]any{"bucketName": "b"}, "spec", "jobConfig", "bucketConfig"),
			[]string{"spec", "jobConfig", "bucketConfig"},
			map[string]any{"backendType": "s3"},
		},
		"the Job of a restore gets defaults": {
			testenv.WithField(minimalCluster(), minimalRestore(), "spec", "restore"),
			[]string{"spec", "restore", "jobConfig"},
			map[string]any{"threads": int64(4), "cpu": int64(4), "memory": "4Gi"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, _, _ := unstructured.NestedMap(row.object.Object, row.path...)
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), row.object, client.DryRunAll))
			after, _, _ := unstructured.NestedMap(row.object.Object, row.path...)
			added := map[string]any{}
			for key, value := range after {
				if _, ok := before[key]; !ok {
					added[key] = value
				}
			}
			testenv.ExpectEqual(t, "added", row.want, added)
		})
	}
}

func minimalCluster() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mocov1beta2.GroupVersion().String(), "kind": mocov1beta2.MySQLClusterKind().Kind,
		"metadata": map[string]any{"name": "test", "namespace": "default"},
		"spec": map[string]any{
			"podTemplate":          map[string]any{"spec": map[string]any{"containers": []any{container("mysqld")}}},
			"volumeClaimTemplates": []any{claim("mysql-data", "1Gi")},
		},
	}}
}

func minimalPolicy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mocov1beta2.GroupVersion().String(), "kind": mocov1beta2.BackupPolicyKind().Kind,
		"metadata": map[string]any{"name": "daily", "namespace": "default"},
		"spec":     map[string]any{"schedule": "@daily", "jobConfig": map[string]any{"env": []any{map[string]any{"name": "A", "value": "1"}}}},
	}}
}

func minimalRestore() map[string]any {
	return map[string]any{
		"sourceName": "other", "sourceNamespace": "elsewhere", "restorePoint": "2026-11-20T12:00:00Z",
		"jobConfig": map[string]any{"env": []any{map[string]any{"name": "A", "value": "1"}}},
	}
}

func container(name string, ports ...any) map[string]any {
	c := map[string]any{"name": name, "image": "example.com/mysql:8"}
	if len(ports) > 0 {
		c["ports"] = ports
	}
	return c
}

func claim(name, size string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}},
	}
}

// schemaCase is a value at a path, and the expected refusal. An empty refusal means that the value is accepted.
type schemaCase struct {
	path    string
	value   any
	refusal string
}

func (s *schemaServer) testRefusedAtCreation(t *testing.T) {
	const pods = "spec.podTemplate.spec."
	rows := map[string]schemaCase{
		"a cluster name of 40 characters: accepted": {"metadata.name", strings.Repeat("x", 40), ""},
		"a cluster name of 41 characters: rejected": {
			"metadata.name", strings.Repeat("x", 41),
			"metadata.name: expected at most 40 characters, because the names of other objects contain it; found 41; choose a shorter one",
		},
		"a cluster name with a dot: rejected": {"metadata.name", "a.b", "metadata.name: expected no dot, because Services are named after it and cannot have one; found one; choose another name"},

		"a cluster without a spec: rejected":                  {"spec", nil, "spec: Required value"},
		"a cluster without a Pod template: rejected":          {"spec.podTemplate", nil, "spec.podTemplate: Required value"},
		"a Pod template without a spec: rejected":             {"spec.podTemplate.spec", nil, "spec.podTemplate.spec: Required value"},
		"a Pod template without containers: rejected":         {pods + "containers", nil, "spec.podTemplate.spec.containers: Required value"},
		"a cluster without volume claim templates: rejected":  {"spec.volumeClaimTemplates", nil, "spec.volumeClaimTemplates: Required value"},
		"an empty list of volume claim templates: rejected":   {"spec.volumeClaimTemplates", []any{}, "spec.volumeClaimTemplates in body should have at least 1 items"},
		"volume claim templates without mysql-data: rejected": {"spec.volumeClaimTemplates", []any{claim("more", "1Gi")}, "spec.volumeClaimTemplates: Invalid value: expected a claim called mysql-data, which holds the data; found none; add it"},
		"a second volume claim template: accepted":            {"spec.volumeClaimTemplates", []any{claim("mysql-data", "1Gi"), claim("more", "1Gi")}, ""},
		"a volume claim template without a size: rejected": {
			"spec.volumeClaimTemplates",
			[]any{claim("mysql-data", "1Gi"), map[string]any{"metadata": map[string]any{"name": "more"}, "spec": map[string]any{}}},
			"spec.volumeClaimTemplates[1].spec: Invalid value: expected resources.requests.storage; found none; set the size of the volume",
		},
		"a volume claim template without a name: rejected": {
			"spec.volumeClaimTemplates",
			[]any{claim("mysql-data", "1Gi"), claim("", "1Gi")},
			"spec.volumeClaimTemplates[1].metadata: Invalid value: expected a name; found none; set one, such as mysql-data for the volume with the data",
		},

		"a cluster of one instance: accepted":    {"spec.replicas", int64(1), ""},
		"a cluster of three instances: accepted": {"spec.replicas", int64(3), ""},
		"a cluster of 0 instances: rejected":     {"spec.replicas", int64(0), "spec.replicas: Invalid value: 0: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},
		"a cluster of two instances: rejected":   {"spec.replicas", int64(2), "spec.replicas: Invalid value: 2: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},
		"a cluster of 103 instances: rejected":   {"spec.replicas", int64(103), "spec.replicas: Invalid value: 103: spec.replicas in body should be less than or equal to 101"},
		"a cluster of -1 instances: rejected":    {"spec.replicas", int64(-1), "spec.replicas: Invalid value: -1: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},

		"a positive serverIDBase: accepted":                  {"spec.serverIDBase", int64(7), ""},
		"serverIDBase 0, which lets Torpor choose: accepted": {"spec.serverIDBase", int64(0), ""},
		"a negative serverIDBase: rejected":                  {"spec.serverIDBase", int64(-7), "spec.serverIDBase: Invalid value: -7: expected a positive number; correct it, or remove the field so that Torpor chooses one"},
		"a negative maxDelaySeconds: rejected":               {"spec.maxDelaySeconds", int64(-1), "spec.maxDelaySeconds in body should be greater than or equal to 0"},
		"a negative maxDelaySecondsForPodDeletion: rejected": {"spec.maxDelaySecondsForPodDeletion", int64(-1), "spec.maxDelaySecondsForPodDeletion in body should be greater than or equal to 0"},
		"a negative startupWaitSeconds: rejected":            {"spec.startupWaitSeconds", int64(-1), "spec.startupWaitSeconds in body should be greater than or equal to 0"},
		"a negative logRotationSize: rejected":               {"spec.logRotationSize", int64(-1), "spec.logRotationSize in body should be greater than or equal to 0"},
		"spec.offline true: accepted":                        {"spec.offline", true, ""},
		"spec.offline as a string: rejected":                 {"spec.offline", "yes", "spec.offline: Invalid value"},

		"a Pod template without the container mysqld: rejected": {
			pods + "containers",
			[]any{container("a"), container("b")},
			`spec.podTemplate.spec.containers: Invalid value: expected a container called mysqld, which runs the MySQL server; found only ["a", "b"]; add it`,
		},
		"an empty list of containers: rejected":       {pods + "containers", []any{}, "found only []; add it"},
		"a container without a name: rejected":        {pods + "containers", []any{container("mysqld"), map[string]any{"image": "x"}}, "containers[1].name: Required value"},
		"a container with an empty name: rejected":    {pods + "containers", []any{container("mysqld"), container("")}, "containers[1].name in body should be at least 1 chars long"},
		"two containers with the same name: rejected": {pods + "containers", []any{container("mysqld"), container("mysqld")}, "containers[1]: Duplicate value"},
		"a container called agent: rejected":          {pods + "containers", []any{container("mysqld"), container("agent")}, "spec.podTemplate.spec.containers: Invalid value: expected no container called agent, because the name is reserved; found one; rename it"},
		"a container called slow-log: rejected": {
			pods + "containers",
			[]any{container("mysqld"), container("slow-log")},
			"spec.podTemplate.spec.containers: Invalid value: expected no container called slow-log, because the name is reserved; found one; rename it or set spec.disableSlowQueryLogContainer",
		},
		"a container called mysqld-exporter without collectors: accepted": {pods + "containers", []any{container("mysqld"), container("mysqld-exporter")}, ""},
		"an init container without a name: rejected":                      {pods + "initContainers", []any{map[string]any{"image": "x"}}, "initContainers[0].name: Required value"},
		"an init container without a reserved name: accepted":             {pods + "initContainers", []any{container("before")}, ""},
		"an init container called moco-init: rejected":                    {pods + "initContainers", []any{container("moco-init")}, "spec.podTemplate.spec.initContainers: Invalid value: expected no init container called moco-init, because the name is reserved; found one; rename it"},
		"an unreserved port of the container mysqld: accepted":            {pods + "containers", []any{container("mysqld", port("x", 12345))}, ""},
		"a port without a name: accepted":                                 {pods + "containers", []any{container("mysqld", map[string]any{"containerPort": int64(12345)})}, ""},
		"a reserved port of another container: accepted":                  {pods + "containers", []any{container("mysqld"), container("proxy", port("mysql", 3306))}, ""},
		"a volume without a reserved name: accepted":                      {pods + "volumes", []any{map[string]any{"name": "scratch"}}, ""},
		"a volume without a name: rejected":                               {pods + "volumes", []any{map[string]any{"emptyDir": map[string]any{}}}, "volumes[0].name: Required value"},
		"volumes with reserved names: rejected": {
			pods + "volumes",
			[]any{map[string]any{"name": "run"}, map[string]any{"name": "mine"}, map[string]any{"name": "tmp"}},
			`spec.podTemplate.spec.volumes: Invalid value: expected volumes without reserved names; found ["run", "tmp"]; rename them`,
		},
		"overwriteContainers with the container mysqld: rejected": {
			"spec.podTemplate.overwriteContainers",
			[]any{map[string]any{"name": "mysqld"}},
			`spec.podTemplate.overwriteContainers[0].name: Unsupported value: "mysqld": supported values: "agent", "copy-moco-init", "moco-init", "slow-log", "mysqld-exporter"`,
		},
		"a restore without a source: rejected":             {"spec.restore", map[string]any{"jobConfig": map[string]any{}}, "spec.restore.sourceName: Required value"},
		"a restore with an invalid restorePoint: rejected": {"spec.restore.restorePoint", "yesterday", "spec.restore.restorePoint in body must be of type date-time"},
	}
	for _, name := range []string{"tmp", "run", "var-log", "mysql-conf", "mysql-conf-d", "my-cnf-secret", "slow-fluent-bit-config"} {
		rows["a volume called "+name] = schemaCase{pods + "volumes", []any{map[string]any{"name": name}}, fmt.Sprintf("expected volumes without reserved names; found [%q]; rename them", name)}
	}
	for _, number := range []int64{3306, 33060, 33062, 9081} {
		rows[fmt.Sprintf("port %d", number)] = schemaCase{
			pods + "containers",
			[]any{container("mysqld", port("x", number))},
			"spec.podTemplate.spec.containers: Invalid value: mysqld container: expected none of the ports 3306, 33060, 33062 and 9081, because they are reserved; found one of them",
		}
	}
	for _, name := range []string{"mysql", "mysqlx", "mysql-admin", "health"} {
		rows["a port called "+name] = schemaCase{
			pods + "containers",
			[]any{container("mysqld", port(name, 12345))},
			"spec.podTemplate.spec.containers: Invalid value: mysqld container: expected no port called mysql, mysqlx, mysql-admin or health, because the names are reserved",
		}
	}
	addSchedules(rows, "spec.logRotationSchedule")
	rows["an empty logRotationSchedule: accepted"] = schemaCase{"spec.logRotationSchedule", "", ""}
	s.expectRefusals(t, minimalCluster(), rows)

	s.expectRefusals(t, testenv.WithField(minimalCluster(), []any{"x"}, "spec", "collectors"), map[string]schemaCase{
		"a container called mysqld-exporter with collectors: rejected": {
			pods + "containers",
			[]any{container("mysqld"), container("mysqld-exporter")},
			"spec.podTemplate.spec.containers: Invalid value: expected no container called mysqld-exporter if spec.collectors is set, because Torpor adds a container of that name; found one; rename it or remove the collectors",
		},
	})
	s.expectRefusals(t, testenv.WithField(minimalCluster(), true, "spec", "disableSlowQueryLogContainer"), map[string]schemaCase{
		"a container called slow-log with disableSlowQueryLogContainer: accepted": {pods + "containers", []any{container("mysqld"), container("slow-log")}, ""},
	})
}

func (s *schemaServer) testRefusedPolicies(t *testing.T) {
	const job = "spec.jobConfig."
	rows := map[string]schemaCase{
		"a BackupPolicy without a schedule: rejected":            {"spec.schedule", nil, "spec.schedule: Required value"},
		"an empty schedule: rejected":                            {"spec.schedule", "", "spec.schedule in body should be at least 1 chars long"},
		"a BackupPolicy without a jobConfig: rejected":           {"spec.jobConfig", nil, "spec.jobConfig: Required value"},
		"an unknown concurrency policy: rejected":                {"spec.concurrencyPolicy", "Maybe", `spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"`},
		"a negative backoff limit: rejected":                     {"spec.backoffLimit", int64(-1), "spec.backoffLimit in body should be greater than or equal to 0"},
		"a negative number of successful Jobs to keep: rejected": {"spec.successfulJobsHistoryLimit", int64(-1), "spec.successfulJobsHistoryLimit in body should be greater than or equal to 0"},
		"a negative number of failed Jobs to keep: rejected":     {"spec.failedJobsHistoryLimit", int64(-1), "spec.failedJobsHistoryLimit in body should be greater than or equal to 0"},
		"a Job with 0 threads: rejected":                         {job + "threads", int64(0), "spec.jobConfig.threads in body should be greater than or equal to 1"},
		"an empty name of a service account: rejected":           {job + "serviceAccountName", "", "spec.jobConfig.serviceAccountName in body should be at least 1 chars long"},
		"a bucket without a name: rejected":                      {job + "bucketConfig.region", "x", "spec.jobConfig.bucketConfig.bucketName: Required value"},
		"a bucket with an empty name: rejected":                  {job + "bucketConfig.bucketName", "", "spec.jobConfig.bucketConfig.bucketName in body should be at least 1 chars long"},
		"an endpoint URL that is not an HTTP URL: rejected":      {job + "bucketConfig", map[string]any{"bucketName": "b", "endpointURL": "ftp://x"}, "spec.jobConfig.bucketConfig.endpointURL in body should match"},
		"an unknown backend type: rejected":                      {job + "bucketConfig", map[string]any{"bucketName": "b", "backendType": "tape"}, `spec.jobConfig.bucketConfig.backendType: Unsupported value: "tape": supported values: "s3", "gcs", "azure"`},
		"the backend type azure: accepted":                       {job + "bucketConfig", map[string]any{"bucketName": "b", "backendType": "azure"}, ""},
		"memory that is not a quantity: rejected":                {job + "memory", "lots", "spec.jobConfig.memory"},
		"a work volume that is a string: rejected":               {job + "workVolume", "x", "spec.jobConfig.workVolume: Invalid value"},
	}
	addSchedules(rows, "spec.schedule")
	s.expectRefusals(t, minimalPolicy(), rows)
}

func addSchedules(rows map[string]schemaCase, path string) {
	for _, good := range []string{
		"*/5 * * * *", "0 0 1 1 0", "59 23 31 12 6", "1,2,3-9/2 0-5 ? jan-mar MON,Fri", "  0 0 * * *"[2:], "0\t0  * * *", "05 08 * * *",
		"@daily", "@yearly", "@annually", "@monthly", "@weekly", "@midnight", "@hourly", "@every 1h30m", "TZ=Europe/Berlin 0 3 * * *", "CRON_TZ=UTC @daily",
	} {
		rows["the schedule "+good] = schemaCase{path, good, ""}
	}
	for _, bad := range []string{
		"often", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *", "1, * * * *", "@never",
		"@every", "*5 * * * *", "* * * janu *",
	} {
		rows["the schedule "+bad] = schemaCase{path, bad, fmt.Sprintf("%s: Invalid value: %q: expected the five fields of cron (minute, hour, day of month, month and day of week), or a descriptor such as @daily; try */5 * * * *", path, bad)}
	}
	rows["a schedule of more than 256 bytes: rejected"] = schemaCase{path, strings.Repeat("0,", 200) + "0 * * * *", path + ": Too long: may not be more than 256 bytes"}
}

func (s *schemaServer) testRefusedLater(t *testing.T) {
	const secret, stays = "spec.replicationSourceSecretName", "spec.replicationSourceSecretName: Invalid value: expected no change except a removal, because only a new cluster can copy another server; found an added or changed value; create a new MySQLCluster"
	const restored = "spec.restore: Invalid value: expected no change after the creation, because data is restored only once; found one; create a new MySQLCluster"
	three := testenv.WithField(minimalCluster(), int64(3), "spec", "replicas")
	following := testenv.WithField(minimalCluster(), "donor", "spec", "replicationSourceSecretName")
	born := testenv.WithField(minimalCluster(), minimalRestore(), "spec", "restore")
	for name, row := range map[string]struct {
		old *unstructured.Unstructured
		schemaCase
	}{
		"an increase of spec.replicas: accepted":                {three, schemaCase{"spec.replicas", int64(5), ""}},
		"a decrease of spec.replicas: rejected":                 {three, schemaCase{"spec.replicas", int64(1), "spec.replicas: Invalid value: 1: expected at least 3, because instances cannot be removed; create a new MySQLCluster, or set spec.offline"}},
		"a removal of spec.replicas: rejected":                  {three, schemaCase{"spec.replicas", nil, "spec.replicas: Invalid value: 1: expected at least 3"}},
		"a change of spec.offline to true: accepted":            {three, schemaCase{"spec.offline", true, ""}},
		"a smaller size in a volume claim template: accepted":   {three, schemaCase{"spec.volumeClaimTemplates", []any{claim("mysql-data", "1Mi")}, ""}},
		"an added replication source: rejected":                 {minimalCluster(), schemaCase{secret, "donor", stays}},
		"a changed replication source: rejected":                {following, schemaCase{secret, "other", stays}},
		"a removed replication source: accepted":                {following, schemaCase{secret, nil, ""}},
		"an update that keeps the replication source: accepted": {following, schemaCase{"spec.offline", true, ""}},
		"an added restore: rejected":                            {minimalCluster(), schemaCase{"spec.restore", minimalRestore(), restored}},
		"a removed restore: rejected":                           {born, schemaCase{"spec.restore", nil, restored}},
		"a changed restore point: rejected":                     {born, schemaCase{"spec.restore.restorePoint", "2026-11-20T13:00:00Z", restored}},
		"a changed number of threads of a restore: rejected":    {born, schemaCase{"spec.restore.jobConfig.threads", int64(8), restored}},
		"a changed environment of a restore: rejected":          {born, schemaCase{"spec.restore.jobConfig.env", []any{map[string]any{"name": "A", "value": "2"}}, restored}},
		"a changed work volume of a restore: rejected":          {born, schemaCase{"spec.restore.jobConfig.workVolume", map[string]any{"emptyDir": map[string]any{}}, restored}},
		"an update that keeps the restore: accepted":            {born, schemaCase{"spec.offline", true, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			created := row.old.DeepCopy()
			created.SetNamespace(s.CreateNamespace(t))
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), created))
			testenv.ExpectRefused(t, s.Client.Update(t.Context(), testenv.WithField(created, row.value, strings.Split(row.path, ".")...), client.DryRunAll), row.refusal)
		})
	}
	t.Run("a replication source that is null counts as absent", func(t *testing.T) {
		created := minimalCluster()
		created.SetNamespace(s.CreateNamespace(t))
		created.Object["spec"].(map[string]any)["replicationSourceSecretName"] = nil
		testenv.ExpectNoError(t, s.Client.Create(t.Context(), created))
		testenv.ExpectRefused(t, s.Client.Update(t.Context(), testenv.WithField(created, "donor", strings.Split(secret, ".")...), client.DryRunAll), stays)
		testenv.ExpectNoError(t, s.Client.Update(t.Context(), testenv.WithField(created, true, "spec", "offline"), client.DryRunAll))
	})
}

// testRestoredUsers writes whole objects with the typed client. spec.restore must not change.
func (s *schemaServer) testRestoredUsers(t *testing.T) {
	for name, row := range map[string]struct {
		users any
		names []string
	}{
		"a string with a comma, as in upstream: two users": {"test_user2@%, other", []string{"test_user2@%", "other"}},
		"a list with a comma in a name: two users":         {[]any{"test_user2@%", "with, comma"}, []string{"test_user2@%", "with, comma"}},
		"an empty string: no users":                        {"", nil},
		"an empty list: no users":                          {[]any{}, nil},
		"a null value: no users":                           {nil, nil},
		"a number: no users":                               {int64(7), nil},
	} {
		t.Run(name, func(t *testing.T) {
			restore := minimalRestore()
			// The default of cpu is a number, which the Go type encodes as a string.
			restore["users"], restore["jobConfig"] = row.users, map[string]any{"cpu": "4"}
			created := testenv.WithField(minimalCluster(), restore, "spec", "restore")
			created.SetNamespace(s.CreateNamespace(t))
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), created))
			key := client.ObjectKeyFromObject(created)
			var read mocov1beta2.MySQLCluster
			testenv.ExpectNoError(t, s.typed.Get(t.Context(), key, &read))
			names, err := read.Spec.Restore.Users.Names()
			if _, isNumber := row.users.(int64); (err != nil) != isNumber {
				t.Errorf("expected the users, found the error %v", err)
			}
			testenv.ExpectEqual(t, "users", strings.Join(row.names, "|"), strings.Join(names, "|"))
			read.Spec.Offline = true
			testenv.ExpectNoError(t, s.typed.Update(t.Context(), &read))
			before := read.DeepCopy()
			read.Spec.Offline = false
			testenv.ExpectNoError(t, s.typed.Patch(t.Context(), &read, client.MergeFrom(before)))
			after := created.DeepCopy()
			testenv.ExpectNoError(t, s.Client.Get(t.Context(), key, after))
			stored, _, err := unstructured.NestedFieldNoCopy(after.Object, "spec", "restore", "users")
			testenv.ExpectNoError(t, err)
			testenv.ExpectEqual(t, "stored users", row.users, stored)
			changed := testenv.WithField(after, "another", "spec", "restore", "users")
			testenv.ExpectRefused(t, s.Client.Update(t.Context(), changed, client.DryRunAll), "spec.restore: Invalid value: expected no change after the creation")
		})
	}
}

func TestRestoredUsersHaveMaxima(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`null`: "", `"a"`: "", `["a"]`: "", `" , "`: "found a string without a name", `{}`: "found another JSON type", `[1]`: "found another JSON type",
		`[""]`: "users[0]: expected a name of 1 to 512 bytes, found 0",
		`["a", "` + strings.Repeat("x", 513) + `"]`: "users[1]: expected a name of 1 to 512 bytes, found 513",
		`"` + strings.Repeat("a,", 257) + `"`:       "expected at most 256 names, found 257",
	} {
		_, err := (&mocov1beta2.RestoredUsers{Raw: []byte(text)}).Names()
		if found := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(found, want) && want != "" {
			t.Errorf("%.20s: expected %q in the error, found %v", text, want, err)
		}
	}
}

func (s *schemaServer) expectRefusals(t *testing.T, base *unstructured.Unstructured, rows map[string]schemaCase) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			testenv.ExpectRefused(t, s.Client.Create(t.Context(), testenv.WithField(base, row.value, strings.Split(row.path, ".")...), client.DryRunAll), row.refusal)
		})
	}
}

func port(name string, number int64) map[string]any {
	return map[string]any{"name": name, "containerPort": number}
}

// header is the expected header of kubectl get.
const header = "NAME   AVAILABLE   HEALTHY   PRIMARY   SYNCED REPLICAS   ERRANT REPLICAS   CLUSTERING ACTIVE   RECONCILE ACTIVE   LAST BACKUP"

func (s *schemaServer) testColumns(t *testing.T) {
	u := minimalCluster()
	u.SetNamespace(s.CreateNamespace(t))
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), u))
	var cluster mocov1beta2.MySQLCluster
	testenv.ExpectNoError(t, s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &cluster))
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
	cluster.Status.ClusteringStops = []torporv1alpha1.StopRecord{{Since: u.GetCreationTimestamp(), By: "alice", Requested: true}, {Since: u.GetCreationTimestamp(), By: "bob"}}
	cluster.Status.ReconciliationStops = []torporv1alpha1.StopRecord{{Since: u.GetCreationTimestamp(), By: "carol", Requested: true}}
	if err := s.typed.SubResource("status").Patch(t.Context(), &cluster, client.MergeFrom(before)); err != nil {
		t.Fatalf("a status of conditions and a number only: %v", err)
	}
	table := s.GetTable(t, mocov1beta2.GroupVersion().WithResource("mysqlclusters"), client.ObjectKeyFromObject(u))
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
	testenv.ExpectEqual(t, "cells", []any{"test", "Unknown", "Unknown", 0.0, 2.0, nil, "False", "True", "<no value>"}, cells)
	if len(wide) != 16 || wide[1] == nil {
		t.Fatalf("found %v, want what -o wide adds: SINCE, WHY, and BY and UNTIL of each switch", wide)
	}
	wide[1] = "a time"
	testenv.ExpectEqual(t, "what -o wide adds", []any{
		"SINCE", "a time", "BY", "alice", "UNTIL", nil, "RECONCILE BY", "carol", "RECONCILE UNTIL", nil, "INSTANCES BY", nil, "INSTANCES UNTIL", nil,
		"WHY", "somebody stopped clustering",
	}, wide)
}

func TestPodSpecPreservesUnknownFields(t *testing.T) {
	for name, row := range map[string]struct {
		written string
		rules   mocov1beta2.PodSpec
	}{
		"fields that validation rules read: decoded": {
			`{"containers":[{"name":"mysqld","ports":[{"name":"mysql","containerPort":3306}]}],"initContainers":[{"name":"a"}],"volumes":[{"name":"b"}]}`,
			mocov1beta2.PodSpec{
				Containers:     []mocov1beta2.Container{{Name: "mysqld", Ports: []mocov1beta2.ContainerPort{{Name: "mysql", ContainerPort: 3306}}}},
				InitContainers: []mocov1beta2.Container{{Name: "a"}}, Volumes: []mocov1beta2.Volume{{Name: "b"}},
			},
		},
		"explicit zero values: kept": {
			`{"containers":[{"name":"mysqld","command":[],"tty":false,"resources":{}}],"hostNetwork":false,"volumes":[]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}, Volumes: []mocov1beta2.Volume{}},
		},
		"fields unknown to Torpor: kept": {
			`{"tomorrow":{"x":1.50},"containers":[{"name":"mysqld","news":null}]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}},
		},
		"fields whose names differ only in case: kept separately": {
			`{"containers":[{"Name":"x","name":"mysqld"}],"Containers":[{"name":"y"}]}`,
			mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}},
		},
		"an empty Pod spec: kept": {`{}`, mocov1beta2.PodSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			template := mocov1beta2.PodTemplate{Spec: mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "from before"}}}}
			testenv.ExpectNoError(t, json.Unmarshal([]byte(`{"spec":`+row.written+`}`), &template))
			testenv.ExpectEqual(t, "for rules", row.rules, template.Spec, cmpopts.IgnoreFields(mocov1beta2.PodSpec{}, "Raw"))
			for what, spec := range map[string]mocov1beta2.PodSpec{"itself": template.Spec, "its copy": *template.Spec.DeepCopy()} {
				if got, err := json.Marshal(spec); err != nil || string(got) != row.written {
					t.Errorf("%s is written as %s (%v), want %s", what, got, err, row.written)
				}
			}
		})
	}
}

func TestPodSpecMarshalsItsFields(t *testing.T) {
	got, err := json.Marshal(mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: "mysqld"}}})
	if want := `{"containers":[{"name":"mysqld"}]}`; err != nil || string(got) != want {
		t.Errorf("found %s (%v), want %s", got, err, want)
	}
}

func TestPodSpecRefusesWrongTypes(t *testing.T) {
	var spec mocov1beta2.PodSpec
	if err := json.Unmarshal([]byte(`{"containers":"mysqld"}`), &spec); err == nil {
		t.Errorf("found %+v, want an error", spec)
	}
}

func (s *schemaServer) testStatus(t *testing.T) {
	u := minimalCluster()
	u.SetNamespace(s.CreateNamespace(t))
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), u))
	now := metav1.NewTime(u.GetCreationTimestamp().Local())
	want := fullStatus(now)
	var cluster mocov1beta2.MySQLCluster
	testenv.ExpectNoError(t, s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &cluster))
	before := cluster.DeepCopy()
	want.DeepCopyInto(&cluster.Status)
	testenv.ExpectNoError(t, s.typed.SubResource("status").Patch(t.Context(), &cluster, client.MergeFrom(before)))
	var read mocov1beta2.MySQLCluster
	testenv.ExpectNoError(t, s.typed.Get(t.Context(), client.ObjectKeyFromObject(u), &read))
	testenv.ExpectEqual(t, "status", want, read.Status)
	before = read.DeepCopy()
	read.Status.Instances[0].Role = "boss"
	if err := s.typed.SubResource("status").Patch(t.Context(), &read, client.MergeFrom(before)); !k8serrors.IsInvalid(err) {
		t.Errorf("found %v, want a role that does not exist to be refused", err)
	}
}

func fullStatus(now metav1.Time) mocov1beta2.MySQLClusterStatus {
	return mocov1beta2.MySQLClusterStatus{
		Conditions: []metav1.Condition{{
			Type: mocov1beta2.ClusteringActiveCondition, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: now,
			Reason: mocov1beta2.ClusteringInactiveReason, Message: "somebody stopped clustering",
		}},
		CurrentPrimaryIndex: 1, SyncedReplicas: 2, ErrantReplicas: 1, ErrantReplicaList: []int{2}, GuaranteedAcknowledgements: new(1), RestoredTime: &now, Cloned: true,
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

func TestUnsupported(t *testing.T) {
	for name, row := range map[string]struct {
		spec mocov1beta2.MySQLClusterSpec
		want []string
	}{
		"an empty spec: no unsupported field": {},
		"all fields that Torpor supports: no unsupported field": {
			spec: mocov1beta2.MySQLClusterSpec{
				Replicas: 3, MySQLConfigMapName: new("mycnf"), ServerIDBase: 1, MaxDelaySeconds: new(60), StartupWaitSeconds: 3600, Offline: true, LogRotationSize: 1, InitializeTimezoneData: true,
				PodTemplate: mocov1beta2.PodTemplate{
					ObjectMeta:          mocov1beta2.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:                mocov1beta2.PodSpec{Containers: []mocov1beta2.Container{{Name: mocov1beta2.MysqldContainer}}},
					OverwriteContainers: []mocov1beta2.OverwriteContainer{{Name: "moco-init"}},
				},
				VolumeClaimTemplates:   []mocov1beta2.VolumeClaimTemplate{{ObjectMeta: mocov1beta2.ObjectMeta{Name: mocov1beta2.DataClaim}}},
				PrimaryServiceTemplate: &mocov1beta2.ServiceTemplate{}, ReplicaServiceTemplate: &mocov1beta2.ServiceTemplate{},
				BackupPolicyName: new("daily"), Restore: &mocov1beta2.Restore{}, Collectors: []string{"engine_innodb_status"},
			},
		},
		"disableSlowQueryLogContainer: no unsupported field": {spec: mocov1beta2.MySQLClusterSpec{DisableSlowQueryLogContainer: true}},
		"empty strings in optional fields: no unsupported field": {
			spec: mocov1beta2.MySQLClusterSpec{ReplicationSourceSecretName: new(""), BackupPolicyName: new(""), SlowQueryLogConfigTmpl: new("")},
		},
		"agentUseLocalhost: reported as unsupported":   {mocov1beta2.MySQLClusterSpec{AgentUseLocalhost: true}, []string{"spec.agentUseLocalhost"}},
		"logRotationSchedule: reported as unsupported": {mocov1beta2.MySQLClusterSpec{LogRotationSchedule: "@daily"}, []string{"spec.logRotationSchedule"}},
		"restore from Azure: reported as unsupported": {mocov1beta2.MySQLClusterSpec{Restore: restoreFrom("azure")}, []string{
			"spec.restore.jobConfig.bucketConfig.backendType (azure is not supported, so nothing is restored; use s3, which Google Cloud Storage also supports, or copy the backup)",
		}},
		"restore from S3: no unsupported field":             {mocov1beta2.MySQLClusterSpec{Restore: restoreFrom("s3")}, nil},
		"replication source Secret: no unsupported field":   {mocov1beta2.MySQLClusterSpec{ReplicationSourceSecretName: new("donor")}, nil},
		"slowQueryLogConfigTmpl: reported as unsupported":   {mocov1beta2.MySQLClusterSpec{SlowQueryLogConfigTmpl: new("x")}, []string{"spec.slowQueryLogConfigTmpl"}},
		"name of the Pod template: reported as unsupported": {mocov1beta2.MySQLClusterSpec{PodTemplate: mocov1beta2.PodTemplate{ObjectMeta: namedMeta()}}, []string{"spec.podTemplate.metadata.name"}},
		"names of the Service templates: reported as unsupported, sorted": {
			mocov1beta2.MySQLClusterSpec{
				ReplicaServiceTemplate: &mocov1beta2.ServiceTemplate{ObjectMeta: namedMeta()},
				PrimaryServiceTemplate: &mocov1beta2.ServiceTemplate{ObjectMeta: namedMeta()},
			},
			[]string{"spec.primaryServiceTemplate.metadata.name", "spec.replicaServiceTemplate.metadata.name"},
		},
		"overwriteContainers for containers that Torpor does not add: reported as unsupported": {
			mocov1beta2.MySQLClusterSpec{PodTemplate: mocov1beta2.PodTemplate{OverwriteContainers: []mocov1beta2.OverwriteContainer{
				{Name: "agent"}, {Name: "moco-init"}, {Name: "mysqld-exporter"}, {Name: "slow-log"},
			}}},
			[]string{"spec.podTemplate.overwriteContainers[0]", "spec.podTemplate.overwriteContainers[2]"},
		},
		"overwriteContainers for a disabled slow-log container: reported as unsupported": {
			mocov1beta2.MySQLClusterSpec{DisableSlowQueryLogContainer: true, PodTemplate: mocov1beta2.PodTemplate{
				OverwriteContainers: []mocov1beta2.OverwriteContainer{{Name: "slow-log"}},
			}},
			[]string{"spec.podTemplate.overwriteContainers[0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.ExpectEqual(t, "unsupported fields", row.want, mocov1beta2.UnsupportedFields(row.spec))
		})
	}
}

func restoreFrom(protocol string) *mocov1beta2.Restore {
	return &mocov1beta2.Restore{JobConfig: mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BackendType: protocol}}}
}

func namedMeta() mocov1beta2.ObjectMeta { return mocov1beta2.ObjectMeta{Name: "x"} }
