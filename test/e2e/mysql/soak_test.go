// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	// writeInterval is the interval of a client's writes, and settling the least time in which they continue after all
	// faults have ended.
	writeInterval, settling = 25 * time.Millisecond, 5 * time.Second
	progressPace            = 5 * time.Second
	shownRows               = 10
	healthyPace             = 500 * time.Millisecond
	// soakVolume is the size of an instance's volume in megabytes.
	soakVolume = 800
	// livenessTimeout is the time without a successful login after which the kubelet restarts a server.
	livenessTimeout = 90 * time.Second
	// recovery is the time limit for a cluster to become healthy between two rounds, and finalRecovery the limit at
	// the end.
	recovery, finalRecovery = 40 * time.Second, 4 * time.Minute
)

type soakResult struct {
	AcknowledgedRows int `json:"acknowledged_rows"`
	LostRows         int `json:"lost_rows"`
	// DualWritableMoments is the result of dualMoments.
	DualWritableMoments int `json:"dual_writable_moments"`
	Faults              int `json:"faults"`

	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// RefusedRows counts writes of rows that were answered with an error or not at all. These rows may or may not
	// exist.
	RefusedRows int `json:"refused_rows"`
	// Promotions counts the changes of the primary in the status.
	Promotions int `json:"promotions"`
	// LongestSilence is the longest time without any acknowledgement.
	LongestSilence float64 `json:"longest_silence_seconds"`
	// TwoWritableLooks counts the polls, two a second, at which two servers had read_only off. One of them was
	// disconnected and could not acknowledge commits.
	TwoWritableLooks int            `json:"two_writable_looks"`
	HealthyAgain     bool           `json:"healthy_again"`
	EqualRows        bool           `json:"equal_rows"`
	FaultCounts      map[string]int `json:"fault_counts"`
}

// TestSoak writes rows while faults occur, and then checks that every acknowledged row exists.
func TestSoak(t *testing.T) {
	long, seed := testenv.ReadSoakOptions(t, "mysql")
	steps := listScalings()
	first, most := steps[0].size, slices.MaxFunc(steps, func(a, b scaling) int { return cmp.Compare(a.size, b.size) }).size
	cluster, manager := startHealthyCluster(t, first, mysqlpods.ClusterOptions{IsLinked: true, VolumeMegabytes: soakVolume, LaterPods: most - first})
	testenv.ExpectNoError(t, cluster.AnnotateMySQLCluster(t.Context(), mocov1beta2.RecloneAnnotation, mocov1beta2.RecloneErrant))
	b := &faultInjector{cluster: cluster, manager: manager, size: first, scalings: steps[1:], counts: map[string]int{}}
	l := mysqlpods.NewLedger()
	found := soakResult{Seed: seed}
	b.runSoak(t, l, long, &found)
	found.HealthyAgain = b.waitUntilRecovered(t, finalRecovery)
	found.judgeRows(t, cluster, l)
	found.FaultCounts = b.counts
	for _, n := range b.counts {
		found.Faults += n
	}
	testenv.SaveFigures(t, "mysql-soak.json", found)
	b.writeManagerLog(t)
	if !found.HealthyAgain || !found.EqualRows || found.LostRows > 0 || found.DualWritableMoments > 0 {
		t.Errorf("expected a healthy cluster with equal rows, none lost, and never two that acknowledge; seed %d", seed)
		t.Logf("the manager's last log:\n%s", lastLines(b.manager.LastOutput(), 80))
	}
	if found.AcknowledgedRows == 0 || found.Faults == 0 {
		t.Error("expected rows and faults; the run proves nothing")
	}
}

func (b *faultInjector) runSoak(t *testing.T, l *mysqlpods.Ledger, long time.Duration, found *soakResult) {
	t.Helper()
	writing, stopWriting := context.WithCancel(t.Context())
	breaking, stopBreaking := context.WithTimeout(t.Context(), long)
	defer stopBreaking()
	written := mysqlpods.StartWriters(writing, t, b.cluster, l, writeInterval)
	var beside sync.WaitGroup
	beside.Go(func() { b.disturbClustering(breaking, t, rand.New(rand.NewPCG(found.Seed, 1))) })
	beside.Go(func() { b.logProgress(breaking, t, l) })
	beside.Go(func() { found.TwoWritableLooks = countTwoWritable(breaking, t, b.cluster) })
	random := rand.New(rand.NewPCG(found.Seed, 0))
	for breaking.Err() == nil {
		pauseRandomly(breaking, random, 0, 3*time.Second)
		b.scaleWhenDue(t, l.Elapsed().Seconds()/long.Seconds())
		b.runRound(t, random)
		if random.IntN(3) > 0 && breaking.Err() == nil {
			b.waitUntilRecovered(t, min(recovery, long-l.Elapsed()))
		}
	}
	b.scaleWhenDue(t, 1)
	beside.Wait()
	// Continue to write for some time after all faults have ended.
	pauseRandomly(t.Context(), random, settling, 2*settling)
	stopWriting()
	written()
	found.Seconds = l.Elapsed().Seconds()
}

