// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	progressPace = 5 * time.Second
	shownRows    = 10
	healthyPace  = 500 * time.Millisecond
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
	if os.Getenv("TORPOR_SOAK") == "" {
		t.Skip("TORPOR_SOAK is not set: expected the duration, such as 20m; run make soak-mysql")
	}
	long, err := time.ParseDuration(os.Getenv("TORPOR_SOAK"))
	if err != nil {
		t.Fatalf("TORPOR_SOAK: expected a duration such as 20m: %v", err)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TORPOR_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TORPOR_SEED: expected a number: %v", err)
		}
	}
	t.Logf("seed %d (TORPOR_SEED), for %s", seed, long)
	steps := listScalings()
	first, most := steps[0].size, slices.MaxFunc(steps, func(a, b scaling) int { return cmp.Compare(a.size, b.size) }).size
	cluster, manager := startHealthyCluster(t, first, mysqlpods.ClusterOptions{IsLinked: true, VolumeMegabytes: soakVolume, LaterPods: most - first})
	testenv.ExpectNoError(t, cluster.AnnotateMySQLCluster(t.Context(), mocov1beta2.RecloneAnnotation, mocov1beta2.RecloneErrant))
	b := &faultInjector{cluster: cluster, manager: manager, size: first, scalings: steps[1:], counts: map[string]int{}}
	l := newLedger()
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

func (b *faultInjector) runSoak(t *testing.T, l *ackLedger, long time.Duration, found *soakResult) {
	t.Helper()
	writing, stopWriting := context.WithCancel(t.Context())
	breaking, stopBreaking := context.WithTimeout(t.Context(), long)
	defer stopBreaking()
	written := startWriters(writing, t, b.cluster, l)
	var beside sync.WaitGroup
	beside.Go(func() { b.disturbClustering(breaking, t, rand.New(rand.NewPCG(found.Seed, 1))) })
	beside.Go(func() { b.logProgress(breaking, t, l) })
	beside.Go(func() { found.TwoWritableLooks = countTwoWritable(breaking, t, b.cluster) })
	random := rand.New(rand.NewPCG(found.Seed, 0))
	for breaking.Err() == nil {
		pauseRandomly(breaking, random, 0, 3*time.Second)
		b.scaleWhenDue(t, l.elapsed().Seconds()/long.Seconds())
		b.runRound(t, random)
		if random.IntN(3) > 0 && breaking.Err() == nil {
			b.waitUntilRecovered(t, min(recovery, long-l.elapsed()))
		}
	}
	b.scaleWhenDue(t, 1)
	beside.Wait()
	// Continue to write for some time after all faults have ended.
	pauseRandomly(t.Context(), random, writePatience, 2*writePatience)
	stopWriting()
	written()
	found.Seconds = l.elapsed().Seconds()
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

func (b *faultInjector) logProgress(ctx context.Context, t *testing.T, l *ackLedger) {
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
		l.mu.Lock()
		last := time.Duration(0)
		if n := len(l.acks); n > 0 {
			last = l.acks[n-1].end
		}
		t.Logf("%4.0fs  acknowledged %d, refused %d, promotions %d, last acknowledgement %.1fs ago, broken %s, %s",
			l.elapsed().Seconds(), len(l.acks), l.refused, len(l.promotions)-1, (l.elapsed() - last).Seconds(), b.listActive(), state)
		l.mu.Unlock()
	}
}

