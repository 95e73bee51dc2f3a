// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	driver "github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// maxKillPoints is the number of points at which a manager is killed, unless TORPOR_E2E=full selects all points.
const maxKillPoints = 2

type operation struct {
	name string
	// begin makes the operation necessary while no manager runs. It returns an additional check, which runs at the end.
	begin func(*testing.T, *environment) func() error
	// mend restores what begin removed, once another instance is the primary.
	mend func(*testing.T, *environment)
}

func TestKilledDuringSwitchover(t *testing.T) {
	t.Parallel()
	testManagerKilled(t, operation{name: "switchover", begin: func(t *testing.T, e *environment) func() error {
		p := e.getCluster(t).Status.CurrentPrimaryIndex
		e.requestStepDown(t, p)
		return e.expectAnotherPrimary(t, p)
	}})
}

// TestKilledDuringFailover kills the manager during a failover, and during the return of the failed instance.
func TestKilledDuringFailover(t *testing.T) {
	t.Parallel()
	failed := 0
	testManagerKilled(t, operation{name: "failover", begin: func(t *testing.T, e *environment) func() error {
		failed = e.getCluster(t).Status.CurrentPrimaryIndex
		e.servers[failed].KillAtOnce(t)
		return e.expectAnotherPrimary(t, failed)
	}, mend: func(t *testing.T, e *environment) { e.servers[failed].StartAndWait(t) }})
}

// TestKilledDuringFirstStart kills the manager while it chooses the first primary, copies it and starts replication.
func TestKilledDuringFirstStart(t *testing.T) {
	t.Parallel()
	testManagerKilled(t, operation{name: "first start", begin: func(t *testing.T, e *environment) func() error {
		e.recreateCluster(t)
		return func() error { return nil }
	}})
}

// TestKilledDuringRotation kills the manager while all accounts get new passwords. Logins with the old and with the new
// password must succeed throughout.
func TestKilledDuringRotation(t *testing.T) {
	t.Parallel()
	testManagerKilled(t, operation{name: "rotation", begin: func(t *testing.T, e *environment) func() error {
		before := e.beginRotation(t)
		return func() error { return e.checkRotated(t, before) }
	}})
}

func testManagerKilled(t *testing.T, o operation) {
	t.Helper()
	e := newEnvironmentWithServers(t)
	e.pods.WithoutCertificates = true // The manager's actions are counted on the wire, which TLS would prevent.
	for i := range instances {
		testenv.ExpectNoError(t, e.pods.ReplacePod(t.Context(), i))
	}
	e.recreateCluster(t)
	e.withManagerProcess(t, "", func(*testenv.Process) { e.waitUntilWell(t, func() error { return nil }) })

	acts := e.runOperation(t, o, "")
	t.Logf("the actions of a %s: %s", o.name, strings.Join(acts, "; "))
	struck := 0
	points := killPoints(len(acts))
	for _, point := range points { // Subtests are not possible: the points share servers, which stop with the test that started them.
		done := e.runOperation(t, o, point)
		if reached := strings.HasPrefix(point, fmt.Sprint(len(done), " ")); reached {
			struck++
			t.Logf("killed %s: %s", point, done[len(done)-1])
		}
	}
	t.Logf("%d of %d points were reached", struck, len(points))
	if struck*2 < len(points) {
		t.Errorf("expected at least half of the points to be reached, found %d of %d", struck, len(points))
	}
}

// killPoints returns the points before and after each action, or an evenly spread subset of them.
func killPoints(acts int) []string {
	var all []string
	for n := 1; n <= acts; n++ {
		all = append(all, fmt.Sprint(n, " before"), fmt.Sprint(n, " after"))
	}
	if testenv.IsFull() || len(all) <= maxKillPoints {
		return all
	}
	var some []string
	for i := range maxKillPoints {
		some = append(some, all[(2*i+1)*len(all)/(2*maxKillPoints)])
	}
	return some
}