// waitUntilRecovered waits until the cluster is healthy, without intervening.
func (b *faultInjector) waitUntilRecovered(t *testing.T, bound time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	tick := time.NewTicker(healthyPace)
	defer tick.Stop()
	for {
		err := checkCondition(t.Context(), b.cluster, mocov1beta2.HealthyCondition, "True Healthy")
		if err == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Logf("not healthy after %s: %v", bound, err)
			return false
		}
	}
}

func (b *faultInjector) writeManagerLog(t *testing.T) {
	t.Helper()
	if dir := os.Getenv("TORPOR_BENCH_DIR"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "mysql-soak-manager.log"), []byte(b.said+b.manager.LastOutput()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (b *faultInjector) logProgress(ctx context.Context, t *testing.T, l *mysqlpods.Ledger) {
	t.Helper()
	tick := time.NewTicker(progressPace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		state := "healthy"
		if err := checkCondition(ctx, b.cluster, mocov1beta2.HealthyCondition, "True Healthy"); err != nil {
			state = err.Error()
		}
		s := l.Summarize()
		t.Logf("%4.0fs  acknowledged %d, refused %d, promotions %d, last acknowledgement %.1fs ago, broken %s, %s",
			l.Elapsed().Seconds(), s.Acknowledged, s.Refused, s.Promotions, (l.Elapsed() - s.LastAck).Seconds(), b.listActive(), state)
	}
}

// countTwoWritable counts the polls at which two servers allow clients to write.
func countTwoWritable(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster) int {
	t.Helper()
	count := 0
	var servers []*sql.DB
	for _, s := range c.Servers {
		db := mysqlpods.OpenSession(t, s.Address, mysqlpods.RootUser, mysqlpods.RootPassword)
		defer func() { _ = db.Close() }() // Close fails if the server has ended.
		servers = append(servers, db)
	}
	tick := time.NewTicker(healthyPace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return count
		}
		writable := 0
		for _, db := range servers {
			var readOnly bool
			ask, cancel := context.WithTimeout(ctx, time.Second)
			if err := db.QueryRowContext(ask, "select @@global.read_only").Scan(&readOnly); err == nil && !readOnly {
				writable++
			}
			cancel()
		}
		if writable > 1 {
			count++
		}
	}
}

func (found *soakResult) judgeRows(t *testing.T, c *mysqlpods.PodCluster, l *mysqlpods.Ledger) {
	t.Helper()
	found.LostRows, found.EqualRows = l.CountLost(t, c)
	s := l.Summarize()
	found.AcknowledgedRows, found.RefusedRows, found.Promotions = s.Acknowledged, s.Refused, s.Promotions
	found.DualWritableMoments, found.LongestSilence = l.CountDualMoments(), l.LongestSilence().Seconds()
}

type faultKind struct {
	name         string
	strike, heal func(i int)
}

// faultInjector injects faults at random: in one or two instances at a time, and independently in clustering.
type faultInjector struct {
	cluster *mysqlpods.PodCluster
	manager *testenv.Process
	// said contains the output of earlier managers.
	said string
	// size is the current number of instances, and scalings are the next changes to it.
	size     int
	scalings []scaling
	// primaryDeck and replicaDeck are the next kinds of faults.
	primaryDeck, replicaDeck []faultKind

	mu     sync.Mutex
	counts map[string]int
	active []string
}

func (b *faultInjector) noteFault(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what]++
	b.active = append(b.active, what)
}

func (b *faultInjector) noteHealed(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.active, what); i >= 0 {
		b.active = slices.Delete(b.active, i, i+1)
	}
}

// listActive returns the active faults.
func (b *faultInjector) listActive() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.active)
}

