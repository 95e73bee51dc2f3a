// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"fmt"
	"strings"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// schemaCase is a value somewhere and what is said of it; empty says means that it is accepted.
type schemaCase struct {
	path    string
	value   any
	refusal string
}

func (s *schemaServer) testRefusedAtCreation(t *testing.T) {
	const pods = "spec.podTemplate.spec."
	rows := map[string]schemaCase{
		"a name of 40 characters": {"metadata.name", strings.Repeat("x", 40), ""},
		"a name of 41 characters": {
			"metadata.name", strings.Repeat("x", 41),
			"metadata.name: expected at most 40 characters, because names of other objects are made from it; found 41; choose a shorter one",
		},
		"a name with a dot": {"metadata.name", "a.b", "metadata.name: expected no dot, because Services are named after it and cannot have one; found one; choose another name"},

		"no spec":                   {"spec", nil, "spec: Required value"},
		"no template of Pods":       {"spec.podTemplate", nil, "spec.podTemplate: Required value"},
		"no spec of Pods":           {"spec.podTemplate.spec", nil, "spec.podTemplate.spec: Required value"},
		"no containers":             {pods + "containers", nil, "spec.podTemplate.spec.containers: Required value"},
		"no claims":                 {"spec.volumeClaimTemplates", nil, "spec.volumeClaimTemplates: Required value"},
		"an empty list of claims":   {"spec.volumeClaimTemplates", []any{}, "spec.volumeClaimTemplates in body should have at least 1 items"},
		"claims without mysql-data": {"spec.volumeClaimTemplates", []any{claim("more", "1Gi")}, "spec.volumeClaimTemplates: Invalid value: expected a claim called mysql-data, which holds the data; found none; add it"},
		"a second claim":            {"spec.volumeClaimTemplates", []any{claim("mysql-data", "1Gi"), claim("more", "1Gi")}, ""},
		"a claim without size": {
			"spec.volumeClaimTemplates",
			[]any{claim("mysql-data", "1Gi"), map[string]any{"metadata": map[string]any{"name": "more"}, "spec": map[string]any{}}},
			"spec.volumeClaimTemplates[1].spec: Invalid value: expected resources.requests.storage; found none; say how large the volume is",
		},
		"a claim without a name": {
			"spec.volumeClaimTemplates",
			[]any{claim("mysql-data", "1Gi"), claim("", "1Gi")},
			"spec.volumeClaimTemplates[1].metadata: Invalid value: expected a name; found none; name the claim, mysql-data for the data",
		},

		"one instance":    {"spec.replicas", int64(1), ""},
		"three instances": {"spec.replicas", int64(3), ""},
		"no instance":     {"spec.replicas", int64(0), "spec.replicas: Invalid value: 0: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},
		"two instances":   {"spec.replicas", int64(2), "spec.replicas: Invalid value: 2: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},
		"-1 instances":    {"spec.replicas", int64(-1), "spec.replicas: Invalid value: -1: expected a positive odd number, so that a majority exists; take 1, 3 or 5"},

		"a base of server ids":              {"spec.serverIDBase", int64(7), ""},
		"a base of server ids to be chosen": {"spec.serverIDBase", int64(0), ""},
		"a negative base of server ids":     {"spec.serverIDBase", int64(-7), "spec.serverIDBase: Invalid value: -7: expected a positive number; leave it out to have one chosen"},
		"a negative lag":                    {"spec.maxDelaySeconds", int64(-1), "spec.maxDelaySeconds in body should be greater than or equal to 0"},
		"a negative lag for Pods":           {"spec.maxDelaySecondsForPodDeletion", int64(-1), "spec.maxDelaySecondsForPodDeletion in body should be greater than or equal to 0"},
		"a negative time to start":          {"spec.startupWaitSeconds", int64(-1), "spec.startupWaitSeconds in body should be greater than or equal to 0"},
		"a negative size of logs":           {"spec.logRotationSize", int64(-1), "spec.logRotationSize in body should be greater than or equal to 0"},
		"offline":                           {"spec.offline", true, ""},
		"offline as text":                   {"spec.offline", "yes", "spec.offline: Invalid value"},

		"no mysqld": {
			pods + "containers",
			[]any{container("a"), container("b")},
			`spec.podTemplate.spec.containers: Invalid value: expected a container called mysqld, which runs the MySQL server; found only ["a", "b"]; add it`,
		},
		"an empty list of containers":    {pods + "containers", []any{}, "found only []; add it"},
		"a container without a name":     {pods + "containers", []any{container("mysqld"), map[string]any{"image": "x"}}, "containers[1].name: Required value"},
		"a container with an empty name": {pods + "containers", []any{container("mysqld"), container("")}, "containers[1].name in body should be at least 1 chars long"},
		"two containers of one name":     {pods + "containers", []any{container("mysqld"), container("mysqld")}, "containers[1]: Duplicate value"},
		"a container called agent":       {pods + "containers", []any{container("mysqld"), container("agent")}, "spec.podTemplate.spec.containers: Invalid value: expected no container called agent, because the name is reserved; found one; rename it"},
		"a container called slow-log": {
			pods + "containers",
			[]any{container("mysqld"), container("slow-log")},
			"spec.podTemplate.spec.containers: Invalid value: expected no container called slow-log, because the name is reserved; found one; rename it or set spec.disableSlowQueryLogContainer",
		},
		"a container called mysqld-exporter without collectors": {pods + "containers", []any{container("mysqld"), container("mysqld-exporter")}, ""},
		"an init container without a name":                      {pods + "initContainers", []any{map[string]any{"image": "x"}}, "initContainers[0].name: Required value"},
		"an init container":                                     {pods + "initContainers", []any{container("before")}, ""},
		"an init container called moco-init":                    {pods + "initContainers", []any{container("moco-init")}, "spec.podTemplate.spec.initContainers: Invalid value: expected no init container called moco-init, because the name is reserved; found one; rename it"},
		"a port":                                                {pods + "containers", []any{container("mysqld", port("x", 12345))}, ""},
		"a port without a name":                                 {pods + "containers", []any{container("mysqld", map[string]any{"containerPort": int64(12345)})}, ""},
		"a reserved port of another container":                  {pods + "containers", []any{container("mysqld"), container("proxy", port("mysql", 3306))}, ""},
		"a volume":                                              {pods + "volumes", []any{map[string]any{"name": "scratch"}}, ""},
		"a volume without a name":                               {pods + "volumes", []any{map[string]any{"emptyDir": map[string]any{}}}, "volumes[0].name: Required value"},
		"reserved volumes": {
			pods + "volumes",
			[]any{map[string]any{"name": "run"}, map[string]any{"name": "mine"}, map[string]any{"name": "tmp"}},
			`spec.podTemplate.spec.volumes: Invalid value: expected volumes with names of their own; found the reserved names ["run", "tmp"]; rename them`,
		},
		"an unknown container to overwrite": {
			"spec.podTemplate.overwriteContainers",
			[]any{map[string]any{"name": "mysqld"}},
			`spec.podTemplate.overwriteContainers[0].name: Unsupported value: "mysqld": supported values: "agent", "copy-moco-init", "moco-init", "slow-log", "mysqld-exporter"`,
		},
		"to be restored without a source": {"spec.restore", map[string]any{"jobConfig": map[string]any{}}, "spec.restore.sourceName: Required value"},
		"to be restored at no time":       {"spec.restore.restorePoint", "yesterday", "spec.restore.restorePoint in body must be of type date-time"},
	}
	for _, name := range []string{"tmp", "run", "var-log", "mysql-conf", "mysql-conf-d", "my-cnf-secret", "slow-fluent-bit-config"} {
		rows["a volume called "+name] = schemaCase{pods + "volumes", []any{map[string]any{"name": name}}, fmt.Sprintf("found the reserved names [%q]; rename them", name)}
	}
	for _, number := range []int64{3306, 33060, 33062, 9081} {
		rows[fmt.Sprintf("port %d", number)] = schemaCase{
			pods + "containers",
			[]any{container("mysqld", port("x", number))},
			"spec.podTemplate.spec.containers: Invalid value: container mysqld: expected none of the ports 3306, 33060, 33062 and 9081, because they are reserved; found one of them",
		}
	}
	for _, name := range []string{"mysql", "mysqlx", "mysql-admin", "health"} {
		rows["a port called "+name] = schemaCase{
			pods + "containers",
			[]any{container("mysqld", port(name, 12345))},
			"spec.podTemplate.spec.containers: Invalid value: container mysqld: expected no port called mysql, mysqlx, mysql-admin or health, because the names are reserved",
		}
	}
	addSchedules(rows, "spec.logRotationSchedule")
	rows["an empty schedule of logs"] = schemaCase{"spec.logRotationSchedule", "", ""}
	s.expectRefusals(t, minimalCluster(), rows)

	s.expectRefusals(t, testenv.WithField(minimalCluster(), []any{"x"}, "spec", "collectors"), map[string]schemaCase{
		"a container called mysqld-exporter with collectors": {
			pods + "containers",
			[]any{container("mysqld"), container("mysqld-exporter")},
			"spec.podTemplate.spec.containers: Invalid value: expected no container called mysqld-exporter beside spec.collectors, because the name is reserved then; found one; rename it or remove the collectors",
		},
	})
	s.expectRefusals(t, testenv.WithField(minimalCluster(), true, "spec", "disableSlowQueryLogContainer"), map[string]schemaCase{
		"a container called slow-log where it is free": {pods + "containers", []any{container("mysqld"), container("slow-log")}, ""},
	})
}

func (s *schemaServer) testRefusedPolicies(t *testing.T) {
	const job = "spec.jobConfig."
	rows := map[string]schemaCase{
		"no schedule":                  {"spec.schedule", nil, "spec.schedule: Required value"},
		"an empty schedule":            {"spec.schedule", "", "spec.schedule in body should be at least 1 chars long"},
		"no configuration of Jobs":     {"spec.jobConfig", nil, "spec.jobConfig: Required value"},
		"an unknown concurrency":       {"spec.concurrencyPolicy", "Maybe", `spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"`},
		"a negative backoff":           {"spec.backoffLimit", int64(-1), "spec.backoffLimit in body should be greater than or equal to 0"},
		"a negative history":           {"spec.successfulJobsHistoryLimit", int64(-1), "spec.successfulJobsHistoryLimit in body should be greater than or equal to 0"},
		"a negative history of failed": {"spec.failedJobsHistoryLimit", int64(-1), "spec.failedJobsHistoryLimit in body should be greater than or equal to 0"},
		"no threads":                   {job + "threads", int64(0), "spec.jobConfig.threads in body should be greater than or equal to 1"},
		"an empty service account":     {job + "serviceAccountName", "", "spec.jobConfig.serviceAccountName in body should be at least 1 chars long"},
		"a bucket without a name":      {job + "bucketConfig.region", "x", "spec.jobConfig.bucketConfig.bucketName: Required value"},
		"a bucket with an empty name":  {job + "bucketConfig.bucketName", "", "spec.jobConfig.bucketConfig.bucketName in body should be at least 1 chars long"},
		"a storage that is no URL":     {job + "bucketConfig", map[string]any{"bucketName": "b", "endpointURL": "ftp://x"}, "spec.jobConfig.bucketConfig.endpointURL in body should match"},
		"an unknown storage":           {job + "bucketConfig", map[string]any{"bucketName": "b", "backendType": "tape"}, `spec.jobConfig.bucketConfig.backendType: Unsupported value: "tape": supported values: "s3", "gcs", "azure"`},
		"a storage at azure":           {job + "bucketConfig", map[string]any{"bucketName": "b", "backendType": "azure"}, ""},
		"memory that is no quantity":   {job + "memory", "lots", "spec.jobConfig.memory"},
		"a work volume that is text":   {job + "workVolume", "x", "spec.jobConfig.workVolume: Invalid value"},
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
		rows["the schedule "+bad] = schemaCase{path, bad, fmt.Sprintf("%s: Invalid value: %q: expected minute, hour, day of month, month and day of week as for cron, or one such as @daily; try */5 * * * *", path, bad)}
	}
	rows["a schedule without end"] = schemaCase{path, strings.Repeat("0,", 200) + "0 * * * *", path + ": Too long: may not be more than 256 bytes"}
}

func (s *schemaServer) testRefusedLater(t *testing.T) {
	const secret, stays = "spec.replicationSourceSecretName", "spec.replicationSourceSecretName: Invalid value: expected it to stay or to be removed, because a cluster can only be born as a copy of another server; found it added or changed; make a new MySQLCluster"
	const restored = "spec.restore: Invalid value: expected it to stay as it was at creation, because data is restored only once; found it changed; make a new MySQLCluster"
	three := testenv.WithField(minimalCluster(), int64(3), "spec", "replicas")
	following := testenv.WithField(minimalCluster(), "donor", "spec", "replicationSourceSecretName")
	born := testenv.WithField(minimalCluster(), minimalRestore(), "spec", "restore")
	for name, row := range map[string]struct {
		old *unstructured.Unstructured
		schemaCase
	}{
		"more instances":  {three, schemaCase{"spec.replicas", int64(5), ""}},
		"fewer instances": {three, schemaCase{"spec.replicas", int64(1), "spec.replicas: Invalid value: 1: expected at least 3, because instances cannot be taken away; make a new MySQLCluster, or set spec.offline"}},
		"no number of instances where there were three": {three, schemaCase{"spec.replicas", nil, "spec.replicas: Invalid value: 1: expected at least 3"}},
		"to go offline":                      {three, schemaCase{"spec.offline", true, ""}},
		"less storage":                       {three, schemaCase{"spec.volumeClaimTemplates", []any{claim("mysql-data", "1Mi")}, ""}},
		"a source that is added":             {minimalCluster(), schemaCase{secret, "donor", stays}},
		"a source that is changed":           {following, schemaCase{secret, "other", stays}},
		"a source that is removed":           {following, schemaCase{secret, nil, ""}},
		"a source that is kept":              {following, schemaCase{"spec.offline", true, ""}},
		"a restore that is added":            {minimalCluster(), schemaCase{"spec.restore", minimalRestore(), restored}},
		"a restore that is removed":          {born, schemaCase{"spec.restore", nil, restored}},
		"a restore of another time":          {born, schemaCase{"spec.restore.restorePoint", "2026-11-20T13:00:00Z", restored}},
		"a restore by other threads":         {born, schemaCase{"spec.restore.jobConfig.threads", int64(8), restored}},
		"a restore with another environment": {born, schemaCase{"spec.restore.jobConfig.env", []any{map[string]any{"name": "A", "value": "2"}}, restored}},
		"a restore with another volume":      {born, schemaCase{"spec.restore.jobConfig.workVolume", map[string]any{"emptyDir": map[string]any{}}, restored}},
		"a restore that is kept":             {born, schemaCase{"spec.offline", true, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			created := row.old.DeepCopy()
			created.SetNamespace(s.CreateNamespace(t))
			if err := s.Client.Create(t.Context(), created); err != nil {
				t.Fatal(err)
			}
			row.check(t, s.Client.Update(t.Context(), testenv.WithField(created, row.value, strings.Split(row.path, ".")...), client.DryRunAll))
		})
	}
	t.Run("a source that is null", func(t *testing.T) {
		created := minimalCluster()
		created.SetNamespace(s.CreateNamespace(t))
		created.Object["spec"].(map[string]any)["replicationSourceSecretName"] = nil
		if err := s.Client.Create(t.Context(), created); err != nil {
			t.Fatal(err)
		}
		schemaCase{refusal: stays}.check(t, s.Client.Update(t.Context(), testenv.WithField(created, "donor", strings.Split(secret, ".")...), client.DryRunAll))
		schemaCase{}.check(t, s.Client.Update(t.Context(), testenv.WithField(created, true, "spec", "offline"), client.DryRunAll))
	})
}

func (s *schemaServer) expectRefusals(t *testing.T, base *unstructured.Unstructured, rows map[string]schemaCase) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			row.check(t, s.Client.Create(t.Context(), testenv.WithField(base, row.value, strings.Split(row.path, ".")...), client.DryRunAll))
		})
	}
}

func (r schemaCase) check(t *testing.T, err error) {
	t.Helper()
	switch {
	case r.refusal == "" && err != nil:
		t.Errorf("want it to be accepted, found %v", err)
	case r.refusal != "" && (!k8serrors.IsInvalid(err) || !strings.Contains(err.Error(), r.refusal)):
		t.Errorf("want it to be refused with\n%s\nfound\n%v", r.refusal, err)
	}
}

func port(name string, number int64) map[string]any {
	return map[string]any{"name": name, "containerPort": number}
}
