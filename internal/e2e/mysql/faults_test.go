// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

// operatePause is how long a person waits for what became of the last attempt.
const operatePause = 30 * time.Second

// faultKind is something that befalls an instance, and its end.
type faultKind struct {
	name         string
	strike, heal func(i int)
}

// faultInjector breaks things at random: instances one or two at a time, and beside it, whatever happens there, clustering.
type faultInjector struct {
	cluster *mysqlpods.PodCluster
	manager *testenv.Process
	// said is what earlier managers have said.
	said string

	// operated is when a person has last helped an instance.
	operated [size]time.Time

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

// listActive returns what is broken at the moment.
func (b *faultInjector) listActive() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.active)
}

func (b *faultInjector) listFaults(t *testing.T) []faultKind {
	t.Helper()
	kill := func(i int) {
		b.cluster.Servers[i].KillAtOnce(t)
		b.cluster.Network.CloseLink(i)
	}
	start := func(i int) { b.startServer(t, i) }
	replace := func(i int) {
		kill(i)
		if err := b.cluster.ReplacePod(t.Context(), i); err != nil {
			t.Error(err)
		}
	}
	cut := func(how mysqlpods.CutMode) func(int) { return func(i int) { b.cluster.Network.CutOff(i, how) } }
	return []faultKind{
		{"kill -9 of the %s", kill, start},
		{"kill -9 of the %s", kill, start},
		{"%s cut off, silent", cut(mysqlpods.DropPackets), b.cluster.Network.HealCut},
		{"%s cut off, silent", cut(mysqlpods.DropPackets), b.cluster.Network.HealCut},
		{"%s cut off, reset", cut(mysqlpods.ResetConnections), b.cluster.Network.HealCut},
		{"Pod of the %s replaced", replace, start},
	}
}

func (b *faultInjector) startServer(t *testing.T, i int) {
	t.Helper()
	b.cluster.Servers[i].StartAndWait(t)
	if err := b.cluster.Network.OpenLink(t.Context(), i); err != nil {
		t.Error(err)
	}
}

// runRound breaks one or two instances and heals them.
func (b *faultInjector) runRound(t *testing.T, random *rand.Rand) {
	t.Helper()
	primary := primaryIndex(t, b.cluster)
	targets := random.Perm(size)[:1]
	switch {
	case random.IntN(5) == 0:
		targets = random.Perm(size)[:2]
	case random.IntN(2) == 0:
		targets = []int{primary}
	}
	type struck struct {
		faultKind
		i int
	}
	var all []struck
	faults := b.listFaults(t)
	for _, i := range targets {
		f := faults[random.IntN(len(faults))]
		f.name = fmt.Sprintf(f.name, map[bool]string{true: "primary", false: "replica"}[i == primary])
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

// disturbClustering stops and starts clustering, and kills the manager, until ctx ends; then clustering is active and a manager runs.
func (b *faultInjector) disturbClustering(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	annotate := func(value string) {
		if err := b.cluster.AnnotateMySQLCluster(t.Context(), mocov1beta2.ClusteringStoppedAnnotation, value); err != nil {
			t.Error(err)
		}
	}
	for ctx.Err() == nil {
		pauseRandomly(ctx, random, 0, 8*time.Second)
		long := 6 * time.Second
		if random.IntN(6) == 0 {
			long = 20 * time.Second // Longer than a stop may take to be reached.
		}
		stops, kills := random.IntN(3) > 0, random.IntN(2) == 0
		if stops {
			b.noteFault("clustering stopped")
			annotate("true")
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

// repairErrantReplicas is what the documentation asks a person to do: an errant replica gets an empty volume and is cloned anew.
func (b *faultInjector) repairErrantReplicas(t *testing.T) {
	t.Helper()
	cluster, err := b.cluster.GetMySQLCluster(t.Context())
	if err != nil || checkCondition(t.Context(), b.cluster, mocov1beta2.AvailableCondition, "True Degraded") != nil {
		return
	}
	for _, i := range cluster.Status.ErrantReplicaList {
		if i == cluster.Status.CurrentPrimaryIndex || time.Since(b.operated[i]) < operatePause {
			continue
		}
		b.operated[i] = time.Now()
		b.noteFault("errant replica cloned anew")
		b.cluster.Servers[i].WipeData(t)
		b.cluster.Network.CloseLink(i)
		if err := b.cluster.ReplacePod(t.Context(), i); err != nil {
			t.Error(err)
		}
		b.startServer(t, i)
		b.noteHealed("errant replica cloned anew")
	}
}

// pauseRandomly waits for a random while between two bounds, or until ctx ends.
func pauseRandomly(ctx context.Context, random *rand.Rand, least, most time.Duration) {
	timer := time.NewTimer(least + time.Duration(random.Int64N(int64(most-least))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
