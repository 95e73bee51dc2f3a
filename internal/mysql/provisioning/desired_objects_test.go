// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

var update = flag.Bool("update", false, "write the golden files")

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		testenv.ExpectNoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, which -update rewrites (-want +got):\n%s", path, diff)
	}
}

func parseCluster(t *testing.T, text string) *mocov1beta2.MySQLCluster {
	t.Helper()
	c := &mocov1beta2.MySQLCluster{}
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte(text), c))
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
  collectors: [engine_innodb_status, info_schema.innodb_metrics]
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
    overwriteContainers: [{name: moco-init, resources: {limits: {memory: 1Gi}}}, {name: mysqld-exporter, resources: {limits: {memory: 64Mi}}}]
  primaryServiceTemplate:
    metadata: {labels: {team: data}, annotations: {note: here}}
    spec: {type: LoadBalancer, selector: {wrong: "yes"}}
  volumeClaimTemplates:
  - metadata: {name: mysql-data, labels: {team: data}}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

func TestTooManyReplicasAreRefused(t *testing.T) {
	c := parseCluster(t, strings.Replace(minimalCluster, "replicas: 3", "replicas: 2147483647", 1))
	if _, err := BuildObjects(BuildInput{Cluster: c}); err == nil || !strings.Contains(err.Error(), "spec.replicas: expected 1 to 101, found 2147483647") {
		t.Errorf("expected the replicas to be refused, found %v", err)
	}
}

func TestBuildObjects(t *testing.T) {
	passwords := map[string][]byte{}
	for _, a := range mysqlusers.ListAccounts() {
		passwords[a.PasswordKey] = []byte("secret of " + a.Name)
	}
	for name, text := range map[string]string{"minimal.yaml": minimalCluster, "rich.yaml": richCluster} {
		t.Run(name, func(t *testing.T) {
			w, err := BuildObjects(BuildInput{Cluster: parseCluster(t, text), Passwords: passwords, ExporterImage: "exporter:1"})
			testenv.ExpectNoError(t, err)
			var b strings.Builder
			for _, o := range append(w.Objects, w.StatefulSet) {
				if o.GetKind() == "Secret" || o.GetKind() == "ConfigMap" {
					continue // Secrets and ConfigMaps are in other golden files.
				}
				data, err := yaml.Marshal(o.Object)
				testenv.ExpectNoError(t, err)
				b.WriteString("---\n" + strings.ReplaceAll(string(data), w.ConfigMapName, "CONFIG"))
			}
			compareGolden(t, name, b.String())
		})
	}
}

// TestLabelledClaimTemplatesStayLabelled builds the StatefulSets of an older version of Torpor, which labelled its claim
// templates, and of MOCO. Other claim templates would replace the StatefulSet.
func TestLabelledClaimTemplatesStayLabelled(t *testing.T) {
	for name, row := range map[string]struct{ live, want map[string]string }{
		"no StatefulSet":                   {nil, map[string]string{}},
		"a StatefulSet of MOCO":            {map[string]string{}, map[string]string{}},
		"a StatefulSet of older Torpor":    {map[string]string{"app.kubernetes.io/created-by": "moco"}, SelectorLabels(parseCluster(t, minimalCluster))},
		"a StatefulSet with its own label": {map[string]string{"team": "data"}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := BuildInput{Cluster: parseCluster(t, minimalCluster)}
			if row.live != nil {
				in.StatefulSet = &appsv1.StatefulSet{}
				in.StatefulSet.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "mysql-data", Labels: row.live}}}
			}
			claims, err := buildVolumeClaims(in)
			testenv.ExpectNoError(t, err)
			found, _, err := unstructured.NestedStringMap(claims[0].(map[string]any), "metadata", "labels")
			testenv.ExpectNoError(t, err)
			testenv.ExpectEqual(t, "labels", row.want, found)
		})
	}
}

// TestServersHaveTimeToStart covers startup times that are too short for any server, and a sufficient one.
func TestServersHaveTimeToStart(t *testing.T) {
	cluster := parseCluster(t, minimalCluster)
	for wanted, seconds := range map[int32]int64{0: 10, 9: 10, 11: 10, 60: 60} {
		cluster.Spec.StartupWaitSeconds = wanted
		w, err := BuildObjects(BuildInput{Cluster: cluster})
		testenv.ExpectNoError(t, err)
		containers, _, err := unstructured.NestedSlice(w.StatefulSet.Object, "spec", "template", "spec", "containers")
		testenv.ExpectNoError(t, err)
		probe := containers[0].(map[string]any)["startupProbe"].(map[string]any)
		testenv.ExpectEqual(t, "the seconds to start", seconds, probe["failureThreshold"].(int64)*probe["periodSeconds"].(int64))
	}
}

