// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// usualHistories is the number of random histories, and allHistories that of a full run. At most
	// historiesTogether of them share an API server, a cloud and a manager.
	usualHistories, allHistories, historiesTogether = 20, 400, 100
	// historySteps is the number of steps of a history, one each second.
	historySteps = 16
	// seedVariable sets the seed of the random histories.
	seedVariable = "TORPOR_SEED"
	// membersOfGroup is the number of machines in the group of a grouped cluster.
	membersOfGroup = 2
)

// groupHistory is a cluster with random changes by users.
type groupHistory struct {
	*groupedCluster

	random *rand.Rand
	// modes are the values that users set in the annotation; an empty value removes it.
	modes []string
	log   []string
}

// groupHistoryKinds returns, for each kind of history, the values that users set in the annotation. The last kind has a
// node group of EKS.
func groupHistoryKinds() [][]string {
	const suspend, scale, invalid = hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero, "scale-to-one"
	return [][]string{{suspend, suspend, "", invalid}, {""}, {suspend, scale, ""}, {scale, scale, ""}}
}

func (e *env) newGroupHistory(t *testing.T, seed uint64, n int) *groupHistory {
	t.Helper()
	kinds := groupHistoryKinds()
	h := &groupHistory{random: rand.New(rand.NewPCG(seed, uint64(n))), modes: kinds[n%len(kinds)]}
	if n%len(kinds) == len(kinds)-1 {
		h.groupedCluster = e.newNodeGroupCluster(t, e.cloud)
	} else {
		h.groupedCluster = e.newGroupedCluster(t, h.modes[0])
	}
	if h.modes[0] == "" {
		h.annotate(t, hivev1.MachineGroupsAnnotation, "")
	}
	return h
}

// annotate sets an annotation as a user, or removes it.
func (h *groupHistory) annotate(t *testing.T, key, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = strconv.Quote(value)
	}
	h.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, text))
}

// step does one random change by a user, or none.
func (h *groupHistory) step(t *testing.T) {
	t.Helper()
	change := h.random.IntN(16)
	h.log = append(h.log, strconv.Itoa(change))
	switch change {
	case 0, 1, 2, 3:
		h.setPowerState(t, hivev1.PowerStateHibernating)
	case 4, 5:
		h.setPowerState(t, hivev1.PowerStateRunning)
	case 6, 7:
		h.annotate(t, hivev1.MachineGroupsAnnotation, h.modes[h.random.IntN(len(h.modes))])
	case 8:
		h.annotate(t, hivev1.PowerStatePauseAnnotation, "true")
	case 9, 10:
		h.annotate(t, hivev1.PowerStatePauseAnnotation, "")
	case 11: // This process was active before the history, and replaces no machine.
		h.cloud.CallAutoScaling(t, "ResumeProcesses", h.group, "ScalingProcesses.member.1", "AlarmNotification")
	default: // The cluster is left alone.
	}
}

// isOver returns an error until the cluster runs as before the history.
func (h *groupHistory) isOver(t *testing.T) error {
	t.Helper()
	if err := h.hasCondition(settledCondition(hivev1.PowerStateRunning)); err != nil {
		return fmt.Errorf("%s after %v: %w", h.infraID, h.log, err)
	}
	cd := h.history.newest()
	if meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterDegradedCondition) {
		return fmt.Errorf("%s after %v: it is degraded: %+v", h.infraID, h.log, cd.Status.Conditions)
	}
	if r := cd.Status.Hibernation; r != nil && len(r.MachineGroups) > 0 {
		return fmt.Errorf("%s after %v: expected no recorded group, found %+v", h.infraID, h.log, r.MachineGroups)
	}
	found := h.cloud.DescribeGroup(t, h.group)
	isAsBefore := fmt.Sprintf("%+v", found) == fmt.Sprintf("%+v", h.before)
	return testenv.ErrorIf(!isAsBefore, "%s after %v: expected the group %+v, found %+v", h.infraID, h.log, h.before, found)
}

// counts returns how many hibernations began, and how many of these have scaled the group to zero.
func (h *groupHistory) counts() (hibernations, scaled int) {
	begun := map[int64]bool{}
	for _, cd := range h.history.all() {
		r := cd.Status.Hibernation
		if r == nil || len(r.MachineGroups) == 0 {
			continue
		}
		at := r.SleepStartedAt.Unix()
		begun[at] = begun[at] || r.MachineGroups[0].Mode == hivev1.MachineGroupsScaleToZero
	}
	for _, isScaled := range begun {
		if hibernations++; isScaled {
			scaled++
		}
	}
	return hibernations, scaled
}

