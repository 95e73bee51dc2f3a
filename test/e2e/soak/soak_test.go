// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMain sets a logger for controller-runtime, without which its clients log warnings.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	// faultsOfRound is the number of faults before the users pause, and all objects must come to rest.
	faultsOfRound = 4
	// longestFault is the longest duration of a fault. It is longer than a Lease, so that the other replica becomes the
	// leader.
	longestFault = 75 * time.Second
	// longestCalm is the longest time between two faults.
	longestCalm = 10 * time.Second
	// restTimeout is the time limit for all objects to come to rest.
	restTimeout = 5 * time.Minute
	// restInterval is the interval of the polls for objects that are not at rest.
	restInterval = 500 * time.Millisecond
	// shownUnrested is the number of objects that the log names after a round.
	shownUnrested = 3
)

type soakResult struct {
	*verdicts

	Seed    uint64         `json:"seed"`
	Seconds float64        `json:"seconds"`
	Objects int            `json:"objects"`
	Intents int            `json:"intents"`
	Faults  map[string]int `json:"faults"`
	// Ended counts the managers that ended by themselves, such as after the loss of a Lease.
	Ended int64 `json:"ended"`
}

// TestSoak runs users and faults together, and expects that the oracle finds nothing.
func TestSoak(t *testing.T) {
	long, seed := testenv.ReadSoakOptions(t, "all")
	withServers := readSize(t, "TORPOR_SOAK_REAL_DATABASES", countRealDatabases())
	w := newWorld(t, sizes{
		clusters: readSize(t, "TORPOR_SOAK_CLUSTERS", 60), deployments: readSize(t, "TORPOR_SOAK_DEPLOYMENTS", 30), apps: readSize(t, "TORPOR_SOAK_APPS", 40),
		databases: max(withServers, readSize(t, "TORPOR_SOAK_DATABASES", 6)), realDatabases: withServers, scheduled: 6,
	})
	s := &soak{world: w, users: &users{world: w}, faults: map[string]int{}}
	s.replicas = w.startReplicas(t)
	w.startService(t, s.replicas)
	w.createObjects(t)
	s.awaitRest(t)
	writing, stopWriting := context.WithCancel(t.Context())
	defer stopWriting()
	written := w.startWriters(writing, t)
	s.run(t, seed, long)
	stopWriting()
	written()
	s.users.startAllDatabases(t.Context(), t)
	s.awaitRest(t)
	w.judgeDatabases(t)
	var outputs []string
	for _, r := range s.replicas {
		outputs = append(outputs, r.listOutputs()...)
	}
	w.found.Secrets = w.countSecrets(t, outputs...)
	s.save(t, seed, long, outputs)
}

// readSize returns a number of objects from an environment variable.
func readSize(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	testenv.ExpectNoError(t, err)
	return n
}

type soak struct {
	*world
	users    *users
	replicas []*replica
	// managerDeck, cloudDeck and serverDeck contain the next kinds of faults, and faults counts the past ones.
	managerDeck, cloudDeck []faultKind
	serverDeck             []serverFault
	faults                 map[string]int
	// ended counts the managers that ended by themselves.
	ended atomic.Int64
}

func (s *soak) run(t *testing.T, seed uint64, long time.Duration) {
	t.Helper()
	end := time.Now().Add(long)
	s.createSlumbers(t, end)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	beside.Go(func() { s.watchStatuses(ctx, t) })
	beside.Go(func() { s.restartEnded(ctx, t) })
	acts := []func(context.Context, *testing.T, *rand.Rand){s.users.changeCluster, s.users.changeDeployment, s.users.changeApp}
	if s.sizes.databases > 0 {
		acts = append(acts, s.users.changeDatabase)
	}
	for i, act := range acts {
		beside.Go(func() { s.users.run(ctx, t, rand.New(rand.NewPCG(seed, uint64(i+1))), act) })
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for n := 1; time.Now().Before(end); n++ {
		s.strike(t, random)
		if n%faultsOfRound == 0 {
			s.endRound(t)
		}
		pause(t.Context(), random, longestCalm)
	}
	s.endRound(t)
}

// endRound holds the users, and waits until all objects are at rest.
func (s *soak) endRound(t *testing.T) {
	t.Helper()
	s.users.hold.Lock()
	defer s.users.hold.Unlock()
	s.awaitRest(t)
}

// awaitRest waits until each object has reached its last intent.
func (s *soak) awaitRest(t *testing.T) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(restInterval)
	defer tick.Stop()
	var last []string
	for {
		left, err := s.listUnrested(t.Context(), s.cloud.ListInstances(t, ""))
		rested := time.Since(began)
		if err == nil && len(left) == 0 {
			s.found.mu.Lock()
			defer s.found.mu.Unlock()
			s.found.RestSeconds = append(s.found.RestSeconds, rested.Seconds())
			t.Logf("all objects are at rest after %.1f s; %d orders, %d wrong, %.0f lie-seconds; the last: %q", rested.Seconds(), s.found.Orders, s.found.WrongOrders, s.found.LieSeconds, last[:min(len(last), shownUnrested)])
			return
		}
		last = left
		if rested > restTimeout {
			s.found.mu.Lock()
			defer s.found.mu.Unlock()
			s.found.LostIntents += max(len(left), 1)
			s.found.note("not at rest after %s (%v):\n\t%s", restTimeout, err, strings.Join(left, "\n\t"))
			return
		}
		<-tick.C
	}
}