// TestInputsOfThePods changes fields and settings of a cluster. The Pods count as outdated if, and only if, the change
// affects the Pod template.
func TestInputsOfThePods(t *testing.T) {
	build := func(t *testing.T, text string, settings map[string]string) (template, inputs string) {
		t.Helper()
		w, err := BuildObjects(BuildInput{Cluster: parseCluster(t, text), Settings: settings})
		testenv.ExpectNoError(t, err)
		found, _, err := unstructured.NestedMap(w.StatefulSet.Object, "spec", "template")
		testenv.ExpectNoError(t, err)
		inputs = found["metadata"].(map[string]any)["annotations"].(map[string]any)[mocov1beta2.InputsAnnotation].(string)
		data, err := yaml.Marshal(found)
		testenv.ExpectNoError(t, err)
		return strings.ReplaceAll(string(data), inputs, ""), inputs
	}
	template, inputs := build(t, minimalCluster, nil)
	for name, change := range map[string]struct {
		old, new string
		settings map[string]string
		isInput  bool
	}{
		"a changed image: the Pods are replaced":                  {old: "mysql:1", new: "mysql:2", isInput: true},
		"reordered fields: the Pods are kept":                     {old: `name: mysqld, image: "mysql:1"`, new: `image: "mysql:1", name: mysqld`},
		"an unknown field of the Pod spec: the Pods are replaced": {old: "podTemplate: {spec: {", new: "podTemplate: {spec: {tomorrow: 1, ", isInput: true},
		"a changed MySQL setting: the Pods are replaced":          {settings: map[string]string{"long_query_time": "5"}, isInput: true},
		"a disabled slow-log container: the Pods are replaced":    {old: "replicas: 3", new: "replicas: 3\n  disableSlowQueryLogContainer: true", isInput: true},
		"changed resources of the slow-log container: the Pods are replaced": {
			old: "podTemplate: {spec:", new: "podTemplate: {overwriteContainers: [{name: slow-log, resources: {}}], spec:", isInput: true,
		},
		"a larger volume: the Pods are kept":           {old: "1Gi", new: "2Gi"},
		"a changed maxDelaySeconds: the Pods are kept": {old: "replicas: 3", new: "replicas: 3\n  maxDelaySeconds: 5"},
	} {
		t.Run(name, func(t *testing.T) {
			otherTemplate, otherInputs := build(t, strings.Replace(minimalCluster, change.old, change.new, 1), change.settings)
			testenv.ExpectEqual(t, "the template differs", change.isInput, template != otherTemplate)
			testenv.ExpectEqual(t, "the inputs differ", change.isInput, inputs != otherInputs)
		})
	}
}

func TestMyCnf(t *testing.T) {
	const gib = 1 << 30
	user := map[string]string{
		"long-query-time": "5", "loose_innodb_flush_method": "fsync", "super_read_only": "OFF", "server-id": "1",
		"loose_skip_slave_start": "OFF", includeKey: "# more\nsql_mode=ANSI\n[mysqld-9.7]\nloose-super_read_only = OFF\n",
		"disable-log-bin": "", "sync_binlog": "0", "innodb_flush_log_at_trx_commit": "0", "replica_skip_errors": "all",
		"slave_exec_mode": "IDEMPOTENT", "init_file": "/x", "plugin_load": "x", "performance_schema": "OFF",
		"loose_rpl_semi_sync_source_wait_no_replica": "OFF", "rpl-semi-sync-source-wait-point": "AFTER_COMMIT",
	}
	text, overruled := BuildMyCnf(user, ServerSizes{Memory: gib})
	compareGolden(t, "my.cnf", text)
	want := append(slices.DeleteFunc(slices.Sorted(maps.Keys(user)), func(key string) bool {
		return slices.Contains([]string{includeKey, "long-query-time", "loose_innodb_flush_method"}, key)
	}), "_include: loose-super_read_only")
	testenv.ExpectEqual(t, "overruled", want, overruled)
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
	for _, a := range mysqlusers.ListAccounts() {
		passwords[a.PasswordKey] = []byte("x")
	}
	passwords["BACKUP_PASSWORD"] = nil
	testenv.ExpectEqual(t, "missing", []string{"BACKUP_PASSWORD"}, mysqlusers.MissingPasswordKeys(passwords))
}

// testInstance runs the scripts of a Pod on a loopback address.
type testInstance struct {
	place   mysqld.ServerPrograms
	volume  string
	address string
	ordinal int
	// isCopy is true if the instance creates its accounts at each start.
	isCopy bool
	// zones is the folder with time zones; empty means none.
	zones string
	// passwords holds the passwords, by the keys of the cluster's Secret.
	passwords map[string][]byte
	// settings are additional options for the server.
	settings []string
}

func smallServerSettings() map[string]string {
	return map[string]string{
		"innodb_buffer_pool_size": "8M", "innodb_redo_log_capacity": "8M", "max_connections": "60", "innodb_use_native_aio": "0",
		"table_open_cache": "100", "table_definition_cache": "400", // Torpor overrules all settings below.
		includeKey: "mysqlx=OFF\nsuper_read_only=OFF\nread_only=OFF\nskip_replica_start=OFF\ngtid_mode=OFF\ndisable_log_bin\nsync_binlog=0\ninit_file=/nowhere\n" +
			"innodb_flush_log_at_trx_commit=0\nreplica_skip_errors=all\nperformance_schema=OFF\nloose_rpl_semi_sync_source_wait_no_replica=OFF\n[client]\n",
	}
}

func newTestInstance(t *testing.T, place mysqld.ServerPrograms, ordinal int, passwords map[string][]byte) *testInstance {
	t.Helper()
	i := &testInstance{place: place, ordinal: ordinal, passwords: passwords, address: place.Network + "." + strconv.Itoa(ordinal+1)}
	i.volume = filepath.Join(place.Dir, strconv.Itoa(ordinal))
	testenv.ExpectNoError(t, os.Mkdir(i.volume, 0o700))
	cnf, _ := BuildMyCnf(smallServerSettings(), ServerSizes{})
	credentials := func(user string) string {
		return fmt.Sprintf("[client]\nuser=\"%s\"\npassword=\"%s\"\n", user, mysqlusers.EscapePassword(passwords[mysqlusers.PasswordKeyOf(user)]))
	}
	for name, text := range map[string]string{"moco-agent-my.cnf": credentials("moco-agent"), "moco-admin-my.cnf": credentials("moco-admin"), cnfFile: cnf, usersFile: buildUsersSQL(passwords), takeOverFile: joinStatements(mysqlusers.BuildTakeOverStatements(passwords, true)), initFile: initScript, serverFile: serverScript, probeFile: probeScript, slowLogFile: slowLogScript} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(i.volume, name), []byte(text), 0o600))
	}
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(i.volume, renewalFile), []byte(joinStatements(mysqlusers.BuildRenewalStatements())), 0o600))
	mysqld.WriteCertificates(t, i.volume, i.address)
	return i
}

