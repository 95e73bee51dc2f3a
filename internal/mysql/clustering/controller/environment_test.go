// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	instances   = 3
	clusterName = "test"
)

// environment is an API server, a MySQLCluster, and Pods that are real servers.
type environment struct {
	*testenv.Environment
	name    types.NamespacedName
	servers []*mysqld.Server
	pods    *mysqlpods.PodCluster
	metrics *Metrics
	log     *testenv.LogBuffer
	clock   shiftedClock
	// stopManager stops the manager that was started last.
	stopManager func()
}

type shiftedClock struct{ ahead time.Duration }

// Now implements clock.PassiveClock.
func (s shiftedClock) Now() time.Time { return clock.RealClock{}.Now().Add(s.ahead) }

// Since implements clock.PassiveClock.
func (s shiftedClock) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, func(t testing.TB) *testenv.Environment {
		e := testenv.Start(t)
		e.ApplyManifest(t, "features/mysql/pod_deletion_policy.yaml")
		return e
	})
)

// newEnvironment returns the shared API server, with a namespace of the test and without MySQL servers. Managers watch
// only this namespace.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{Environment: shared.Get(t), log: &testenv.LogBuffer{}}
	e.name = types.NamespacedName{Namespace: e.CreateNamespace(t), Name: clusterName}
	e.log.ShowOnFailure(t, "the manager")
	e.log.ExpectWithout(t, "secret-")
	return e
}

// newEnvironmentWithServers also starts an instance for each Pod, and creates the Pods and their Secret.
func newEnvironmentWithServers(t *testing.T, options ...func(*mysqlpods.ClusterOptions)) *environment {
	t.Helper()
	return newEnvironmentOfSize(t, instances, options...)
}

func newEnvironmentOfSize(t *testing.T, size int, options ...func(*mysqlpods.ClusterOptions)) *environment {
	t.Helper()
	e := newEnvironment(t)
	var how mysqlpods.ClusterOptions
	for _, option := range options {
		option(&how)
	}
	e.usePods(mysqlpods.StartCluster(t, e.Environment, size, how))
	return e
}

func (e *environment) usePods(pods *mysqlpods.PodCluster) {
	e.pods, e.name, e.servers = pods, pods.Name, pods.Servers
}

// newHealthyEnvironment lets the manager set up a healthy cluster of three empty servers, and creates a table.
func newHealthyEnvironment(t *testing.T, options ...func(*mysqlpods.ClusterOptions)) *environment {
	t.Helper()
	e := newEnvironmentWithServers(t, options...)
	e.createCluster(t, nil)
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	// The accounts are older than the certificates, so the manager renews them now. If the manager were killed during
	// the renewal, an errant ALTER USER would remain.
	e.waitForAnswer(t, "select user_attributes->>'$.metadata."+mysqlusers.VersionAttribute+"' from mysql.user where user = '"+mysqlusers.AdminUser+"'", mysqlusers.CurrentVersion(true))
	e.mustRun(t, 0, "app", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))", "insert into app.t (v) values ('first')")
	e.waitForAnswer(t, "select count(*) from app.t", "1")
	return e
}

func (e *environment) createCluster(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := testenv.BuildMySQLCluster(t, e.name, instances)
	cluster.Annotations = annotations
	e.ExpectCreated(t, cluster)
}

func (e *environment) startManager(t *testing.T) (stop func()) {
	t.Helper()
	e.metrics = NewMetrics()
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string {
		if i >= len(e.servers) {
			return "nowhere"
		}
		return e.pods.PodAddresses()[i]
	}
	controller := Controller{HostOf: host, Clock: e.clock, Metrics: e.metrics, WatchNamespaces: []string{e.name.Namespace}}
	e.stopManager = testenv.StartManager(t, e.Environment, controller.SetupWithManager, func(o *manager.Options) {
		o.Logger, o.Cache = e.log.Logger(1), cache.Options{DefaultNamespaces: map[string]cache.Config{e.name.Namespace: {}}}
	})
	return e.stopManager
}

func (e *environment) getCluster(t *testing.T) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := e.Client.Get(t.Context(), e.name, cluster); err != nil {
		t.Fatalf("get the cluster: %v", err)
	}
	return cluster
}