// runOperation runs the operation with a manager that is killed at the point, and then with a second manager, while a
// client writes. It returns the actions of the first manager.
func (e *environment) runOperation(t *testing.T, o operation, point string) []string {
	t.Helper()
	ended := o.begin(t, e)
	client := e.startWriter(t)
	defer client.stop()
	var acts []string
	finish := func(p *testenv.Process) {
		mended := o.mend == nil
		testenv.Eventually(t, o.name+" is over, or its manager", func() error {
			acts = parseActs(p)
			select {
			case <-p.ExitChannel():
				return nil
			default:
			}
			if !mended && ended() == nil {
				mended = true
				o.mend(t, e)
			}
			return errors.Join(ended(), e.checkWell(t))
		})
		if point != "" {
			select {
			case <-p.ExitChannel():
			default:
				return
			}
			e.withManagerProcess(t, "", func(*testenv.Process) {
				if !mended {
					testenv.Eventually(t, o.name+" continues", ended)
					o.mend(t, e)
				}
				e.waitUntilWell(t, ended)
			})
		}
	}
	e.withManagerProcess(t, point, finish)
	client.check(t, e)
	return acts
}

func (e *environment) withManagerProcess(t *testing.T, point string, f func(*testenv.Process)) {
	t.Helper()
	self, err := os.Executable()
	testenv.ExpectNoError(t, err)
	var hosts []string
	for _, s := range e.servers {
		hosts = append(hosts, s.Address)
	}
	p := testenv.StartProcess(t, self, nil, []string{
		crashKubeconfig + "=" + e.KubeconfigPath(t), crashHosts + "=" + strings.Join(hosts, ","), crashPoint + "=" + point, crashNamespace + "=" + e.name.Namespace,
	})
	f(p)
	p.KillAtOnce(t)
}

func parseActs(p *testenv.Process) []string {
	var acts []string
	for line := range strings.Lines(p.LastOutput()) {
		if said, ok := strings.CutPrefix(line, actLine); ok {
			acts = append(acts, strings.TrimSpace(said))
		}
	}
	return acts
}

func (e *environment) waitUntilWell(t *testing.T, ended func() error) {
	t.Helper()
	testenv.Eventually(t, "the cluster is well", func() error { return errors.Join(ended(), e.checkWell(t)) })
}

// checkWell checks without the manager that there is exactly one writable primary, the one in the status, and that
// every other instance follows it.
func (e *environment) checkWell(t *testing.T) error {
	t.Helper()
	cluster := e.getCluster(t)
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.HealthyCondition); c == nil || c.Status != "True" {
		return fmt.Errorf("found %+v", c)
	}
	const state = `select concat(@@read_only, @@super_read_only, ' ', ifnull((select concat(c.host, ' ', s.service_state, ' ', a.service_state)
		from performance_schema.replication_connection_configuration c
		join performance_schema.replication_connection_status s on s.channel_name = c.channel_name
		join performance_schema.replication_applier_status a on a.channel_name = c.channel_name where c.host <> ''), 'alone'))`
	p := cluster.Status.CurrentPrimaryIndex
	for i := range e.servers {
		want, role := "11 "+e.servers[p].Address+" ON ON", mocov1beta2.RoleReplica
		if i == p {
			want, role = "00 alone", mocov1beta2.RolePrimary
		}
		if got, err := e.tryQuery(t, i, state); err != nil || got != want {
			return fmt.Errorf("instance %d with the primary %d: expected %q, found %q (%w)", i, p, want, got, err)
		}
		var pod corev1.Pod
		if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: e.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", clusterName, i)}, &pod); err != nil {
			return err
		}
		if found := pod.Labels[mocov1beta2.RoleLabel]; found != string(role) || pod.Annotations[mocov1beta2.DemoteAnnotation] != "" {
			return fmt.Errorf("instance %d: expected the label %s and no demotion, found %q and %v", i, role, found, pod.Annotations)
		}
	}
	return nil
}

// expectAnotherPrimary checks that another instance is the primary, accepts writes and has the primary's label.
func (e *environment) expectAnotherPrimary(t *testing.T, p int) func() error {
	return func() error {
		now := e.getCluster(t).Status.CurrentPrimaryIndex
		if now == p {
			return fmt.Errorf("instance %d is the primary", p)
		}
		if got, err := e.tryQuery(t, now, "select @@read_only"); err != nil || got != "0" {
			return fmt.Errorf("instance %d is the primary and takes no writes (%w)", now, err)
		}
		return e.expectRole(t, now, string(mocov1beta2.RolePrimary)) // The manager kills client sessions before it adds the label.
	}
}