func (i *testInstance) environment() []string {
	accountsFile := ""
	if i.isCopy {
		accountsFile = filepath.Join(i.volume, takeOverFile)
	}
	return []string{
		"MOCO_ACCOUNTS=" + accountsFile,
		"MOCO_MYSQLD=" + strings.Join(i.place.Command, " "), "MOCO_CONFIG=" + filepath.Join(i.volume, cnfFile),
		"MOCO_VOLUME=" + i.volume, "MOCO_USERS=" + filepath.Join(i.volume, usersFile),
		"MOCO_POD_NAME=moco-test-" + strconv.Itoa(i.ordinal), "MOCO_POD_IP=" + i.address, "MOCO_SUBDOMAIN=moco-test.default.svc",
		"MOCO_SERVER_ID_BASE=100", "MOCO_LOGS=" + i.volume, "MOCO_RUN=" + i.volume, fmt.Sprintf("MOCO_LOG_SIZE=%d", rotationSize), "MOCO_LOG_INTERVAL=0.1",
		"MOCO_ZONEINFO=" + i.zones, "MOCO_TZINFO=" + strings.Join(i.place.Client, " ") + "_tzinfo_to_sql",
		"MOCO_CREDENTIALS=" + i.volume, "MOCO_MYSQL=" + strings.Join(i.place.Client, " "), "PATH=" + filepath.Join(i.volume, "bin"),
	}
}

// serverOptions returns options that replace the Pod's volumes.
func (i *testInstance) serverOptions() []string {
	return slices.Concat(i.place.Options, mysqld.CertificateOptions(i.volume), i.settings, []string{
		"--tmpdir=" + i.volume, "--socket=" + i.volume + "/s.sock", "--pid-file=" + i.volume + "/pid", "--bind-address=" + i.address,
		"--slow-query-log-file=" + i.volume + "/mysql.slow", "--general-log-file=" + i.volume + "/mysql.general",
	})
}

// initCommand returns a command that runs the init script with the tools of a minimal image.
func (i *testInstance) initCommand(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{filepath.Join(i.volume, initFile)}, i.serverOptions()...)...)
	linkPrograms(t, i.volume, "rm", "mv")
	cmd.Env = i.environment()
	return cmd
}

// probe runs the script of a kubelet probe.
func (i *testInstance) probe(t *testing.T, question string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(i.volume, probeFile), question)
	cmd.Env = i.environment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func linkPrograms(t *testing.T, dir string, names ...string) {
	t.Helper()
	folder := filepath.Join(dir, "bin")
	testenv.ExpectNoError(t, os.MkdirAll(folder, 0o700))
	for _, name := range names {
		path, err := exec.LookPath(name)
		testenv.ExpectNoError(t, err)
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
}

func (i *testInstance) initialise(t *testing.T) string {
	t.Helper()
	out, err := i.initCommand(t).CombinedOutput()
	if err != nil {
		t.Fatalf("initialise: %v\n%s", err, out)
	}
	return string(out)
}

func (i *testInstance) startServer(t *testing.T) *testenv.Process {
	t.Helper()
	linkPrograms(t, i.volume, "mv", "rm", "sleep", "wc")
	args := append([]string{filepath.Join(i.volume, serverFile)}, i.serverOptions()...)
	return testenv.StartProcess(t, "/bin/sh", append(args, "--datadir="+filepath.Join(i.volume, "data")), i.environment())
}

func (i *testInstance) openDB(t *testing.T, user, password string, port int) *sql.DB {
	t.Helper()
	return i.openDBWith(t, "skip-verify", user, password, port)
}

func (i *testInstance) openDBWith(t *testing.T, tls, user, password string, port int) *sql.DB {
	t.Helper()
	cfg := driver.NewConfig()
	cfg.TLSConfig = tls
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, password, "tcp", net.JoinHostPort(i.address, strconv.Itoa(port))
	connector, err := driver.NewConnector(cfg)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() }) // The server may have stopped.
	return db
}

func (i *testInstance) waitUp(t *testing.T, db *sql.DB) {
	t.Helper()
	testenv.Eventually(t, "the server answers on "+i.address, func() error { return db.PingContext(t.Context()) })
}

func queryText(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	var answer string
	if err := db.QueryRowContext(t.Context(), question).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return answer
}