// countTwoWritable counts the polls at which two servers allow clients to write.
func countTwoWritable(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster) int {
	t.Helper()
	count := 0
	var servers []*sql.DB
	for _, s := range c.Servers {
		db := openSession(t, s.Address, mysqlpods.RootUser, mysqlpods.RootPassword)
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

func (found *soakResult) judgeRows(t *testing.T, c *mysqlpods.PodCluster, l *ackLedger) {
	t.Helper()
	waitUntilCaughtUp(t, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	found.AcknowledgedRows, found.RefusedRows, found.Promotions = len(l.acks), l.refused, len(l.promotions)-1
	found.DualWritableMoments = dualMoments(l.acks, l.promotions)
	found.LongestSilence = longestSilence(l.acks)
	lost, sums := map[int64]bool{}, map[string]bool{}
	for i := range c.Servers {
		held, err := listRows(t, c, i)
		if err != nil {
			t.Errorf("read the rows of instance %d: %v", i, err)
		}
		for _, a := range l.acks {
			if held[a.id] {
				continue
			}
			if lost[a.id] = true; len(lost) <= shownRows {
				t.Logf("row %d, acknowledged by instance %d at %s, is not on instance %d", a.id, a.server, a.end, i)
			}
		}
		sum, err := query(t, c, i, "select concat(count(*), ' ', bit_xor(crc32(concat(id, v)))) from app.rows_of")
		if err != nil {
			t.Errorf("sum the rows of instance %d: %v", i, err)
		}
		sums[sum] = true
	}
	found.LostRows, found.EqualRows = len(lost), len(sums) == 1
	if !found.EqualRows {
		t.Errorf("expected equal rows, found the sums %v", sums)
	}
}

// longestSilence returns the longest time in seconds without any of these acknowledgements.
func longestSilence(acks []acknowledgement) float64 {
	longest, last := time.Duration(0), time.Duration(0)
	for _, a := range acks {
		longest, last = max(longest, a.end-last), max(last, a.end)
	}
	return longest.Seconds()
}

// waitUntilCaughtUp waits until all instances have executed the same transactions and have no clients. A healthy
// replica may still lag, and a statement continues after its client has disconnected.
func waitUntilCaughtUp(t *testing.T, c *mysqlpods.PodCluster) {
	t.Helper()
	const state = "select concat(@@gtid_executed, ' and clients: ', (select count(*) from performance_schema.processlist where user = '" + mysqlpods.AppUser + "'))"
	states := map[string]bool{}
	for began := time.Now(); time.Since(began) < finalRecovery; sleep(t, healthyPace) {
		clear(states)
		idle := 0
		for i := range c.Servers {
			found, err := query(t, c, i, state)
			states[fmt.Sprint(found, err)] = true
			if err == nil && strings.HasSuffix(found, " 0") {
				idle++
			}
		}
		if len(states) == 1 && idle == len(c.Servers) {
			return
		}
	}
	t.Logf("the instances have not executed the same transactions after %s, or have clients: %v", finalRecovery, slices.Collect(maps.Keys(states)))
}

func listRows(t *testing.T, c *mysqlpods.PodCluster, i int) (map[int64]bool, error) {
	t.Helper()
	db := openSession(t, c.Servers[i].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	defer func() { _ = db.Close() }() // An error from Close does not lose rows.
	list, err := db.QueryContext(t.Context(), "select id from app.rows_of")
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	defer func() { _ = list.Close() }() // list.Err returns the error.
	held := map[int64]bool{}
	for list.Next() {
		var id int64
		if err := list.Scan(&id); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		held[id] = true
	}
	return held, list.Err()
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
	db := openSession(t, b.cluster.Servers[primary].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	ctx, cancel := context.WithTimeout(t.Context(), writePatience)
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

const (
	// writePace is the interval of a client's writes.
	writePace = 25 * time.Millisecond
	// writePatience is a client's time limit for an acknowledgement.
	writePatience = 5 * time.Second
	// lookPace is the poll interval of the primary's label.
	lookPace = 50 * time.Millisecond
	// remote is the node of clients that connect to all instances by the network.
	remote = -1
)

func (l *ackLedger) followPrimary(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster) {
	t.Helper()
	tick := time.NewTicker(lookPace)
	defer tick.Stop()
	for {
		label, failed := c.FindPrimaryPod(ctx) // Read the label first: it is set after the promotion, so clients cannot follow it before the promotion is recorded.
		cluster, err := c.GetMySQLCluster(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil || failed != nil:
			t.Errorf("look for the primary: %v, %v", err, failed)
		default:
			l.notePrimary(cluster.Status.CurrentPrimaryIndex, label)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// rowWriter writes rows with unique keys through the instance that has the label of the primary. A writer on the
// node of an instance can connect to this instance even when the node is disconnected, but then it does not observe
// changes to the label.
type rowWriter struct {
	number, node int
	cluster      *mysqlpods.PodCluster
	ledger       *ackLedger

	db     *sql.DB
	target string
	saw    int
}

func (c *rowWriter) writeUntil(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(writePace)
	defer tick.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.disconnect()
			return
		}
		server := c.findPrimary()
		if server < 0 {
			continue
		}
		c.connectTo(t, server)
		a := acknowledgement{id: int64(c.number)<<40 | n, server: server, begin: c.ledger.elapsed()}
		if err := c.writeRow(ctx, a.id); err != nil {
			if ctx.Err() == nil {
				c.ledger.addRefused()
			}
			c.disconnect()
			continue
		}
		a.end = c.ledger.elapsed()
		c.ledger.addAck(a)
	}
}

// findPrimary returns the primary that this client can find.
func (c *rowWriter) findPrimary() int {
	if c.node == remote || !c.cluster.Network.IsCut(c.node) {
		c.saw = c.ledger.labelledServer()
	}
	return c.saw
}

func (c *rowWriter) connectTo(t *testing.T, server int) {
	t.Helper()
	address := c.cluster.PodAddresses()[server]
	if server == c.node {
		address = c.cluster.Servers[server].Address
	}
	if c.db != nil && c.target == address {
		return
	}
	c.disconnect()
	c.db, c.target = openSession(t, address, mysqlpods.AppUser, mysqlpods.AppPassword), address
}

func (c *rowWriter) disconnect() {
	if c.db != nil {
		_ = c.db.Close() // The connection is no longer used, so an error has no effect.
		c.db = nil
	}
}

func (c *rowWriter) writeRow(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	_, err := c.db.ExecContext(ctx, "insert into app.rows_of values (?, @@server_uuid)", id)
	return err
}

// startWriters starts writers that run until ctx ends: as many remote ones as instances, and one on each node.
func startWriters(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster, l *ackLedger) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { l.followPrimary(ctx, t, c) })
	for i := range c.Servers {
		for _, one := range []*rowWriter{{number: 2*i + 1, node: remote}, {number: 2*i + 2, node: i}} {
			one.cluster, one.ledger, one.saw = c, l, -1
			all.Go(func() { one.writeUntil(ctx, t) })
		}
	}
	return all.Wait
}

// lateNews is the maximum delay from a promotion to its observation.
const lateNews = time.Second

// acknowledgement is a row whose commit was acknowledged to a client. Times are relative to the beginning of the
// run.
type acknowledgement struct {
	id         int64
	server     int
	begin, end time.Duration
}

type promotion struct {
	at     time.Duration
	server int
}

// ackLedger records the acknowledgements that clients received, and the promotions.
type ackLedger struct {
	began time.Time

	mu         sync.Mutex
	acks       []acknowledgement
	promotions []promotion
	refused    int
	label      int
}

func newLedger() *ackLedger { return &ackLedger{began: time.Now(), label: -1} }

func (l *ackLedger) elapsed() time.Duration { return time.Since(l.began) }

func (l *ackLedger) addAck(a acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

func (l *ackLedger) addRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

func (l *ackLedger) notePrimary(primary, label int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.label = label
	if n := len(l.promotions); n == 0 || l.promotions[n-1].server != primary {
		l.promotions = append(l.promotions, promotion{at: l.elapsed(), server: primary})
	}
}

func (l *ackLedger) labelledServer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.label
}

// dualMoments counts the moments at which two writable primaries acknowledged commits. Such a moment is an
// acknowledgement by a server that is not the primary of the status. The acknowledged statement began after the primary
// of the status had acknowledged its first commit as the primary. The acknowledgement does not count if its server
// becomes the primary within lateNews. All such acknowledgements of one server under the same primary are one moment. A
// moment counts whether or not a row is lost.
func dualMoments(acks []acknowledgement, promotions []promotion) int {
	type moment struct{ reign, server int }
	firstAck := map[int]time.Duration{} // By promotion, the time of the primary's first acknowledgement.
	reigns := make([]int, len(acks))
	for i, a := range acks {
		r, _ := slices.BinarySearchFunc(promotions, a.begin, func(p promotion, at time.Duration) int { return cmp.Or(cmp.Compare(p.at, at), -1) })
		reigns[i] = r - 1
		if r == 0 || promotions[r-1].server != a.server {
			continue
		}
		if first, found := firstAck[r-1]; !found || a.end < first {
			firstAck[r-1] = a.end
		}
	}
	moments := map[moment]bool{}
	for i, a := range acks {
		r := reigns[i]
		if r < 0 || promotions[r].server == a.server {
			continue
		}
		first, served := firstAck[r]
		soon := slices.ContainsFunc(promotions[r+1:], func(p promotion) bool { return p.server == a.server && p.at <= a.end+lateNews })
		if served && a.begin > first && !soon {
			moments[moment{r, a.server}] = true
		}
	}
	return len(moments)
}

func TestDualMoments(t *testing.T) {
	reigns := []promotion{{0, 0}, {10 * time.Second, 1}, {20 * time.Second, 0}}
	at := func(server int, begin time.Duration) acknowledgement {
		return acknowledgement{server: server, begin: begin, end: begin + 10*time.Millisecond}
	}
	second := time.Second
	for name, c := range map[string]struct {
		acks []acknowledgement
		want int
	}{
		"acknowledgements of consecutive primaries do not count":                                 {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 21*second)}, 0},
		"an old primary that acknowledges before the new one does not count":                     {[]acknowledgement{at(0, second), at(0, 11*second), at(1, 12*second)}, 0},
		"an old primary that acknowledges after the new one counts as one dual-writable moment":  {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 12*second), at(1, 13*second)}, 1},
		"many acknowledgements of one old primary count as one dual-writable moment":             {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 13*second)}, 1},
		"a third server that acknowledges counts as another dual-writable moment":                {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(2, 13*second)}, 2},
		"an acknowledgement shortly before an observed promotion does not count":                 {[]acknowledgement{at(0, 9*second), at(1, 9500*time.Millisecond)}, 0},
		"statements that overlap a switchover do not count":                                      {[]acknowledgement{{server: 0, begin: 10500 * time.Millisecond, end: 12 * second}, at(1, 11*second)}, 0},
		"no acknowledgements: no dual-writable moment":                                           {nil, 0},
		"old primaries that acknowledge after two promotions count as two dual-writable moments": {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 21*second), at(1, 22*second)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dualMoments(c.acks, reigns); got != c.want {
				t.Errorf("expected %d moments, found %d", c.want, got)
			}
		})
	}
}