// recreateCluster turns the servers into those of a new cluster: one server has rows, and the others are empty.
func (e *environment) recreateCluster(t *testing.T) {
	t.Helper()
	old := &mocov1beta2.MySQLCluster{}
	old.Namespace, old.Name = e.name.Namespace, e.name.Name
	testenv.ExpectNoError(t, client.IgnoreNotFound(e.Client.Delete(t.Context(), old)))
	for i, s := range e.servers {
		s.WipeData(t)
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = e.name.Namespace, fmt.Sprintf("moco-%s-%d", clusterName, i)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+mocov1beta2.RoleLabel+`":null}}}`))
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), pod, patch))
		s.StartAndWait(t)
	}
	e.mustRun(t, 0, "root", "set global read_only = 0", "create database app", "create table app.acked (id bigint primary key)", "set global super_read_only = 1")
	e.createCluster(t, nil)
}

type rowWriter struct {
	stop func()

	mu    sync.Mutex
	acked []int64
	// ackedAt holds the times of the acknowledgements.
	ackedAt []time.Time
}

// startWriter begins to write rows with unique keys to any instance that accepts them.
func (e *environment) startWriter(t *testing.T) *rowWriter {
	t.Helper()
	const patience, pace = 2 * time.Second, 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	found := &rowWriter{}
	var running sync.WaitGroup
	found.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(found.stop)
	var servers []*sql.DB
	for i := range e.servers {
		servers = append(servers, e.openSession(t, i, "app"))
	}
	first := e.clock.Now().UnixNano()
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for key := first; ctx.Err() == nil; key++ {
			takes := func(db *sql.DB) bool { return insert(ctx, db, key, patience) == nil }
			if slices.ContainsFunc(servers, takes) {
				found.mu.Lock()
				found.acked, found.ackedAt = append(found.acked, key), append(found.ackedAt, time.Now())
				found.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return found
}

func insert(ctx context.Context, db *sql.DB, key int64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := db.ExecContext(ctx, "insert into app.acked values (?)", key)
	return err
}

// count returns the number of rows acknowledged so far.
func (c *rowWriter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// check fails unless every instance has every acknowledged row.
func (c *rowWriter) check(t *testing.T, e *environment) {
	t.Helper()
	c.stop()
	if len(c.acked) == 0 {
		t.Error("expected some writes to be acknowledged, found none")
		return
	}
	slices.Sort(c.acked)
	for i := range e.servers {
		testenv.Eventually(t, fmt.Sprintf("instance %d has all %d acknowledged rows", i, len(c.acked)), func() error {
			var keys []string
			for _, key := range c.acked {
				keys = append(keys, fmt.Sprint(key))
			}
			got, err := e.tryQuery(t, i, "select count(*) from app.acked where id in ("+strings.Join(keys, ",")+")")
			if err != nil || got != fmt.Sprint(len(c.acked)) {
				return fmt.Errorf("found %s (%w)", got, err)
			}
			return nil
		})
	}
}

// The manager that kills itself is a separate process: this test binary, configured by environment variables. It counts
// its actions, which are the statements and API requests that change something. It kills itself with SIGKILL before or
// after the configured action. It runs the product's code; only its connections are replaced by those of the test.

const (
	crashKubeconfig = "TORPOR_VICTIM_KUBECONFIG"
	crashHosts      = "TORPOR_VICTIM_HOSTS"
	crashNamespace  = "TORPOR_VICTIM_NAMESPACE"
	// crashPoint holds a number and a position, such as "12 before". If it is empty, the manager does not kill itself.
	crashPoint = "TORPOR_VICTIM_POINT"
	// actLine is the prefix of an output line that reports an action.
	actLine = "act: "
)

func runCrashProcess() int {
	if err := crashingManager(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func crashingManager() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(crashKubeconfig))
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	f := newCrash(os.Getenv(crashPoint))
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return crashingAPI{next, f} })
	driver.RegisterDialContext("tcp", f.dial)
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		return err
	}
	namespace := os.Getenv(crashNamespace)
	mgr, err := manager.New(cfg, manager.Options{Scheme: known, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}, Logger: funcr.New(func(_, args string) { fmt.Fprintln(os.Stdout, args) }, funcr.Options{}), Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	hosts := strings.Split(os.Getenv(crashHosts), ",")
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return hosts[i] }
	if err := (Controller{HostOf: host, Clock: clock.RealClock{}, Metrics: NewMetrics(), WatchNamespaces: []string{namespace}}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(signals.SetupSignalHandler())
}

// crashAt is the point at which the manager kills itself.
type crashAt struct {
	at    int64
	after bool
	acts  atomic.Int64
	// promoted runs once, when the manager has reported the primary.
	promoted sync.Once
}

func newCrash(point string) *crashAt {
	f := &crashAt{}
	number, when, _ := strings.Cut(point, " ")
	f.at, _ = strconv.ParseInt(number, 10, 64) // Without a number this is 0, which no action has.
	f.after = when == "after"
	return f
}

// begin counts an action and reports whether the process is to be killed after the action. It does not return if the
// process is killed before it.
func (f *crashAt) begin(name string) bool {
	n := f.acts.Add(1)
	fmt.Fprintf(os.Stdout, "%s%d %s\n", actLine, n, name)
	if n == f.at && !f.after {
		killSelf()
	}
	return n == f.at
}

// killSelf sends SIGKILL to its own process, and does not return.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // SIGKILL cannot be refused.
	select {}
}