func execStatements(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// cloneTo replaces the data of another server with the data of the instance. The other server restarts, and may close
// the connection before it has answered.
func (i *testInstance) cloneTo(t *testing.T, recipient *sql.DB) {
	t.Helper()
	execStatements(t, recipient, fmt.Sprintf("SET GLOBAL clone_valid_donor_list='%s:%d'", i.address, adminPort))
	_, err := recipient.ExecContext(t.Context(), fmt.Sprintf("CLONE INSTANCE FROM 'moco-clone-donor'@'%s':%d IDENTIFIED BY '%s' REQUIRE SSL",
		i.address, adminPort, mysqlusers.EscapePassword(i.passwords["CLONE_DONOR_PASSWORD"])))
	const serverShutdown = 1053
	if answer, isAnswer := errors.AsType[*driver.MySQLError](err); err != nil && !errors.Is(err, driver.ErrInvalidConn) && (!isAnswer || answer.Number != serverShutdown) {
		t.Fatalf("clone: %v", err)
	}
}

const rotationSize = 1 << 20

// expectLogsBounded writes eight times the maximum size of a log and checks the size of the log.
func (i *testInstance) expectLogsBounded(t *testing.T) {
	t.Helper()
	db := i.openDB(t, "moco-agent", string(i.passwords["AGENT_PASSWORD"]), adminPort)
	db.SetMaxOpenConns(1)
	long := "SELECT 1 /* " + strings.Repeat("x", rotationSize/16) + " */"
	for round := range 8 {
		for range 16 {
			execStatements(t, db, long)
		}
		last := fmt.Sprintf("SELECT 'round %d'", round)
		execStatements(t, db, last)
		for _, name := range []string{"mysql.slow", "mysql.general"} {
			path := filepath.Join(i.volume, name)
			testenv.Eventually(t, name+" is short again, and with the one before it has the last statement", func() error {
				now, err := os.ReadFile(path)
				before, errBefore := os.ReadFile(path + ".0")
				return errors.Join(err, errBefore, testenv.ErrorIf(
					len(now) >= rotationSize || len(before) > 3*rotationSize || !strings.Contains(string(before)+string(now), last),
					"expected less than %d bytes in a file, and %q in one; found %d and %d", rotationSize, last, len(now), len(before)))
			})
		}
	}
}

// startSlowLog runs the script of the slow-log container.
func (i *testInstance) startSlowLog(t *testing.T) *testenv.Process {
	t.Helper()
	linkPrograms(t, i.volume, "tail", "sleep")
	return testenv.StartProcess(t, "/bin/sh", []string{filepath.Join(i.volume, slowLogFile)}, i.environment())
}

// expectSlowLogPrinted checks that statements are printed even after a log rotation, and that the container exits
// immediately when the Pod is deleted.
func (i *testInstance) expectSlowLogPrinted(t *testing.T, slowLog *testenv.Process) {
	t.Helper()
	db := i.openDB(t, "moco-agent", string(i.passwords["AGENT_PASSWORD"]), adminPort)
	testenv.Eventually(t, "a slow statement is printed", func() error {
		execStatements(t, db, "SELECT 'printed'") // The log may be in the middle of a rotation.
		out := slowLog.LastOutput()
		return testenv.ErrorIf(!strings.Contains(out, "SELECT 'printed'") || !strings.Contains(out, "# Query_time"), "found %d bytes without it", len(out))
	})
	slowLog.Stop(t)
	testenv.ExpectEqual(t, "exit code of the slow-log container", 0, slowLog.ExitCode())
}

// TestImageWithoutTailKeepsThePodReady runs the slow-log container with an image without the program tail.
func TestImageWithoutTailKeepsThePodReady(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	linkPrograms(t, folder, "sleep")
	script := filepath.Join(folder, slowLogFile)
	testenv.ExpectNoError(t, os.WriteFile(script, []byte(slowLogScript), 0o600))
	p := testenv.StartProcess(t, "/bin/sh", []string{script}, []string{"PATH=" + filepath.Join(folder, "bin")})
	p.WaitForLine(t, "moco-slow-log: expected the program tail")
	p.Stop(t)
	testenv.ExpectEqual(t, "exit code", 0, p.ExitCode())
}

// TestDefaultsAreThoseOfMOCO runs a server with Torpor's configuration and checks the settings that a client of MOCO
// can observe.
func TestDefaultsAreThoseOfMOCO(t *testing.T) {
	i := newTestInstance(t, mysqld.FindServerPrograms(t), 0, map[string][]byte{"ADMIN_PASSWORD": []byte("a")})
	cnf, _ := BuildMyCnf(map[string]string{"loose_mysqlx": "OFF", "innodb_use_native_aio": "0"}, ServerSizes{Volume: roomForRedo})
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(i.volume, cnfFile), []byte(cnf), 0o600))
	i.initialise(t)
	i.startServer(t)
	admin := i.openDB(t, "moco-admin", "a", adminPort)
	i.waitUp(t, admin)
	for name, want := range map[string]string{
		"transaction_isolation": "READ-COMMITTED", "lock_wait_timeout": "60", "innodb_lock_wait_timeout": "60", "wait_timeout": "604800",
		"innodb_redo_log_capacity": "1677721600", "back_log": "900", "max_allowed_packet": "1073741824",
		"max_heap_table_size": "67108864", "tmp_table_size": "67108864", "sort_buffer_size": "4194304", "join_buffer_size": "2097152",
		"thread_cache_size": "100", "table_definition_cache": "65536", "max_sp_recursion_depth": "20",
		"binlog_transaction_compression": "1", "information_schema_stats_expiry": "0", "character_set_server": "utf8mb4",
		"collation_server": "utf8mb4_unicode_ci", "time_zone": "+00:00", "disabled_storage_engines": "MyISAM", "default_storage_engine": "InnoDB",
		"log_error_verbosity": "3", "long_query_time": "2", "slow_query_log": "1", "log_slow_extra": "1", "print_identified_with_as_hex": "1",
		"innodb_flush_method": "O_DIRECT", "innodb_adaptive_hash_index": "1", "innodb_online_alter_log_max_size": "1073741824",
		"innodb_print_all_deadlocks": "1", "innodb_flush_neighbors": "0", "innodb_buffer_pool_size": "134217728", "sql_mode": strictMode,
	} {
		if found := queryText(t, admin, "SELECT @@GLOBAL."+name); found != want {
			t.Errorf("%s: expected %s as in MOCO, found %s", name, want, found)
		}
	}
	for _, limited := range []string{"\nmax_connections=100000\n", "\ntable_open_cache=65536\n"} { // The number of files that a process may open limits these.
		if !strings.Contains(cnf, limited) {
			t.Errorf("expected %q as in MOCO", limited)
		}
	}
	if small, _ := BuildMyCnf(nil, ServerSizes{Volume: roomForRedo - 1}); strings.Contains(small, "redo") {
		t.Error("expected no redo log that fills a small volume")
	}
}