// pause waits for a random time.
func pause(ctx context.Context, random *rand.Rand, longest time.Duration) {
	timer := time.NewTimer(time.Duration(random.Int64N(int64(longest))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// faultKind is a kind of fault. The faults of managers strike one manager.
type faultKind struct {
	name         string
	strike, heal func(t *testing.T, r *replica)
}

func (s *soak) listManagerFaults() []faultKind {
	noRepair := func(*testing.T, *replica) {}
	start := func(t *testing.T, r *replica) { t.Helper(); s.start(t, r) }
	kill := func(t *testing.T, r *replica) { t.Helper(); r.stop(t, true) }
	freeze := func(t *testing.T, r *replica) { t.Helper(); r.freeze(t) }
	thaw := func(t *testing.T, r *replica) { t.Helper(); r.thaw(t) }
	both := func(do func(*testing.T, *replica)) func(*testing.T, *replica) {
		return func(t *testing.T, r *replica) {
			t.Helper()
			for _, one := range s.replicas {
				if one.deployment == r.deployment {
					do(t, one)
				}
			}
		}
	}
	return []faultKind{
		{"kill -9 of a manager", kill, start},
		{"kill -9 of both managers of a Deployment", both(kill), both(start)},
		{"restart of a manager", func(t *testing.T, r *replica) { t.Helper(); r.stop(t, false) }, start},
		{"rolling update of a Deployment", both(func(t *testing.T, r *replica) { t.Helper(); r.stop(t, false); s.start(t, r); r.waitUntilReady(t) }), noRepair},
		{"freeze of a manager", freeze, thaw},
		{"freeze of both managers of a Deployment", both(freeze), both(thaw)},
		{"cut between a manager and the API server", func(_ *testing.T, r *replica) { r.link.setCut(true) }, func(_ *testing.T, r *replica) { r.link.setCut(false) }},
		{
			"cut between both managers of a Deployment and the API server",
			both(func(_ *testing.T, r *replica) { r.link.setCut(true) }), both(func(_ *testing.T, r *replica) { r.link.setCut(false) }),
		},
	}
}

func (s *soak) listCloudFaults() []faultKind {
	clearFaults := func(t *testing.T, _ *replica) { t.Helper(); s.cloud.ClearFaults(t) }
	inject := func(f testenv.CloudFault) func(*testing.T, *replica) {
		return func(t *testing.T, _ *replica) { t.Helper(); s.cloud.InjectFault(t, f) }
	}
	return []faultKind{
		{"the cloud throttles calls", inject(testenv.CloudFault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}), clearFaults},
		{"the cloud answers late", inject(testenv.CloudFault{Delay: "5s"}), clearFaults},
		{"the cloud loses starts", inject(testenv.CloudFault{Kind: "lostStart"}), clearFaults},
	}
}

// draw returns the next kind of a shuffled deck. Each kind occurs once before any kind occurs again.
func draw[K any](random *rand.Rand, deck *[]K, list func() []K) K {
	if len(*deck) == 0 {
		*deck = list()
		random.Shuffle(len(*deck), func(i, j int) { (*deck)[i], (*deck)[j] = (*deck)[j], (*deck)[i] })
	}
	kind := (*deck)[0]
	*deck = (*deck)[1:]
	return kind
}

// strike injects a fault of the managers, and often one of the cloud and one of a database's server, and repairs them
// after a random time.
func (s *soak) strike(t *testing.T, random *rand.Rand) {
	t.Helper()
	r := s.replicas[random.IntN(len(s.replicas))]
	kinds := []faultKind{draw(random, &s.managerDeck, s.listManagerFaults)}
	if random.IntN(2) == 0 {
		kinds = append(kinds, draw(random, &s.cloudDeck, s.listCloudFaults))
	}
	for _, kind := range kinds {
		s.noteFault(t, kind.name, r.name)
		kind.strike(t, r)
	}
	healServer := func() {}
	if len(s.databases) > 0 && random.IntN(2) == 0 {
		healServer = s.strikeServer(t, random)
	}
	pause(t.Context(), random, longestFault)
	for _, kind := range kinds {
		kind.heal(t, r)
	}
	healServer()
}

func (s *soak) noteFault(t *testing.T, kind, of string) {
	t.Helper()
	s.faults[kind]++
	t.Logf("%s: %s (%s)", time.Now().Format(time.TimeOnly), kind, of)
}

// save writes the result and the logs of the managers, and fails the test if the oracle has found a defect.
func (s *soak) save(t *testing.T, seed uint64, long time.Duration, outputs []string) {
	t.Helper()
	intents := 0
	for name := range s.intents.of {
		intents += s.intents.count(name)
	}
	s.found.mu.Lock()
	defer s.found.mu.Unlock()
	testenv.SaveFigures(t, "soak.json", soakResult{
		verdicts: s.found, Seed: seed, Seconds: long.Seconds(), Objects: s.sizes.count(), Intents: intents, Faults: s.faults, Ended: s.ended.Load(),
	})
	for _, finding := range s.found.findings {
		t.Log(finding)
	}
	if !s.found.isClean() {
		t.Errorf("expected no wrong order, wrong act, lie, lost intent, lost row or secret; seed %d", seed)
	}
	if intents == 0 || len(s.faults) == 0 || s.found.Orders == 0 {
		t.Error("expected intents, faults and orders; the run proves nothing")
	}
	if dir := os.Getenv("TORPOR_BENCH_DIR"); dir != "" {
		for i, text := range outputs {
			testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("soak-manager-%d.log", i)), []byte(text), 0o600))
		}
	}
}
