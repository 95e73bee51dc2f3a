// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

// instances is the number of instances of each MySQL cluster.
const instances = 3

// database is a MySQL cluster of real servers, with clients that write into it.
type database struct {
	*mysqlpods.PodCluster

	ledger *mysqlpods.Ledger
	// found are the observations of stopped clustering.
	found []stopObservation
}

// stopObservation is a poll that found ClusteringActive False, which was written at or after a time in whole seconds.
type stopObservation struct{ at, since time.Time }

// countRealDatabases returns the default number of MySQL clusters of real servers. Their servers need root, and the
// programs of MySQL.
func countRealDatabases() int {
	if os.Geteuid() != 0 || os.Getenv("TORPOR_MYSQL") == "" {
		return 0
	}
	return 3
}

func databaseName(index int) types.NamespacedName {
	return types.NamespacedName{Namespace: fleetOf(index), Name: fmt.Sprintf("db-%d", index)}
}

// createDatabases creates the MySQL clusters. The first ones have real servers.
func (w *world) createDatabases(t *testing.T) {
	t.Helper()
	simulated := mysqlpods.NewSimulatedServers()
	for i := range w.sizes.databases {
		name := databaseName(i)
		w.intents.begin(name.Name, started)(acknowledged)
		if i >= w.sizes.realDatabases {
			cluster := testenv.BuildMySQLCluster(t, name, instances)
			simulated.StartServers(t, i, cluster.InstanceHost(0))
			testenv.ExpectNoError(t, mysqlpods.CreateSimulatedCluster(t, w.Environment, name, i))
			continue
		}
		c := mysqlpods.StartCluster(t, w.Environment, instances, mysqlpods.ClusterOptions{
			Name: name, IsLinked: true, ResolvesNames: true, RestartsCrashed: true, Settings: mysqld.GeneralLogSettings(),
		})
		c.CreateMySQLCluster(t)
		testenv.ExpectNoError(t, c.AnnotateMySQLCluster(t.Context(), mocov1beta2.RecloneAnnotation, mocov1beta2.RecloneErrant))
		w.databases = append(w.databases, &database{PodCluster: c, ledger: mysqlpods.NewLedger()})
	}
	for _, d := range w.databases {
		testenv.Eventually(t, d.Name.String()+" is healthy", func() error {
			cluster, err := d.GetMySQLCluster(t.Context())
			return errors.Join(err, testenv.ErrorIf(err == nil && !isHealthy(cluster), "not yet"))
		})
		primary := d.findPrimary(t)
		d.WaitForCurrentAccounts(t, primary)
		d.CreateRowsTable(t, primary)
	}
}

func (d *database) findPrimary(t *testing.T) int {
	t.Helper()
	cluster, err := d.GetMySQLCluster(t.Context())
	testenv.ExpectNoError(t, err)
	return cluster.Status.CurrentPrimaryIndex
}

// writeInterval is the interval of a client's writes.
const writeInterval = 200 * time.Millisecond

// startWriters starts the clients of all databases, which run until ctx ends.
func (w *world) startWriters(ctx context.Context, t *testing.T) (wait func()) {
	t.Helper()
	var all []func()
	for _, d := range w.databases {
		all = append(all, mysqlpods.StartWriters(ctx, t, d.PodCluster, d.ledger, writeInterval))
	}
	return func() {
		for _, wait := range all {
			wait()
		}
	}
}

func isHealthy(c *mocov1beta2.MySQLCluster) bool {
	return hasReason(c.Status.Conditions, mocov1beta2.HealthyCondition, mocov1beta2.HealthyReason)
}

// isStopped reports whether clustering is stopped, according to the status.
func isStopped(c *mocov1beta2.MySQLCluster) bool {
	return hasReason(c.Status.Conditions, mocov1beta2.ClusteringActiveCondition, mocov1beta2.ClusteringInactiveReason)
}

func hasReason(conditions []metav1.Condition, kind, reason string) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Reason == reason
}

// observeStops polls the statuses of the databases with real servers.
func (w *world) observeStops(ctx context.Context) error {
	for _, d := range w.databases {
		c, err := d.GetMySQLCluster(ctx)
		if err != nil {
			return err
		}
		d.observeStop(c, time.Now())
	}
	return nil
}

// observeStop records that a poll has found a database with stopped clustering.
func (d *database) observeStop(c *mocov1beta2.MySQLCluster, at time.Time) {
	if isStopped(c) {
		since := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.ClusteringActiveCondition).LastTransitionTime
		d.found = append(d.found, stopObservation{at, since.Time})
	}
}

// isKnownStopped reports whether clustering of a database was stopped at a time: its only possible intent is the stop,
// and an observation after this intent has found it in the status.
func isKnownStopped(l *intentLog, name string, found []stopObservation, at time.Time) bool {
	if wanted := l.current(name, at); len(wanted) != 1 || wanted[0] != stopped {
		return false
	}
	lastStart := l.lastSent(name, started, at)
	for _, o := range found {
		if !o.at.After(at) && !o.since.Before(lastStart) {
			return true
		}
	}
	return false
}