// strictMode is the server's own default, which MOCO does not change.
const strictMode = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

// TestScripts initializes, runs, clones and stops two instances of the real server.
func TestScripts(t *testing.T) {
	place := mysqld.FindServerPrograms(t)
	passwords := map[string][]byte{}
	for n, a := range mysqlusers.ListAccounts() {
		passwords[a.PasswordKey] = fmt.Appendf(nil, `it's "%d" \ here`, n)
	}
	first, second := newTestInstance(t, place, 0, passwords), newTestInstance(t, place, 1, passwords)

	t.Log("A killed initialisation starts over, and a complete one is not repeated.")
	cut := first.initCommand(t)
	cut.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testenv.ExpectNoError(t, cut.Start())
	testenv.Eventually(t, "the initialisation has begun", func() error {
		if _, err := os.Stat(filepath.Join(first.volume, "data.new", "ibdata1")); err != nil {
			return fmt.Errorf("look: %w", err)
		}
		return nil
	})
	testenv.ExpectNoError(t, syscall.Kill(-cut.Process.Pid, syscall.SIGKILL))
	if err := cut.Wait(); err == nil {
		t.Fatal("the initialisation was complete before it could be killed")
	}
	first.initialise(t)
	if again := first.initialise(t); !strings.Contains(again, "is there") {
		t.Errorf("a second initialisation said: %s", again)
	}

	t.Log("Time zones are loaded on request, and an image without them causes an error.")
	second.zones = filepath.Join(second.volume, "zones")
	if out, err := second.initCommand(t).CombinedOutput(); err == nil || !strings.Contains(string(out), "spec.initializeTimezoneData needs") {
		t.Errorf("expected an error that names the field, found %v: %s", err, out)
	}
	writeTimeZone(t, second.zones)
	second.initialise(t)

	t.Log("A new server is read-only, has no transactions, and needs passwords.")
	served := first.startServer(t)
	admin := first.openDB(t, "moco-admin", string(passwords["ADMIN_PASSWORD"]), adminPort)
	first.waitUp(t, admin)
	for question, want := range map[string]string{
		"SELECT @@gtid_executed": "", "SELECT @@super_read_only": "1", "SELECT @@server_id": "100",
		"SELECT @@report_host": "moco-test-0.moco-test.default.svc", "SELECT @@gtid_mode": "ON", "SELECT @@binlog_format": "ROW",
		"SELECT @@skip_replica_start": "1", "SELECT @@log_bin": "1", "SELECT @@sync_binlog": "1", "SELECT @@innodb_flush_log_at_trx_commit": "1",
		"SELECT @@replica_skip_errors": "OFF", "SELECT @@performance_schema": "1", "SELECT @@rpl_semi_sync_source_wait_no_replica": "1",
		"SELECT user_attributes->>'$.metadata.torporAccounts' FROM mysql.user WHERE user = 'moco-admin'": mysqlusers.CurrentVersion(true), "SELECT @@innodb_buffer_pool_size": "8388608",
		"SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'moco-%' AND password_lifetime = 0":                                              "8",
		"SELECT COUNT(*) FROM mysql.user WHERE user = 'root' OR authentication_string = ''":                                               "0",
		"SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name IN ('clone', 'rpl_semi_sync_source', 'rpl_semi_sync_replica')": "3",
	} {
		if got := queryText(t, admin, question); got != want {
			t.Errorf("%s: expected %q, found %q", question, want, got)
		}
	}
	for _, a := range mysqlusers.ListAccounts() {
		port := mysqlPort
		if slices.Contains([]string{mysqlusers.AdminUser, mysqlusers.AgentUser, mysqlusers.DonorUser, mysqlusers.BackupUser}, a.Name) {
			port = adminPort
		}
		if err := first.openDB(t, a.Name, string(passwords[a.PasswordKey]), port).PingContext(t.Context()); err != nil {
			t.Errorf("%s on port %d: %v", a.Name, port, err)
		}
		if err := first.openDBWith(t, "false", a.Name, string(passwords[a.PasswordKey]), port).PingContext(t.Context()); (err != nil) != mysqlusers.NeedsTLS(a.Name) {
			t.Errorf("%s without TLS: %v", a.Name, err)
		}
	}
	for _, user := range []string{"root", "moco-admin", ""} {
		if err := first.openDB(t, user, "", mysqlPort).PingContext(t.Context()); err == nil {
			t.Errorf("%q comes in without a password", user)
		}
	}

	t.Log("The probes query the server: a server that hangs is not alive although its port is open, and a replica with a stopped thread is not ready.")
	probe := func(question string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(first.volume, probeFile), question)
		cmd.Env = first.environment()
		return cmd
	}
	expectProbes := func(alive, ready bool) {
		t.Helper()
		var spent time.Duration
		for question, want := range map[string]bool{"alive": alive, "ready": ready} {
			cmd := probe(question)
			out, err := cmd.CombinedOutput()
			if (err == nil) != want {
				t.Errorf("is it %s: expected %t, found %v: %s", question, want, err, out)
			}
			spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		t.Logf("two questions took %s of a processor", spent)
	}
	execStatements(t, admin, "SET GLOBAL max_connections = 1")
	if err := first.openDB(t, "moco-readonly", string(passwords["READONLY_PASSWORD"]), mysqlPort).PingContext(t.Context()); err == nil {
		t.Error("a client comes in though there are too many")
	}
	expectProbes(true, true)
	execStatements(t, admin, "SET GLOBAL require_secure_transport = ON") // The setting also applies to the scripts below.
	if err := first.openDBWith(t, "false", "moco-exporter", string(passwords["EXPORTER_PASSWORD"]), mysqlPort).PingContext(t.Context()); err == nil {
		t.Error("expected no session without TLS, found one")
	}
	expectProbes(true, true)
	execStatements(t, admin, "SET GLOBAL max_connections = 60")
	execStatements(t, admin, "CHANGE REPLICATION SOURCE TO SOURCE_HOST='nowhere', SOURCE_USER='x'")
	expectProbes(true, false)
	execStatements(t, admin, "RESET REPLICA ALL")
	pid, err := os.ReadFile(filepath.Join(first.volume, "pid"))
	testenv.ExpectNoError(t, err)
	server, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, syscall.Kill(server, syscall.SIGSTOP))
	expectProbes(false, false)
	late := probe("alive")
	testenv.ExpectNoError(t, late.Start())
	testenv.Eventually(t, "the probe is the program itself, which the kubelet's timeout ends", func() error {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", late.Process.Pid))
		return errors.Join(err, testenv.ErrorIf(strings.TrimSpace(string(name)) == "sh", "it is a child of a shell"))
	})
	_ = late.Wait() // The probe fails, because the server is suspended.
	testenv.ExpectNoError(t, syscall.Kill(server, syscall.SIGCONT))
	expectProbes(true, true)

	t.Log("A killed server starts again, even if a process of the new container has its PID.")
	testenv.ExpectNoError(t, syscall.Kill(server, syscall.SIGKILL))
	<-served.ExitChannel()
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(first.volume, "s.sock.lock"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600))
	served = first.startServer(t)
	first.waitUp(t, admin)

	t.Log("No log grows without limit, and the latest entries are not lost.")
	execStatements(t, admin, "SET GLOBAL require_secure_transport = ON", "SET GLOBAL general_log = ON", "SET GLOBAL long_query_time = 0")
	slowLog := first.startSlowLog(t)
	first.expectLogsBounded(t)
	first.expectSlowLogPrinted(t, slowLog)

	t.Log("The account for applications writes to its own databases, and cannot make an account an administrator.")
	execStatements(t, admin, "SET GLOBAL super_read_only=0", "SET GLOBAL read_only=0")
	// Creating existing accounts again does not change them.
	execStatements(t, admin, mysqlusers.BuildStatements(passwords, true)...)
	writer := first.openDB(t, "moco-writable", string(passwords["WRITABLE_PASSWORD"]), mysqlPort)
	execStatements(t, writer, "CREATE DATABASE own", "CREATE TABLE own.t (id INT PRIMARY KEY)", "INSERT INTO own.t VALUES (1)", "CREATE USER 'a'@'%' IDENTIFIED BY 'a'", "GRANT ALL ON own.* TO 'a'@'%'")
	for _, harm := range []string{
		"UPDATE mysql.user SET authentication_string = '' WHERE user = 'moco-admin'", "INSERT INTO mysql.global_grants VALUES ('moco-writable', '%', 'SYSTEM_USER', 'N')",
		"DELETE FROM mysql.role_edges", "CREATE TABLE mysql.x (id INT)", "DROP TABLE sys.sys_config", "GRANT INSERT ON mysql.* TO 'a'@'%'",
		"ALTER USER 'moco-admin'@'%' IDENTIFIED BY 'x'", "ALTER USER 'moco-repl'@'%' IDENTIFIED BY 'x'", "DROP USER 'moco-clone-donor'@'%'",
	} {
		if _, err := writer.ExecContext(t.Context(), harm); err == nil {
			t.Errorf("moco-writable may %s", harm)
		}
	}

	t.Log("The supervisor restarts a server that has become a clone.")
	execStatements(t, admin, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	cloned := second.startServer(t)
	heir := second.openDB(t, "moco-admin", string(passwords["ADMIN_PASSWORD"]), adminPort)
	second.waitUp(t, heir)
	testenv.ExpectEqual(t, "an hour ahead", "2026-07-01 01:00:00", queryText(t, heir, "SELECT CONVERT_TZ('2026-07-01', '+00:00', 'Ahead')"))
	execStatements(t, heir, "SET GLOBAL super_read_only=0", "SET GLOBAL read_only=0")
	first.cloneTo(t, heir)
	testenv.Eventually(t, "the clone has the data", func() error {
		var rows int
		if err := heir.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM app.t").Scan(&rows); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		return nil
	})
	if id := queryText(t, heir, "SELECT @@server_id"); id != "101" {
		t.Errorf("expected the server id 101, found %s", id)
	}

	t.Log("SIGTERM to the supervisor shuts the server down.")
	for _, p := range []*testenv.Process{served, cloned} {
		p.Stop(t)
		if code := p.ExitCode(); code != 0 {
			t.Errorf("expected the exit code 0, found %d", code)
		}
	}
	for _, i := range []*testInstance{first, second} {
		if _, err := os.Stat(filepath.Join(i.volume, "pid")); err == nil {
			t.Error("a server has left its pid file")
		}
	}
}