// waitForCondition waits until a condition has a status and a reason, such as "True Healthy". For a healthy cluster it
// also waits for the labels of the Pods, because the manager kills client sessions of an instance before it sets the
// label.
func (e *environment) waitForCondition(t *testing.T, kind, want string) *mocov1beta2.MySQLCluster {
	t.Helper()
	var cluster *mocov1beta2.MySQLCluster
	testenv.Eventually(t, kind+" becomes "+want, func() error {
		cluster = e.getCluster(t)
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if c == nil {
			return errors.New("there is no such condition")
		}
		if found := string(c.Status) + " " + c.Reason; found != want {
			return fmt.Errorf("found %s: %s", found, c.Message)
		}
		if want != "True Healthy" {
			return nil
		}
		return e.expectLabels(t, cluster)
	})
	return cluster
}

// expectLabels returns an error unless every Pod has the label of its role.
func (e *environment) expectLabels(t *testing.T, cluster *mocov1beta2.MySQLCluster) error {
	t.Helper()
	for i := range cluster.InstanceCount() {
		want := mocov1beta2.RoleReplica
		if i == cluster.Status.CurrentPrimaryIndex {
			want = mocov1beta2.RolePrimary
		}
		if err := e.expectRole(t, i, string(want)); err != nil {
			return err
		}
	}
	return nil
}

// expectRole returns an error unless the Pod of an instance has the label of a role, or no label if want is empty.
func (e *environment) expectRole(t *testing.T, i int, want string) error {
	t.Helper()
	var pod corev1.Pod
	err := e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", clusterName, i)}, &pod)
	found := pod.Labels[mocov1beta2.RoleLabel]
	return errors.Join(err, testenv.ErrorIf(found != want, "instance %d: expected the role %q, found %q", i, want, found))
}

// annotate sets annotations; an empty value removes one.
func (e *environment) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	for name, value := range annotations {
		if value == "" {
			delete(cluster.Annotations, name)
			continue
		}
		cluster.Annotations[name] = value
	}
	if err := e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatalf("annotate: %v", err)
	}
}

func (e *environment) stopClustering(t *testing.T) {
	t.Helper()
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
}

func (e *environment) startClustering(t *testing.T) {
	t.Helper()
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: ""})
}

// getSecret returns the Secret with the cluster's passwords.
func (e *environment) getSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.name.Namespace, Name: "moco-" + clusterName}, s))
	return s
}

// TestMain also serves as the manager that tests run in a separate process in order to kill it.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if os.Getenv(crashKubeconfig) != "" {
		os.Exit(runCrashProcess())
	}
	testenv.SetParallel(4)
	os.Exit(suite.Run(m))
}

const sqlTimeout = 20 * time.Second

// openSession connects a client to an instance, with a single connection and therefore a single session.
func (e *environment) openSession(t *testing.T, i int, user string) *sql.DB {
	t.Helper()
	return e.openSessionWith(t, i, user, user)
}

func (e *environment) openSessionWith(t *testing.T, i int, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", fmt.Sprintf("%s:%d", e.servers[i].Address, mysqld.Port)
	c.Timeout, c.InterpolateParams, c.Logger = time.Second, true, &driver.NopLogger{}
	// The server may have other defaults.
	c.Params = map[string]string{"autocommit": "1", "completion_type": "0", "sql_big_selects": "1", "max_execution_time": "0", "group_concat_max_len": "1024"}
	// Torpor's accounts require TLS once they are renewed. A server may require TLS for all accounts.
	if strings.HasPrefix(user, "moco-") || len(e.pods.Installation.Settings) > 0 {
		c.TLSConfig = "preferred"
	}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() }) // The server may have stopped already.
	return db
}

func (e *environment) runStatements(t *testing.T, i int, user string, statements ...string) error {
	t.Helper()
	db := e.openSession(t, i, user)
	defer func() { _ = db.Close() }()
	return runIn(t, db, statements...)
}