// check expects that machines were terminated only by the hibernations that scaled the group to zero. It returns the
// number of terminated machines and the number of hibernations.
func (h *groupHistory) check(t *testing.T) (terminated, hibernations int) {
	t.Helper()
	gone := h.terminated(t)
	hibernations, scaled := h.counts()
	if len(gone) > scaled*membersOfGroup || slices.Contains(gone, h.ids[0]) {
		t.Errorf("%s after %v: expected at most %d terminated machines, all of the group, found %v", h.infraID, h.log, scaled*membersOfGroup, gone)
	}
	if h.modes[0] == "" && hibernations > 0 {
		t.Errorf("%s after %v: expected no hibernation of a cluster whose group must not be held, found %d", h.infraID, h.log, hibernations)
	}
	return len(gone), hibernations
}

// newRandomKill returns a switch that kills its manager at a random action, before or after the action. mean is the
// mean number of actions before the kill.
func newRandomKill(random *rand.Rand, mean int) *killSwitch {
	lost := map[string]bool{}
	for _, act := range []string{"change groups", "stop", "start", statusAct} {
		lost[act] = random.IntN(2) == 0
	}
	isOfCloud := random.IntN(4) > 0
	return &killSwitch{lost: lost, killed: make(chan struct{}), spared: random.IntN(2 * mean), isOfCloud: isOfCloud}
}

// TestRandomGroupHistories runs random histories of clusters whose groups replace stopped machines at once, and kills
// their managers at random calls of the cloud. Only a full run has a new seed each time. TORPOR_SEED repeats the
// changes of a run, but not their timing.
func TestRandomGroupHistories(t *testing.T) {
	t.Parallel()
	count, seed := testenv.CountRepetitions(usualHistories, allHistories), uint64(1)
	if count == allHistories {
		seed = rand.Uint64N(1_000_000)
	}
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		testenv.ExpectNoError(t, err)
	}
	t.Logf("%d histories; repeat them with %s=%d", count, seedVariable, seed)
	for first := 0; first < count; first += historiesTogether {
		t.Run(fmt.Sprintf("from %d", first), func(t *testing.T) { runGroupHistories(t, seed, first, min(count-first, historiesTogether)) })
	}
}

func runGroupHistories(t *testing.T, seed uint64, first, count int) {
	t.Helper()
	e := newEnv(t)
	before := e.readProcessorTimes(t)
	e.cloud.SetLatency(t, time.Millisecond, time.Millisecond)
	var all []*groupHistory
	for n := range count {
		all = append(all, e.newGroupHistory(t, seed, first+n))
	}
	e.cloud.SetLatency(t, machineLatency, machineLatency)
	managers := &mortalManagers{env: e, random: rand.New(rand.NewPCG(seed, uint64(first)+1<<32)), mean: max(count/4, 1)}
	managers.replaceKilled(t)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range historySteps {
		for _, h := range all {
			h.step(t)
			managers.replaceKilled(t)
		}
		<-tick.C
	}
	for _, h := range all {
		h.annotate(t, hivev1.PowerStatePauseAnnotation, "")
		h.setPowerState(t, hivev1.PowerStateRunning)
	}
	managers.isEnding = true
	for _, h := range all {
		testenv.Eventually(t, h.infraID+" runs as before its history", func() error {
			managers.replaceKilled(t)
			return h.isOver(t)
		})
	}
	terminated, hibernations, used := 0, 0, e.readProcessorTimes(t)
	for _, h := range all {
		gone, begun := h.check(t)
		terminated, hibernations = terminated+gone, hibernations+begun
	}
	t.Logf("%d histories with %d hibernations and %d killed managers", count, hibernations, managers.killed)
	t.Logf("groups that were scaled to zero have terminated %d machines, and other groups none", terminated)
	t.Logf("processor time: %s of this process, %s of the API server, %s of the cloud", used[0]-before[0], used[1]-before[1], used[2]-before[2])
	if hibernations < count/2 || managers.killed == 0 {
		t.Errorf("expected at least %d hibernations and a killed manager, found %d and %d", count/2, hibernations, managers.killed)
	}
}

// readProcessorTimes returns the CPU times of this process, of the API server and of the cloud.
func (e *env) readProcessorTimes(t *testing.T) [3]time.Duration {
	t.Helper()
	var used [3]time.Duration
	for i, pid := range []int{os.Getpid(), e.PID(), e.cloud.PID()} {
		used[i] = testenv.ReadProcessorTime(t, pid)
	}
	return used
}

// mortalManagers are managers that run one after another.
type mortalManagers struct {
	env    *env
	random *rand.Rand
	// mean is the mean number of actions of a manager. It doubles with each manager once isEnding is true, so that the
	// clusters come to rest.
	mean     int
	isEnding bool
	kill     *killSwitch
	stop     func()
	killed   int
}

// replaceKilled starts a manager if none runs.
func (m *mortalManagers) replaceKilled(t *testing.T) {
	t.Helper()
	if m.kill != nil {
		select {
		case <-m.kill.killed:
			m.stop()
			if m.killed++; m.isEnding {
				m.mean *= 2
			}
		default:
			return
		}
	}
	m.kill = newRandomKill(m.random, m.mean)
	m.stop = m.env.startMortalManager(t, m.kill)
}