// writeTimeZone writes the file of a time zone that is always one hour ahead of UTC.
func writeTimeZone(t *testing.T, folder string) {
	t.Helper()
	testenv.ExpectNoError(t, os.Mkdir(folder, 0o700))
	zone := "TZif" + strings.Repeat("\x00", 16+5*4-4) + "\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x0e\x10\x00\x00CET\x00"
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(folder, "Ahead"), []byte(zone), 0o600))
}

// TestScriptsDependOnNoSetting runs the scripts of a Pod with settings that users may choose for their clients.
func TestScriptsDependOnNoSetting(t *testing.T) {
	t.Parallel()
	for name, isCopy := range map[string]bool{"a cluster of its own": false, "a copy of another server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passwords := map[string][]byte{}
			for n, a := range mysqlusers.ListAccounts() {
				passwords[a.PasswordKey] = fmt.Appendf(nil, `it's "%d" \ here`, n)
			}
			i := newTestInstance(t, mysqld.FindServerPrograms(t), 0, passwords)
			i.isCopy = isCopy
			i.settings = []string{
				"--autocommit=0", "--completion-type=RELEASE", "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE", "--max-join-size=1",
				"--max-execution-time=1", "--sql-require-primary-key=ON", "--sql-generate-invisible-primary-key=ON", "--default-time-zone=Ahead", "--lower-case-table-names=1",
				"--require-secure-transport=ON", "--init-connect=SET NAMES latin1", "--default-password-lifetime=90", "--max-allowed-packet=1M",
				"--character-set-server=latin1", "--collation-server=latin1_german1_ci", "--lc-messages=fr_FR", "--default-storage-engine=MEMORY", "--group-concat-max-len=4",
			}
			i.zones = filepath.Join(i.volume, "zones")
			writeTimeZone(t, i.zones)
			i.initialise(t)
			expectProbes := func() {
				t.Helper()
				for _, question := range []string{"alive", "ready"} {
					if out, err := i.probe(t, question); err != nil {
						t.Errorf("is it %s: %v: %s", question, err, out)
					}
				}
			}
			run := i.startServer(t)
			admin := i.openDB(t, "moco-admin", string(passwords["ADMIN_PASSWORD"]), adminPort)
			i.waitUp(t, admin)
			expectProbes()
			testenv.ExpectEqual(t, "transactions", "", queryText(t, admin, "SELECT @@gtid_executed"))
			testenv.ExpectEqual(t, "the time zone", "Ahead", queryText(t, admin, "SELECT @@global.time_zone"))
			admin.SetMaxOpenConns(1)
			execStatements(t, admin, "SET autocommit=1, sql_log_bin=0", "SET GLOBAL super_read_only=0", "ALTER USER 'moco-agent'@'%', 'moco-repl'@'%' PASSWORD EXPIRE")
			if _, err := i.probe(t, "alive"); err == nil {
				t.Error("expected a server whose agent's password has expired not to be alive")
			}
			run.Stop(t)
			i.startServer(t)
			i.waitUp(t, admin)
			expectProbes()
			for _, a := range mysqlusers.ListAccounts() {
				if err := i.openDB(t, a.Name, string(passwords[a.PasswordKey]), mysqlPort).PingContext(t.Context()); err != nil {
					t.Errorf("%s: %v", a.Name, err)
				}
			}
			testenv.ExpectEqual(t, "transactions", "", queryText(t, admin, "SELECT @@gtid_executed"))
		})
	}
}