// judgeDatabases judges the acts of the managers and the rows of the clients, after all databases are at rest.
func (w *world) judgeDatabases(t *testing.T) {
	t.Helper()
	for _, d := range w.databases {
		log := d.OpenGeneralLog()
		log.ReadNew(t)
		lost, areEqual := d.ledger.CountLost(t, d.PodCluster)
		s := d.ledger.Summarize()
		v := w.found
		v.mu.Lock()
		for _, statement := range log.Statements {
			if statement.IsRead() {
				continue
			}
			v.Acts++
			if isKnownStopped(w.intents, d.Name.Name, d.found, statement.At) {
				v.WrongActs++
				v.note("%s: %q at %s, while clustering was stopped", d.Name, statement.Text, statement.At.Format(time.TimeOnly))
			}
		}
		v.AcknowledgedRows += s.Acknowledged
		v.LostRows += lost
		v.DualMoments += d.ledger.CountDualMoments()
		v.Promotions += s.Promotions
		if !areEqual {
			v.UnequalDatabases++
		}
		v.mu.Unlock()
	}
}

// serverFault is a kind of fault that strikes one server of a database.
type serverFault struct {
	name         string
	strike, heal func(t *testing.T, d *database, i int)
}

func listServerFaults() []serverFault {
	cut := func(how mysqlpods.CutMode) func(*testing.T, *database, int) {
		return func(_ *testing.T, d *database, i int) { d.Network.CutOff(i, how) }
	}
	healCut := func(_ *testing.T, d *database, i int) { d.Network.HealCut(i) }
	return []serverFault{
		{
			"kill -9 of a server",
			func(t *testing.T, d *database, i int) { t.Helper(); d.Servers[i].KillAtOnce(t); d.Network.CloseLink(i) },
			func(t *testing.T, d *database, i int) {
				t.Helper()
				d.Servers[i].StartAndWait(t)
				testenv.ExpectNoError(t, d.Network.OpenLink(t.Context(), i))
			},
		},
		{
			"freeze of a server",
			func(t *testing.T, d *database, i int) { t.Helper(); d.Servers[i].Freeze(t) },
			func(t *testing.T, d *database, i int) { t.Helper(); d.Servers[i].Thaw(t) },
		},
		{"cut between a server and all others", cut(mysqlpods.DropPackets), healCut},
		{"reset of the connections of a server", cut(mysqlpods.ResetConnections), healCut},
	}
}

// strikeServer injects a fault of one server, which is often the primary, and returns a function that repairs it.
func (s *soak) strikeServer(t *testing.T, random *rand.Rand) (heal func()) {
	t.Helper()
	d := s.databases[random.IntN(len(s.databases))]
	i := random.IntN(instances)
	if random.IntN(2) == 0 {
		i = d.findPrimary(t)
	}
	kind := draw(random, &s.serverDeck, listServerFaults)
	s.noteFault(t, kind.name, fmt.Sprintf("%s, instance %d", d.Name, i))
	kind.strike(t, d, i)
	return func() { kind.heal(t, d, i) }
}

// changeDatabase stops or starts clustering.
func (u *users) changeDatabase(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	name := databaseName(random.IntN(u.sizes.databases))
	value := []string{started, stopped}[random.IntN(2)]
	u.setClustering(ctx, t, name, value)
	const twice = 4
	if random.IntN(twice) == 0 {
		pause(ctx, random, longestRegret)
		u.setClustering(ctx, t, name, map[string]string{started: stopped, stopped: started}[value])
	}
}

func (u *users) setClustering(ctx context.Context, t *testing.T, name types.NamespacedName, value string) {
	t.Helper()
	annotation := map[string]string{started: "null", stopped: `"true"`}[value]
	c := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	u.send(ctx, t, c, value, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, mocov1beta2.ClusteringStoppedAnnotation, annotation))
}

// startAllDatabases starts clustering of all databases, so that their rows can be compared.
func (u *users) startAllDatabases(ctx context.Context, t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for i := range u.sizes.databases {
		all.Go(func() { u.setClustering(ctx, t, databaseName(i), started) })
	}
	all.Wait()
}

// TestOracleKnowsWhenClusteringIsStopped judges times in a history of a database.
func TestOracleKnowsWhenClusteringIsStopped(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	history := []intent{
		{started, at(0), at(0), acknowledged},
		{stopped, at(10), at(11), acknowledged},
		{started, at(20), at(21), acknowledged},
		{stopped, at(30), at(31), acknowledged},
	}
	observations := []stopObservation{{at(15), at(12)}, {at(32), at(12)}, {at(40), at(33)}}
	for name, row := range map[string]struct {
		at   int
		want bool
	}{
		"before the stop":                                   {5, false},
		"after the stop, before it is observed":             {13, false},
		"after the stop is observed":                        {16, true},
		"while the start is sent":                           {20, false},
		"after the start":                                   {25, false},
		"after a stop whose status is from an earlier stop": {35, false},
		"after the second stop is observed":                 {41, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newIntentLog()
			l.of["db"] = history
			testenv.ExpectEqual(t, "clustering is stopped", row.want, isKnownStopped(l, "db", observations, at(row.at)))
		})
	}
}