// runIn runs statements in a session.
func runIn(t *testing.T, db *sql.DB, statements ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// waitForAcknowledgedWrite writes the second row of app.t until an instance other than the first one acknowledges the
// write. It returns that instance and the row's value. A write without an answer may have succeeded: before the new
// primary gets its label, sessions are killed even if their commits wait. Therefore each attempt overwrites the
// previous one.
func (e *environment) waitForAcknowledgedWrite(t *testing.T) (heir int, value string) {
	t.Helper()
	attempt := 0
	testenv.Eventually(t, "another instance acknowledges a write", func() error {
		var refused error
		for heir = 1; heir < instances; heir++ {
			attempt++
			value = fmt.Sprint("after", attempt)
			err := e.runStatements(t, heir, "app", "insert into app.t (id, v) values (2, '"+value+"') on duplicate key update v = values(v)")
			if err == nil {
				return nil
			}
			refused = errors.Join(refused, err)
		}
		return refused
	})
	return heir, value
}

// mustRun runs statements once the instance accepts a session. It does not repeat a statement, because the statement
// may have taken effect.
func (e *environment) mustRun(t *testing.T, i int, user string, statements ...string) {
	t.Helper()
	db := e.openSession(t, i, user)
	defer func() { _ = db.Close() }()
	testenv.Eventually(t, fmt.Sprintf("instance %d accepts a session of %s", i, user), func() error { return db.PingContext(t.Context()) })
	testenv.ExpectNoError(t, runIn(t, db, statements...))
}

// query returns the result of a query on an instance. It repeats a query without a result, because the manager kills
// client sessions when an instance changes its role.
func (e *environment) query(t *testing.T, i int, query string) string {
	t.Helper()
	var value string
	testenv.Eventually(t, fmt.Sprintf("instance %d answers %s", i, query), func() error {
		var err error
		value, err = e.tryQuery(t, i, query)
		if refusal, isAnswer := errors.AsType[*driver.MySQLError](err); isAnswer && !slices.Contains([]uint16{errShutdown, errInterrupted}, refusal.Number) {
			t.Fatalf("%s: %v", query, err)
		}
		return err
	})
	return value
}

// MySQL error numbers for a statement whose session or server is shut down.
const errShutdown, errInterrupted = 1053, 1317

func (e *environment) tryQuery(t *testing.T, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := e.openSession(t, i, "root")
	defer func() { _ = db.Close() }()
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

func (e *environment) waitForAnswer(t *testing.T, query, want string) {
	t.Helper()
	e.waitForAnswerBut(t, -1, query, want)
}

func (e *environment) waitForAnswerBut(t *testing.T, but int, query, want string) {
	t.Helper()
	testenv.Eventually(t, query+" is "+want+" everywhere", func() error {
		for i := range e.servers {
			if i == but {
				continue
			}
			if found, err := e.tryQuery(t, i, query); err != nil || found != want {
				return fmt.Errorf("instance %d: found %q (%w)", i, found, err)
			}
		}
		return nil
	})
}

const commandTimeout = 2 * time.Minute

type commandResult struct {
	code     exit.Code
	out, err string
}

// runPlugin runs the plugin with the arguments that a user would type after "kubectl moco".
func (e *environment) runPlugin(t *testing.T, args ...string) commandResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	var out, said bytes.Buffer
	plugin := moco.NewPlugin(moco.Streams{In: strings.NewReader(""), Out: &out, Err: &said})
	code := plugin.Run(ctx, append([]string{"--kubeconfig", e.KubeconfigPath(t), "--namespace", e.name.Namespace}, args...))
	return commandResult{exit.Code(code), out.String(), said.String()}
}

func (e *environment) runKubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	line := append([]string{"--kubeconfig", e.KubeconfigPath(t), "--namespace", e.name.Namespace}, args...)
	out, err := exec.CommandContext(ctx, path, line...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// stopByPlugin stops clustering with the plugin, and returns once the manager no longer changes the servers.
func (e *environment) stopByPlugin(t *testing.T, args ...string) {
	t.Helper()
	if ran := e.runPlugin(t, append([]string{"stop", "clustering", clusterName, "--wait"}, args...)...); ran.code != exit.Done {
		t.Fatalf("expected clustering to stop, found %+v", ran)
	}
}

// waitForLooks waits for two more passes, so at least one of them began after the call.
func (e *environment) waitForLooks(t *testing.T) {
	t.Helper()
	const looks = 2
	checks := e.metricValue(t, "moco_cluster_checks_total")
	testenv.Eventually(t, "the manager has run two passes", func() error {
		e.triggerPass(t)
		return testenv.ErrorIf(e.metricValue(t, "moco_cluster_checks_total") < checks+looks, "not yet")
	})
}

func annotationNames(of map[string]string) []string { return slices.Collect(maps.Keys(of)) }