func (b *faultInjector) listFaults(t *testing.T) []faultKind {
	t.Helper()
	kill := func(i int) { b.killServer(t, i) }
	start := func(i int) { b.startServer(t, i) }
	replace := func(i int) {
		kill(i)
		if err := b.cluster.ReplacePod(t.Context(), i); err != nil {
			t.Error(err)
		}
	}
	frozen := func(i int) { b.cluster.Servers[i].Freeze(t) }
	thaw := func(i int) { b.cluster.Servers[i].Thaw(t) }
	cutManager := func(i int) { b.cluster.Network.CutOffFromManager(i, mysqlpods.DropPackets) }
	fill := func(i int) { b.cluster.Servers[i].FillVolume(t) }
	free := func(i int) { b.cluster.Servers[i].FreeVolume(t) }
	cut := func(how mysqlpods.CutMode) func(int) { return func(i int) { b.cluster.Network.CutOff(i, how) } }
	return []faultKind{
		{"kill -9 of the %s", kill, start},
		{"kill -9 of the %s", kill, start},
		{"%s cut off, silent", cut(mysqlpods.DropPackets), b.cluster.Network.HealCut},
		{"%s cut off, silent", cut(mysqlpods.DropPackets), b.cluster.Network.HealCut},
		{"%s cut off, reset", cut(mysqlpods.ResetConnections), b.cluster.Network.HealCut},
		{"Pod of the %s replaced", replace, start},
		{"%s cut off from the manager only", cutManager, b.cluster.Network.HealCut},
		{"%s frozen", frozen, thaw},
		{"volume of the %s full", fill, free},
	}
}

// scaling is a change in the number of instances, after a share of the test's duration.
type scaling struct {
	share float64
	size  int
}

// listScalings returns the changes, beginning with one instance. The API server refuses the last change, because it
// would remove instances.
func listScalings() []scaling { return []scaling{{0, 1}, {0.1, 3}, {0.5, 5}, {0.75, 3}} }

// scaleWhenDue scales the cluster if a change is due, so that the next fault occurs during the scaling.
func (b *faultInjector) scaleWhenDue(t *testing.T, share float64) {
	t.Helper()
	for len(b.scalings) > 0 && b.scalings[0].share <= share {
		to := b.scalings[0].size
		b.scalings = b.scalings[1:]
		name := fmt.Sprintf("scaling from %d to %d instances", b.size, to)
		b.noteFault(name)
		err := b.cluster.ScaleTo(t, to)
		switch {
		case to < b.size && !k8serrors.IsInvalid(err):
			t.Errorf("%s: expected it to be refused, found %v", name, err)
		case to > b.size && err != nil:
			t.Fatalf("%s: %v", name, err)
		}
		b.size = max(b.size, to)
		b.noteHealed(name)
	}
}

// drawFault returns the next kind of fault from a shuffled list. Primaries and replicas have separate lists, so that
// both get all kinds.
func (b *faultInjector) drawFault(t *testing.T, random *rand.Rand, isPrimary bool) faultKind {
	t.Helper()
	deck, name := &b.replicaDeck, "replica"
	if isPrimary {
		deck, name = &b.primaryDeck, "primary"
	}
	if len(*deck) == 0 {
		*deck = b.listFaults(t)
		random.Shuffle(len(*deck), func(i, j int) { (*deck)[i], (*deck)[j] = (*deck)[j], (*deck)[i] })
	}
	f := (*deck)[0]
	*deck = (*deck)[1:]
	f.name = fmt.Sprintf(f.name, name)
	return f
}

func (b *faultInjector) startServer(t *testing.T, i int) {
	t.Helper()
	b.cluster.Servers[i].StartAndWait(t)
	if err := b.cluster.Network.OpenLink(t.Context(), i); err != nil {
		t.Error(err)
	}
}

func (b *faultInjector) runRound(t *testing.T, random *rand.Rand) {
	t.Helper()
	if random.IntN(8) == 0 && b.size > 1 {
		b.runGrantRound(t, random)
		return
	}
	primary := primaryIndex(t, b.cluster)
	targets := random.Perm(b.size)[:1]
	switch {
	case random.IntN(5) == 0:
		targets = random.Perm(b.size)[:min(2, b.size)]
	case random.IntN(2) == 0:
		targets = []int{primary}
	}
	type struck struct {
		faultKind
		i int
	}
	var all []struck
	for _, i := range targets {
		f := b.drawFault(t, random, i == primary)
		b.noteFault(f.name)
		f.strike(i)
		all = append(all, struck{f, i})
		pauseRandomly(t.Context(), random, 0, time.Second)
	}
	for _, at := range random.Perm(len(all)) {
		pauseRandomly(t.Context(), random, 500*time.Millisecond, 9*time.Second)
		all[at].heal(all[at].i)
		b.noteHealed(all[at].name)
	}
}