// TestCloneRecreatesAccounts uses a Pod's scripts to clone a server with other passwords into an instance. Then the
// test changes an account of the instance, as replication from an external source could.
func TestCloneRecreatesAccounts(t *testing.T) {
	place := mysqld.FindServerPrograms(t)
	passwordsOf := func(whose string) map[string][]byte {
		passwords := map[string][]byte{}
		for n, a := range mysqlusers.ListAccounts() {
			passwords[a.PasswordKey] = fmt.Appendf(nil, `%s "%d" \ here`, whose, n)
		}
		return passwords
	}
	source, instance := newTestInstance(t, place, 0, passwordsOf("its")), newTestInstance(t, place, 1, passwordsOf("our"))
	instance.isCopy = true
	source.initialise(t)
	instance.initialise(t)
	source.startServer(t)
	there := source.openDB(t, "moco-admin", string(source.passwords["ADMIN_PASSWORD"]), adminPort)
	source.waitUp(t, there)
	execStatements(t, there, "SET GLOBAL super_read_only=0", "SET GLOBAL read_only=0", "CREATE DATABASE app", "ALTER USER 'moco-agent'@'%' ACCOUNT LOCK",
		"ALTER USER 'moco-repl'@'%' IDENTIFIED BY 'other' RETAIN CURRENT PASSWORD", "DROP USER 'moco-backup'@'%'")

	run := instance.startServer(t)
	here := instance.openDB(t, "moco-admin", string(instance.passwords["ADMIN_PASSWORD"]), adminPort)
	instance.waitUp(t, here)
	testenv.ExpectEqual(t, "transactions of a new server", "", queryText(t, here, "SELECT @@gtid_executed"))
	execStatements(t, here, "SET GLOBAL super_read_only=0")
	source.cloneTo(t, here)
	testenv.Eventually(t, "the copy accepts its administrator", func() error {
		var name string
		if err := here.QueryRowContext(t.Context(), "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'app'").Scan(&name); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		return nil
	})
	testenv.ExpectEqual(t, "transactions of the copy", queryText(t, there, "SELECT @@gtid_executed"), queryText(t, here, "SELECT @@gtid_executed"))
	testenv.ExpectEqual(t, "the copy is read-only", "1", queryText(t, here, "SELECT @@super_read_only"))
	for _, a := range mysqlusers.ListAccounts() {
		if err := instance.openDB(t, a.Name, string(instance.passwords[a.PasswordKey]), mysqlPort).PingContext(t.Context()); err != nil {
			t.Errorf("%s with its own password: %v", a.Name, err)
		}
		for _, other := range []string{string(source.passwords[a.PasswordKey]), "other"} {
			if err := instance.openDB(t, a.Name, other, mysqlPort).PingContext(t.Context()); err == nil {
				t.Errorf("%s comes in with a password of the source", a.Name)
			}
		}
	}

	isAlive := func() error {
		out, err := instance.probe(t, "alive")
		return errors.Join(err, testenv.ErrorIf(err != nil, "%s", out))
	}
	testenv.ExpectNoError(t, isAlive())
	here.SetMaxOpenConns(1)
	execStatements(t, here, "SET sql_log_bin=0", "SET GLOBAL super_read_only=0", "ALTER USER 'moco-admin'@'%' IDENTIFIED BY 'changed at the source'", "ALTER USER 'moco-admin'@'%' DISCARD OLD PASSWORD", "SET GLOBAL super_read_only=1")
	if err := isAlive(); err == nil {
		t.Error("expected a copy that refuses its administrator not to be alive")
	}
	run.Stop(t)
	instance.startServer(t)
	instance.waitUp(t, here)
	testenv.ExpectNoError(t, isAlive())
}