type crashingAPI struct {
	next http.RoundTripper
	*crashAt
}

// RoundTrip implements http.RoundTripper.
func (a crashingAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	name, err := a.name(r)
	if err != nil {
		return nil, err
	}
	last := name != "" && a.begin(name)
	answer, err := a.next.RoundTrip(r)
	if last {
		killSelf()
	}
	return answer, err
}

// name describes the change that a request makes; empty for a request that only reads or reports.
func (a crashingAPI) name(r *http.Request) (string, error) {
	if r.Method != http.MethodPatch || r.Body == nil {
		return "", nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch path := r.URL.Path; {
	case strings.Contains(path, "/pods/"):
		return "patch Pod " + string(regexp.MustCompile(`"(labels|annotations)":.*`).Find(body)), nil
	case strings.Contains(path, "/secrets/"):
		return "patch Secret", nil
	case strings.Contains(path, "/mysqlclusters/") && bytes.Contains(body, []byte(mocov1beta2.RotationAnnotation)):
		return "end rotation", nil
	case strings.Contains(path, "/mysqlclusters/") && bytes.Contains(body, []byte(`"currentPrimaryIndex"`)):
		return "promote", nil
	case strings.Contains(path, "/mysqlclusters/") && bytes.Contains(body, []byte(`"role":"primary"`)):
		name := ""
		a.promoted.Do(func() { name = "tell the primary" })
		return name, nil
	}
	return "", nil
}

func (f *crashAt) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &crashingConn{Conn: c, crashAt: f}, nil
}

type crashingConn struct {
	net.Conn
	*crashAt
	last    atomic.Bool
	greeted atomic.Bool
}

// Write implements net.Conn. The driver sends a statement in one write: a header of four bytes, a command, and the
// text.
func (c *crashingConn) Write(b []byte) (int, error) {
	const header, query = 4, 3
	if len(b) > header && b[3] == 0 && b[header] == query {
		if name := nameOfStatement(string(b[header+1:])); name != "" {
			c.last.Store(c.begin(name))
		}
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *crashingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.last.Load() {
		killSelf()
	}
	if !c.greeted.Swap(true) {
		hideTLS(b[:n])
	}
	return n, err
}

// hideTLS removes the TLS capability from a server's greeting, so the client connects without TLS. The capabilities
// follow a header, the protocol version, the zero-terminated server version, and 13 bytes.
func hideTLS(greeting []byte) {
	const before, between, ability = 5, 13, 8
	if len(greeting) <= before {
		return
	}
	at := before + bytes.IndexByte(greeting[before:], 0) + 1 + between + 1
	if at > before && at < len(greeting) {
		greeting[at] &^= ability
	}
}

// nameOfStatement returns the beginning of a statement, without numbers and secrets; empty for a statement that only
// reads.
func nameOfStatement(text string) string {
	const words = 4
	rest, act := strings.CutPrefix(text, "/* torpor */ ")
	if !act && !strings.HasPrefix(text, "clone ") {
		return ""
	}
	fields := strings.Fields(rest)
	return strings.Join(fields[:min(words, len(fields))], " ")
}