// disturbClustering stops and starts clustering and kills the manager until ctx ends. Afterwards clustering is
// active and a manager runs.
func (b *faultInjector) disturbClustering(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	set := func(name, value string) {
		if err := b.cluster.AnnotateMySQLCluster(t.Context(), name, value); err != nil {
			t.Error(err)
		}
	}
	annotate := func(value string) { set(mocov1beta2.ClusteringStoppedAnnotation, value) }
	for ctx.Err() == nil {
		pauseRandomly(ctx, random, 0, 8*time.Second)
		long := 6 * time.Second
		if random.IntN(6) == 0 {
			long = 20 * time.Second // A stop takes less than this to become effective.
		}
		stops, kills := random.IntN(3) > 0, random.IntN(2) == 0
		if stops {
			b.noteFault("clustering stopped")
			annotate("true")
			if random.IntN(3) == 0 { // The stop expires, unless it is removed before.
				b.noteFault("stop with an end")
				set(torporv1alpha1.UntilAnnotation, time.Now().Add(long/2).UTC().Format(time.RFC3339))
				b.noteHealed("stop with an end")
			}
			pauseRandomly(ctx, random, 0, time.Second)
		}
		if kills {
			b.noteFault("kill -9 of the manager")
			b.manager.KillAtOnce(t)
			pauseRandomly(ctx, random, 0, 3*time.Second)
		}
		if stops && random.IntN(2) == 0 {
			pauseRandomly(ctx, random, 0, long)
			annotate("")
			b.noteHealed("clustering stopped")
			stops = false
		}
		if kills {
			b.said += b.manager.LastOutput()
			b.manager = startManager(t, b.cluster)
			b.noteHealed("kill -9 of the manager")
		}
		if stops {
			pauseRandomly(ctx, random, 0, long)
			annotate("")
			b.noteHealed("clustering stopped")
		}
	}
}

// runGrantRound creates a user in the primary, as an administrator, while all replicas restart. The statement waits
// for a replica, and has locks that each login needs.
func (b *faultInjector) runGrantRound(t *testing.T, random *rand.Rand) {
	t.Helper()
	const name = "GRANT while all replicas restart"
	primary := primaryIndex(t, b.cluster)
	db := mysqlpods.OpenSession(t, b.cluster.Servers[primary].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	ctx, cancel := context.WithTimeout(t.Context(), settling)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return // The cluster has not recovered from the previous round.
	}
	b.noteFault(name)
	for i := range b.size {
		if i != primary {
			b.killServer(t, i)
		}
	}
	granted, statement := make(chan struct{}), fmt.Sprintf("create user 'u%d'@'%%' identified by 'x'", random.Uint64())
	go func() {
		defer close(granted)
		_, _ = db.ExecContext(context.WithoutCancel(ctx), statement) // The statement waits, or is killed.
		_ = db.Close()
	}()
	pauseRandomly(t.Context(), random, 500*time.Millisecond, 3*time.Second)
	for i := range b.size {
		if i != primary {
			b.startServer(t, i)
		}
	}
	b.noteHealed(name)
	if isClosedWithin(granted, livenessTimeout) {
		return
	}
	// A manager that starts during the wait cannot log in to end it, but all logins of the liveness probe fail.
	const restart = "restart by the liveness probe"
	b.noteFault(restart)
	b.killServer(t, primary)
	b.startServer(t, primary)
	b.noteHealed(restart)
	if !isClosedWithin(granted, finalRecovery) {
		t.Errorf("a statement that waited for replicas hangs for %s after its server has started again", finalRecovery)
	}
}

func isClosedWithin(done <-chan struct{}, long time.Duration) bool {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (b *faultInjector) killServer(t *testing.T, i int) {
	t.Helper()
	b.cluster.Servers[i].KillAtOnce(t)
	b.cluster.Network.CloseLink(i)
}

// pauseRandomly waits for a random time between two bounds, or until ctx ends.
func pauseRandomly(ctx context.Context, random *rand.Rand, least, most time.Duration) {
	timer := time.NewTimer(least + time.Duration(random.Int64N(int64(most-least))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