// TestStartRenewsExpiredAccounts expires the passwords of a primary and its replica, by a statement and by age.
func TestStartRenewsExpiredAccounts(t *testing.T) {
	t.Parallel()
	place := mysqld.FindServerPrograms(t)
	passwords := map[string][]byte{}
	for _, a := range mysqlusers.ListAccounts() {
		passwords[a.PasswordKey] = []byte("secret-" + a.Name)
	}
	primary, replica := newTestInstance(t, place, 0, passwords), newTestInstance(t, place, 1, passwords)
	servers := map[*testInstance]*testenv.Process{}
	admins := map[*testInstance]*sql.DB{}
	for _, i := range []*testInstance{primary, replica} {
		// autocommit=0 must not roll back the statements that run at a start.
		i.settings = []string{"--default-password-lifetime=90", "--autocommit=0"}
		i.initialise(t)
		servers[i] = i.startServer(t)
		admins[i] = i.openDB(t, "moco-admin", string(passwords["ADMIN_PASSWORD"]), adminPort)
		admins[i].SetMaxOpenConns(1)
		i.waitUp(t, admins[i])
		execStatements(t, admins[i], "SET autocommit=1")
	}
	execStatements(t, admins[replica], fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_USER='moco-repl', SOURCE_PASSWORD='%s', SOURCE_AUTO_POSITION=1, SOURCE_SSL=1",
		primary.address, passwords["REPLICATION_PASSWORD"]), "START REPLICA")
	everyone := "'" + strings.Join(mysqlusers.Names(), "'@'%', '") + "'@'%'"
	execStatements(t, admins[primary], "SET GLOBAL super_read_only=0", "SET GLOBAL read_only=0", "ALTER USER "+everyone+" PASSWORD EXPIRE DEFAULT",
		"UPDATE mysql.user SET password_last_changed='2020-01-01' WHERE user LIKE 'moco-%'", "CREATE USER 'dba'@'%' IDENTIFIED BY 'dba'", "GRANT ALL ON *.* TO 'dba'@'%'")
	dba := map[*testInstance]*sql.DB{}
	dba[primary], dba[replica] = primary.openDB(t, "dba", "dba", mysqlPort), replica.openDB(t, "dba", "dba", mysqlPort)
	execStatements(t, dba[primary], "ALTER USER "+everyone+" PASSWORD EXPIRE")
	executed := queryText(t, dba[primary], "SELECT @@gtid_executed")
	testenv.Eventually(t, "the replica has it", func() error {
		return testenv.ErrorIf(queryText(t, admins[replica], "SELECT @@gtid_executed") != executed, "not yet")
	})
	for i, admin := range admins {
		testenv.ExpectEqual(t, "expired accounts", "8", queryText(t, dba[i], "SELECT COUNT(*) FROM mysql.user WHERE password_expired='Y' AND password_lifetime IS NULL AND user LIKE 'moco-%'"))
		for _, a := range mysqlusers.ListAccounts() {
			if err := i.openDB(t, a.Name, string(passwords[a.PasswordKey]), mysqlPort).PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), "1862") {
				t.Errorf("%s: expected error 1862, found %v", a.Name, err)
			}
		}
		if _, err := i.probe(t, "alive"); err == nil {
			t.Error("expected a server that refuses all logins not to be alive")
		}
		servers[i].Stop(t)
		i.startServer(t)
		i.waitUp(t, admin)
		if out, err := i.probe(t, "alive"); err != nil {
			t.Errorf("after a start: %v: %s", err, out)
		}
		for _, a := range mysqlusers.ListAccounts() {
			if err := i.openDB(t, a.Name, string(passwords[a.PasswordKey]), mysqlPort).PingContext(t.Context()); err != nil {
				t.Errorf("%s after a start: %v", a.Name, err)
			}
		}
		for question, want := range map[string]string{
			"SELECT @@gtid_executed": executed, "SELECT @@super_read_only": "1",
			"SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'moco-%' AND password_expired='N' AND password_lifetime=0": "8",
		} {
			testenv.ExpectEqual(t, question, want, queryText(t, admin, question))
		}
	}
}
