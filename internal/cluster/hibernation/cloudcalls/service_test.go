// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	machineLatency = 20 * time.Second
	callLatency    = 200 * time.Millisecond
)

// batchCloud is a cloud in virtual time with reads that may lag. Accounts are named after the region.
type batchCloud struct {
	actuator.Actuator
	mu sync.Mutex
	// machines contains, by id, when each machine began to stop or start. Ids begin with the infraID of the cluster
	// and a dash.
	machines map[string]powerChange
	lag      time.Duration
	// looks counts the polls, and questions the checks of rights. ordered contains the number of machines of each
	// order. asked contains the time and the number of machines of each check of rights.
	looks, questions int
	ordered          []int
	asked            []rightsQuestion
	// hangs is the account whose calls return only when their context ends. throttles is the number of next calls that
	// are throttled.
	hangs     string
	throttles int
	// refusesOrders is the number of next orders that are throttled for all their machines.
	refusesOrders int
	// refused maps machines to the errors of their orders. denied contains the clusters that the account has no right
	// to stop.
	refused map[string]error
	denied  map[string]bool
	// groups maps each member to its group.
	groups map[string]string
	// broken is a cluster. Each poll that includes the cluster fails.
	broken string
	// mustRun reports whether a cluster should run when a stop is received. wrongStops counts stops of such clusters.
	mustRun    func(infraID string) bool
	wrongStops int
}

type powerChange struct {
	verb Verb
	at   time.Time
}

type rightsQuestion struct {
	at       time.Time
	machines int
}

func (c *batchCloud) Platform() string { return "test" }

func (c *batchCloud) AccountOf(_ context.Context, t actuator.Target) (string, error) {
	return t.Region, nil
}

func (c *batchCloud) call(ctx context.Context, t actuator.Target) error {
	wait := callLatency
	if c.hangs == t.Region {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return &actuator.Error{Class: actuator.Unreachable, Message: "it does not answer"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.throttles > 0 {
		c.throttles--
		return &actuator.Error{Class: actuator.Throttled, Message: "slow down"}
	}
	return nil
}

// countAgain returns and resets the number of polls. It also throttles the given number of next calls.
func (c *batchCloud) countAgain(throttles int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := c.looks
	c.looks, c.throttles = 0, throttles
	return looks
}

// change starts or stops a machine without an order.
func (c *batchCloud) change(id string, verb Verb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[id] = powerChange{verb, time.Now()}
}

func (c *batchCloud) stateAt(id string, now time.Time) actuator.MachineState {
	change, ok := c.machines[id]
	switch isOver := now.Sub(change.at) >= machineLatency; {
	case !ok || change.verb == StartVerb && isOver, change.verb == StopVerb && now.Before(change.at):
		return actuator.Running
	case change.verb == StopVerb && isOver, change.verb == StartVerb && now.Before(change.at):
		return actuator.Stopped
	case change.verb == StopVerb:
		return actuator.Stopping
	default:
		return actuator.Starting
	}
}

func (c *batchCloud) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	c.mu.Lock()
	c.looks++
	c.mu.Unlock()
	now := time.Now()
	if err := c.call(ctx, t); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(infraIDs, c.broken) {
		return nil, errors.New("a machine of " + c.broken + " is in an unknown state")
	}
	found := map[string][]actuator.Machine{}
	for _, infraID := range infraIDs {
		for i := range 2 {
			id := fmt.Sprintf("%s-%d", infraID, i)
			found[infraID] = append(found[infraID], actuator.Machine{ID: id, State: c.stateAt(id, now.Add(-c.lag)), Group: c.groups[id]})
		}
	}
	return found, nil
}

func (c *batchCloud) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	c.mu.Lock()
	c.questions++
	c.asked = append(c.asked, rightsQuestion{time.Now(), len(ids)})
	c.mu.Unlock()
	for _, id := range ids {
		if c.denied[id[:strings.LastIndex(id, "-")]] {
			return &actuator.Error{Class: actuator.PermissionDenied, Message: "no"}
		}
	}
	return c.call(ctx, t)
}

func (c *batchCloud) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return c.order(ctx, t, StopVerb, clusters)
}

func (c *batchCloud) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return c.order(ctx, t, StartVerb, clusters)
}

func (c *batchCloud) order(ctx context.Context, t actuator.Target, verb Verb, clusters [][]string) []error {
	errs := make([]error, len(clusters))
	for _, ids := range clusters {
		if verb == StopVerb && c.mustRun != nil && c.mustRun(ids[0][:strings.LastIndex(ids[0], "-")]) {
			c.mu.Lock()
			c.wrongStops++
			c.mu.Unlock()
		}
	}
	err := c.call(ctx, t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusesOrders > 0 {
		c.refusesOrders--
		err = &actuator.Error{Class: actuator.Throttled, Message: "slow down"}
	}
	c.ordered = append(c.ordered, len(slices.Concat(clusters...)))
	for i, ids := range clusters {
		errs[i] = err
		for _, id := range ids {
			if c.refused[id] != nil {
				errs[i] = c.refused[id]
			} else if err == nil {
				c.machines[id] = powerChange{verb, time.Now()}
			}
		}
	}
	return errs
}

// countOrderedMachines is safe to call while orders are sent.
func (c *batchCloud) countOrderedMachines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.machines)
}

// fleet is a service with a cloud and a queue of passes.
type fleet struct {
	t       *testing.T
	cloud   *batchCloud
	service *Service
	mu      sync.Mutex
	queue   []string
	running map[string]bool
}

// runFleet runs a test in virtual time.
func runFleet(t *testing.T, test func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, cloud: &batchCloud{machines: map[string]powerChange{}, refused: map[string]error{}, denied: map[string]bool{}}, running: map[string]bool{}}
		f.service = NewService(clock.RealClock{})
		f.service.Enqueue = func(name types.NamespacedName) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.queue = append(f.queue, name.Name)
		}
		f.service.MayStop = func(_ context.Context, name types.NamespacedName) (bool, error) { return !f.shouldRun(name.Name), nil }
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.service.Start(ctx) }()
		test(t, f)
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// shouldRun reads the spec on the hub.
func (f *fleet) shouldRun(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[name]
}

func (f *fleet) setRunning(name string, isRunning bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[name] = isRunning
}

// elapse advances the virtual time.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait() // Due work is finished, and its results may be read.
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// look reads a cluster as a pass does. account is the region.
func (f *fleet) look(name, account string) (Snapshot, bool) {
	return f.service.Look(f.t.Context(), Cluster{Name: named(name), Actuator: f.cloud, Target: actuator.Target{InfraID: name, Region: account}})
}

// take returns the enqueued clusters, sorted, and empties the queue.
func (f *fleet) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.queue
	f.queue = nil
	slices.Sort(taken)
	return taken
}

// fill reads clusters until all are known.
func (f *fleet) fill(count int) []string {
	f.t.Helper()
	const account = "a"
	var names []string
	for i := range count {
		name := fmt.Sprintf("%s-c%d", account, i)
		names = append(names, name)
		if _, isKnown := f.look(name, account); isKnown {
			f.t.Fatalf("%s is known before it was polled", name)
		}
		f.service.RefreshMachines(named(name))
	}
	elapse(time.Duration(1+count/maxLook) * 2 * time.Second)
	for _, name := range names {
		if seen, isKnown := f.look(name, account); !isKnown || !seen.IsAnswer || len(seen.Machines) != 2 {
			f.t.Fatalf("%s: found %+v, %t", name, seen, isKnown)
		}
	}
	return names
}

// await reads a cluster until its state is known.
func (f *fleet) await(name string) Snapshot {
	f.t.Helper()
	for range 10 {
		if seen, isKnown := f.look(name, "a"); isKnown {
			return seen
		}
		f.service.RefreshMachines(named(name))
		elapse(time.Second)
	}
	f.t.Fatalf("%s is not known", name)
	return Snapshot{}
}

func (f *fleet) stateOf(name string) string {
	seen, _ := f.look(name, "a")
	return stateOf(seen)
}

func states(name string, first, second actuator.MachineState) string {
	return fmt.Sprintf("%s-0 %s\n%s-1 %s\n", name, first, name, second)
}

// stop orders a stop of both machines of each cluster, and watches the cluster, as a pass does.
func (f *fleet) stop(names ...string) {
	for _, name := range names {
		f.service.Order(named(name), StopVerb, []string{name + "-0", name + "-1"}, 0)
		f.service.Watch(named(name), 2*time.Second)
	}
}

func TestAThousandClustersArePolledAndStoppedTogether(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(1000)
		if f.cloud.looks > 2 || len(f.take()) != 1000 {
			t.Errorf("%d polls", f.cloud.looks)
		}
		began := time.Now()
		f.stop(names...)
		stopped := map[string]bool{}
		for len(stopped) < len(names) && time.Since(began) < time.Minute {
			elapse(100 * time.Millisecond)
			for _, name := range f.take() {
				if f.stateOf(name) == states(name, actuator.Stopped, actuator.Stopped) {
					stopped[name] = true
				} else {
					f.service.Watch(named(name), 2*time.Second)
				}
			}
		}
		took := time.Since(began)
		t.Logf("%d stopped after %s; %d polls, orders of %v machines", len(stopped), took, f.cloud.looks, f.cloud.ordered)
		if len(stopped) != len(names) || took > machineLatency+4*time.Second || len(f.cloud.ordered) > 2 || f.cloud.looks > 20 {
			t.Error("expected all of it within 24 s, by one or two orders and twenty polls")
		}
	})
}

func TestTenThousandClustersAreStoppedWithASlowHub(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		const readTime = 200 * time.Millisecond
		f.service.MayStop = func(ctx context.Context, _ types.NamespacedName) (bool, error) {
			select {
			case <-ctx.Done():
				return false, ctx.Err()
			case <-time.After(readTime):
				return true, nil
			}
		}
		names := f.fill(10_000)
		began := time.Now()
		for _, name := range names {
			f.service.Order(named(name), StopVerb, []string{name + "-0", name + "-1"}, 0)
		}
		elapse(time.Minute)
		early := f.cloud.countOrderedMachines()
		elapse(time.Duration(len(names)/parallelReads)*readTime + orderTimeout/2 - time.Since(began))
		if late := f.cloud.countOrderedMachines(); early < len(names)/10 || late != 2*len(names) {
			t.Errorf("expected every machine to be ordered to stop, the first within a minute; found %d then and %d in the end, orders of %v machines", early, late, f.cloud.ordered)
		}
	})
}

func TestHangingAccountDoesNotDelayOthers(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(3)
		f.cloud.hangs = "hung"
		for i := range 100 {
			name := fmt.Sprintf("h%d", i)
			f.look(name, "hung")
			f.service.RefreshMachines(named(name))
		}
		f.take()
		f.stop(names...)
		elapse(machineLatency + time.Second)
		for _, name := range names {
			f.service.RefreshMachines(named(name))
		}
		elapse(2 * time.Second)
		for _, name := range names {
			if got := f.stateOf(name); got != states(name, actuator.Stopped, actuator.Stopped) {
				t.Errorf("%s: %s", name, got)
			}
		}
		elapse(lookTimeout)
		if seen, isKnown := f.look("h0", "hung"); !isKnown || actuator.ClassOf(seen.Err) != actuator.Unreachable {
			t.Errorf("the hung account: %+v, %t", seen, isKnown)
		}
	})
}

func TestSnapshotBeforeAnOrderIsIgnored(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.cloud.lag = 5 * time.Second
		f.stop(name)
		elapse(time.Second)
		if got := f.stateOf(name); got != states(name, actuator.Stopping, actuator.Stopping) {
			t.Errorf("right after the order: %s", got)
		}
		elapse(3 * time.Second) // The cloud was polled, and still returns the old state.
		if got := f.stateOf(name); got != states(name, actuator.Stopping, actuator.Stopping) {
			t.Errorf("while the cloud lags: %s", got)
		}
		elapse(machineLatency + f.cloud.lag)
		// After an order to start, the cluster is not considered off, even within the lag.
		f.service.Order(named(name), StartVerb, []string{name + "-0", name + "-1"}, 0)
		elapse(time.Second)
		f.service.RefreshMachines(named(name))
		elapse(2 * time.Second)
		if got := f.stateOf(name); got != states(name, actuator.Starting, actuator.Starting) {
			t.Errorf("after the start: %s", got)
		}
	})
}

func TestWithdrawnOrderInFlightCountsAsStarting(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.stop(name)
		elapse(machineLatency + readLag + 2*time.Second)
		f.service.RefreshMachines(named(name))
		elapse(2 * time.Second)
		if got := f.stateOf(name); got != states(name, actuator.Stopped, actuator.Stopped) {
			t.Fatalf("before: %s", got)
		}
		f.service.Order(named(name), StartVerb, []string{name + "-0", name + "-1"}, 0)
		elapse(gatherTime + callLatency/2)
		f.service.Withdraw(named(name), StartVerb)
		if got := f.stateOf(name); got != states(name, actuator.Starting, actuator.Starting) {
			t.Errorf("while the order leaves: %s", got)
		}
		elapse(time.Second)
		if got := f.stateOf(name); got != states(name, actuator.Starting, actuator.Starting) {
			t.Errorf("after it: %s", got)
		}
	})
}

func TestRepeatedStopIsConfirmedAgain(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(2)
		f.cloud.mu.Lock()
		f.cloud.refusesOrders, f.cloud.mustRun = 1, f.shouldRun
		f.cloud.mu.Unlock()
		f.stop(names...)
		elapse(gatherTime + 2*callLatency + firstStopPause/2)
		f.setRunning(names[0], true)
		elapse(firstStopPause + callLatency)
		if want := []int{4, 2}; !slices.Equal(f.cloud.ordered, want) || f.cloud.wrongStops > 0 {
			t.Errorf("expected orders of %v machines, found %v; %d of clusters that should run", want, f.cloud.ordered, f.cloud.wrongStops)
		}
	})
}

// TestOnlyMachinesThatDidNotTakeAStopAreStoppedAgain uses two machines. The controller of one machine does not
// respond for a while.
func TestOnlyMachinesThatDidNotTakeAStopAreStoppedAgain(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		silent := name + "-1"
		f.cloud.mu.Lock()
		f.cloud.refused[silent] = &actuator.Error{Class: actuator.Unreachable, Message: "silent", RefusedIDs: []string{silent}}
		f.cloud.mu.Unlock()
		f.stop(name)
		elapse(gatherTime + 2*callLatency + firstStopPause/2)
		f.cloud.mu.Lock()
		delete(f.cloud.refused, silent)
		f.cloud.mu.Unlock()
		elapse(2*firstStopPause + 2*callLatency)
		if want := []int{2, 1}; !slices.Equal(f.cloud.ordered, want) {
			t.Errorf("expected orders of %v machines, found %v", want, f.cloud.ordered)
		}
		if seen := f.await(name); seen.Refused != nil {
			t.Errorf("expected all to be taken in the end, found %+v", seen.Refused)
		}
	})
}

// TestOrdersRespectTheCloudsRateLimit stops 12,000 machines of one account. Each batch of 900 requires a dry run of
// StartInstances. EC2 allows five of these calls at once and two per second.
func TestOrdersRespectTheCloudsRateLimit(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names, ordered := f.fill(1000), 0
		for _, name := range names {
			var ids []string
			for i := range 12 {
				ids = append(ids, fmt.Sprintf("%s-%d", name, i))
			}
			f.service.Order(named(name), StopVerb, ids, 0)
		}
		elapse(time.Minute)
		tokens, last := 5.0, f.cloud.asked[0].at
		for _, q := range f.cloud.asked {
			tokens = min(tokens+2*q.at.Sub(last).Seconds(), 5) - math.Ceil(float64(q.machines)/900)
			if last = q.at; tokens < 0 {
				t.Errorf("%d machines were asked for when the account had not as many calls left", q.machines)
			}
		}
		for _, machines := range f.cloud.ordered {
			ordered += machines
		}
		if ordered != 12_000 {
			t.Errorf("expected 12,000 machines to be ordered to stop within a minute, found orders of %v", f.cloud.ordered)
		}
	})
}

// TestAnAnswerDoesNotWaitForOthers stops a cluster without the right to stop it, and two clusters whose stops the cloud
// throttles.
func TestAnAnswerDoesNotWaitForOthers(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(3)
		f.cloud.mu.Lock()
		f.cloud.denied[names[1]], f.cloud.refusesOrders = true, 5
		f.cloud.mu.Unlock()
		f.stop(names...)
		elapse(stopPatience / 3)
		if seen, _ := f.look(names[1], "a"); seen.Refused == nil || actuator.ClassOf(seen.Refused.Err) != actuator.PermissionDenied {
			t.Errorf("expected the refusal, found %+v", seen.Refused)
		}
		elapse(2 * stopPatience)
		if len(f.cloud.machines) != 4 {
			t.Errorf("expected the others to be stopped in the end, found %v", f.cloud.machines)
		}
	})
}

func TestStopOfAResumedClusterIsNotSent(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(2)
		f.take()
		f.running[names[0]] = true
		f.stop(names...)
		elapse(2 * time.Second)
		if got := f.take(); !slices.Contains(got, names[0]) || !slices.Equal(f.cloud.ordered, []int{2}) {
			t.Errorf("enqueued %v, ordered %v", got, f.cloud.ordered)
		}
		if _, isStopped := f.cloud.machines[names[0]+"-0"]; isStopped {
			t.Error("a machine of a cluster that should run was stopped")
		}
		f.stop(names[1])
		f.service.Withdraw(named(names[1]), StopVerb)
		elapse(2 * time.Second)
		if len(f.cloud.ordered) != 1 {
			t.Error("an order that was withdrawn left")
		}
	})
}

// TestStopOfAGroupMemberIsNotSent uses passes that decided before a poll showed the group.
func TestStopOfAGroupMemberIsNotSent(t *testing.T) {
	for name, row := range map[string]struct {
		ids     []string
		ordered int
	}{
		"stop that includes a member of a group is not sent": {[]string{"a-c0-0", "a-c0-1"}, 0},
		"stop of only a machine outside the group is sent":   {[]string{"a-c0-1"}, 1},
		"stop of a cluster without members is sent":          {[]string{"a-c1-0"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runFleet(t, func(t *testing.T, f *fleet) {
				f.fill(2)
				f.cloud.groups = map[string]string{"a-c0-0": "workers"}
				f.service.RefreshMachines(named("a-c0"))
				elapse(2 * time.Second)
				f.take()
				f.service.Order(named(row.ids[0][:len("a-c0")]), StopVerb, row.ids, 0)
				elapse(2 * time.Second)
				if got := len(f.cloud.ordered); got != row.ordered {
					t.Errorf("expected %d orders, found %v", row.ordered, f.cloud.ordered)
				}
				if isEnqueued := slices.Contains(f.take(), "a-c0"); row.ordered == 0 && !isEnqueued {
					t.Error("expected the pass of the cluster to run again, found that it does not")
				}
			})
		})
	}
}

// TestAStopIsNotRepeatedForAMachineThatHasJoinedAGroup uses a cloud that throttles the first orders. A machine then
// joins a group, and a poll finds the group.
func TestAStopIsNotRepeatedForAMachineThatHasJoinedAGroup(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.cloud.refusesOrders = 3
		f.stop(name)
		elapse(700 * time.Millisecond)
		f.cloud.mu.Lock()
		f.cloud.groups = map[string]string{name + "-0": "workers"}
		f.cloud.mu.Unlock()
		f.service.RefreshMachines(named(name))
		elapse(20 * time.Second)
		if _, isStopped := f.cloud.machines[name+"-0"]; isStopped {
			t.Errorf("expected no member to be stopped, found the orders %v", f.cloud.ordered)
		}
	})
}

func TestRefusalAppliesToItsClusterUntilAnOrderIsAccepted(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(3)
		f.take()
		f.cloud.denied[names[1]] = true
		f.cloud.refused[names[2]+"-1"] = &actuator.Error{Class: actuator.NoCapacity, Message: "none"}
		f.stop(names...)
		elapse(3 * time.Second)
		const rest = 10 * time.Second
		refusal := func(name string) actuator.ErrorClass {
			seen := f.await(name)
			f.service.Order(named(name), StopVerb, []string{name + "-0", name + "-1"}, rest)
			if seen.Refused == nil {
				return ""
			}
			return actuator.ClassOf(seen.Refused.Err)
		}
		for i, want := range []actuator.ErrorClass{"", actuator.PermissionDenied, actuator.NoCapacity} {
			if got := refusal(names[i]); got != want {
				t.Errorf("%s: class %q, want %q", names[i], got, want)
			}
		}
		f.take()
		calls := len(f.cloud.ordered)
		elapse(rest / 3)
		if refusal(names[2]) == "" || len(f.cloud.ordered) != calls {
			t.Errorf("a refusal was forgotten, or its order left again before its time: %v", f.cloud.ordered)
		}
		delete(f.cloud.refused, names[2]+"-1")
		elapse(rest)
		if refusal(names[2]) == "" {
			t.Error("the refusal ended before the cloud has taken an order")
		}
		elapse(2 * time.Second)
		if got := f.take(); !slices.Contains(got, names[2]) {
			t.Errorf("enqueued %v once the order was taken", got)
		}
		if got := refusal(names[2]); got != "" {
			t.Errorf("after the order was taken: %v", got)
		}
	})
}

// TestRefusedMachineBacksOffAlone starts a machine without capacity, and then another machine of the same cluster.
func TestRefusedMachineBacksOffAlone(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		poor, other := name+"-1", name+"-0"
		f.cloud.refused[poor] = &actuator.Error{Class: actuator.NoCapacity, Message: "none", RefusedIDs: []string{poor}}
		f.service.Order(named(name), StartVerb, []string{poor}, time.Minute)
		elapse(2 * time.Second)
		f.await(name)
		f.service.Order(named(name), StartVerb, []string{other, poor}, time.Minute)
		elapse(2 * time.Second)
		seen := f.await(name)
		if seen.Refused == nil || !slices.Equal(seen.Refused.MachineIDs, []string{poor}) || !slices.Equal(f.cloud.ordered, []int{1, 1}) {
			t.Errorf("refused %+v after orders of %v machines, want the one without room, and an order for the other", seen.Refused, f.cloud.ordered)
		}
		elapse(2 * time.Minute) // The back-off has a jitter.
		f.await(name)
		f.service.Order(named(name), StartVerb, []string{poor}, time.Minute)
		elapse(10 * time.Second)
		if len(f.cloud.ordered) != 3 {
			t.Errorf("orders of %v machines, want another try after the rest", f.cloud.ordered)
		}
	})
}

// TestFrequentPassesDoNotDelayPolls runs a pass every half second, as during the wait for a resuming cluster's API
// server.
func TestFrequentPassesDoNotDelayPolls(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		before := f.cloud.looks
		for range 20 {
			f.look(name, "a")
			f.service.Watch(named(name), 2*time.Second)
			elapse(500 * time.Millisecond)
		}
		if looks := f.cloud.looks - before; looks < 3 {
			t.Errorf("%d polls in ten seconds, want one every two or three", looks)
		}
	})
}

func TestPartlyRefusedOrderAppliesToTheOtherMachines(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.cloud.lag = 5 * time.Second
		f.cloud.refused[name+"-1"] = &actuator.Error{Class: actuator.Other, Message: "protected", RefusedIDs: []string{name + "-1"}}
		f.stop(name)
		elapse(time.Second)
		if _, isKnown := f.look(name, "a"); isKnown {
			t.Error("a poll from before the order still counts as evidence")
		}
		f.service.RefreshMachines(named(name))
		elapse(2 * time.Second)
		if got := f.stateOf(name); got != states(name, actuator.Stopping, actuator.Running) {
			t.Errorf("found %s", got)
		}
	})
}

func TestErrorsOfOneClusterDoNotAffectThePollOfOthers(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		f.cloud.broken = "b3"
		for i := range 8 {
			name := fmt.Sprintf("b%d", i)
			f.look(name, "a")
			f.service.RefreshMachines(named(name))
		}
		elapse(5 * time.Second)
		for i := range 8 {
			name := fmt.Sprintf("b%d", i)
			if seen, isKnown := f.look(name, "a"); !isKnown || (seen.Err != nil) != (name == "b3") {
				t.Errorf("%s: %+v, %t", name, seen, isKnown)
			}
		}
	})
}

func TestThrottledAccountIsPolledLessOften(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.cloud.countAgain(1000)
		for range 60 {
			f.look(name, "a")
			f.service.RefreshMachines(named(name))
			elapse(time.Second)
		}
		if asked := f.cloud.countAgain(1000); asked > 8 {
			t.Errorf("a throttled account was asked %d times in a minute", asked)
		}
		f.cloud.countAgain(0)
		elapse(maxThrottlePause * 2)
		f.cloud.countAgain(0)
		for range 120 {
			f.look(name, "a")
			f.service.RefreshMachines(named(name))
			elapse(time.Second)
		}
		if asked := f.cloud.countAgain(0); asked < 30 {
			t.Errorf("an account that answers again was asked %d times in two minutes", asked)
		}
	})
}

// TestRetryAfterOfTheCloudIsRespected uses a cloud that requests longer pauses than the service's own.
func TestRetryAfterOfTheCloudIsRespected(t *testing.T) {
	a := newAccount("key", nil, time.Now())
	for _, row := range []struct {
		asks, want time.Duration
	}{{0, minThrottlePause}, {3 * time.Minute, 3 * time.Minute}, {time.Hour, maxAskedPause}} {
		a.pause = 0
		a.adjustPause(&actuator.Error{Class: actuator.Throttled, RetryAfter: row.asks})
		if a.pause != row.want {
			t.Errorf("asked for %s: found a pause of %s, want %s", row.asks, a.pause, row.want)
		}
	}
	a.adjustPause(nil)
	if a.pause > maxThrottlePause/2 {
		t.Errorf("found a pause of %s once the cloud has answered, want at most %s", a.pause, maxThrottlePause/2)
	}
}

// TestFleetsArePolledLessOftenThanOneCluster requests a poll of each cluster every second, as passes do while machines
// stop or start.
func TestFleetsArePolledLessOftenThanOneCluster(t *testing.T) {
	for clusters, most := range map[int]int{1: 21, 200: 11} {
		runFleet(t, func(t *testing.T, f *fleet) {
			names := f.fill(clusters)
			f.stop(names...)
			f.cloud.countAgain(0)
			for began := time.Now(); time.Since(began) < machineLatency; elapse(100 * time.Millisecond) {
				for _, name := range f.take() {
					f.stateOf(name)
					f.service.Watch(named(name), time.Second)
				}
			}
			if looks := f.cloud.countAgain(0); looks > most || looks < most*2/3 {
				t.Errorf("%d clusters: expected about %d polls in %s, found %d", clusters, most, machineLatency, looks)
			}
		})
	}
}

// TestWatchesEndOnceAPassRequestsNone uses a cluster that is polled every 30 seconds until a pass requests no watch.
func TestWatchesEndOnceAPassRequestsNone(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		name := f.fill(1)[0]
		f.take()
		f.cloud.looks = 0
		f.service.Watch(named(name), 30*time.Second)
		elapse(95 * time.Second)
		if f.cloud.looks != 3 {
			t.Errorf("expected 3 polls in 95 s, found %d", f.cloud.looks)
		}
		f.service.Watch(named(name), 0)
		elapse(10 * time.Minute)
		if f.cloud.looks != 3 {
			t.Errorf("expected no poll after the last pass, found %d", f.cloud.looks-3)
		}
		f.service.RefreshMachines(named(name))
		f.service.Watch(named(name), 0)
		elapse(time.Second)
		if got := f.take(); !slices.Equal(got, []string{name}) {
			t.Errorf("expected the pass that waits for a poll to run, found %v", got)
		}
	})
}

// TestClustersThatAreOffCostAnAccountOneCallAMinute uses a fleet that is off for two hours. Then a machine is
// started.
func TestClustersThatAreOffCostAnAccountOneCallAMinute(t *testing.T) {
	const clusters = 1000
	const cycle = clusters * 2 / machinesPerCall * turnInterval
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(clusters)
		f.stop(names...)
		elapse(machineLatency + readLag)
		for _, name := range names {
			f.service.RefreshMachines(named(name))
		}
		elapse(10 * time.Second)
		for _, name := range names {
			f.stateOf(name) // A pass reports the cluster, and stops watching it.
			f.service.Watch(named(name), 0)
		}
		elapse(time.Minute)
		f.take()
		f.cloud.countAgain(0)
		const sleep = 2 * time.Hour
		elapse(sleep)
		if looks := f.cloud.countAgain(0); looks > int(sleep/time.Minute) || looks < int(sleep/(sharedLookAge+cycle))*clusters*2/machinesPerCall/2 {
			t.Errorf("expected at most one poll a minute, and each cluster polled every %s, found %d polls in %s", sharedLookAge+cycle, looks, sleep)
		}
		for _, name := range names {
			if seen, _ := f.look(name, "a"); time.Since(seen.At) > sharedLookAge+2*cycle {
				t.Errorf("%s was polled %s ago", name, time.Since(seen.At))
				break
			}
		}
		if woken := f.take(); len(woken) > 0 {
			t.Errorf("expected no pass while nothing changes, found %v", woken)
		}
		f.cloud.change(names[70]+"-1", StartVerb)
		elapse(sharedLookAge + 2*cycle)
		if woken := f.take(); !slices.Contains(woken, names[70]) {
			t.Errorf("expected the pass of %s, of which a machine was started, found %v", names[70], woken)
		}
	})
}

func TestSettledClustersShareAPoll(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(50)
		f.take()
		f.cloud.looks = 0
		elapse(10 * time.Minute)
		f.service.RefreshMachines(named(names[7]))
		elapse(2 * time.Second)
		if got := f.take(); !slices.Equal(got, []string{names[7]}) || f.cloud.looks != 1 {
			t.Errorf("enqueued %v by %d polls", got, f.cloud.looks)
		}
		for _, name := range names {
			if seen, _ := f.look(name, "a"); time.Since(seen.At) > SettledLookAge {
				t.Errorf("%s was polled %s ago", name, time.Since(seen.At))
			}
		}
		f.service.ForgetCluster(named(names[0]))
		for _, name := range names[1:] {
			f.service.ForgetCluster(named(name))
		}
		if len(f.service.accounts)+len(f.service.clusters) > 0 {
			t.Errorf("accounts %v, clusters %v stay", f.service.accounts, f.service.clusters)
		}
	})
}

// TestFrequentFlipsStopNoRunningCluster changes the power state of a hundred clusters a hundred times each. The cloud
// returns the state of five seconds ago, and passes read specs that may be 0.3 seconds old. The cloud compares each
// stop with the current spec.
func TestFrequentFlipsStopNoRunningCluster(t *testing.T) {
	const clusters, flips, cacheLag = 100, 100, 300 * time.Millisecond
	runFleet(t, func(t *testing.T, f *fleet) {
		names := f.fill(clusters)
		f.take()
		f.cloud.mu.Lock()
		f.cloud.lag, f.cloud.mustRun = 5*time.Second, f.shouldRun
		f.cloud.mu.Unlock()
		for flip := range flips {
			cached := map[string]bool{}
			for i, name := range names {
				cached[name] = f.shouldRun(name)
				// In the end, half of the clusters should run, and the others hibernate.
				f.setRunning(name, (flip+i)%2 == 0)
			}
			for _, wait := range []time.Duration{cacheLag, time.Second - cacheLag} {
				for _, name := range names {
					f.pass(name, cached[name])
				}
				elapse(wait)
				cached = map[string]bool{}
				for _, name := range names {
					cached[name] = f.shouldRun(name)
				}
			}
		}
		for range 60 {
			for _, name := range names {
				f.pass(name, f.shouldRun(name))
			}
			elapse(time.Second)
		}
		stops := len(f.cloud.ordered)
		for _, name := range names {
			want := states(name, actuator.Stopped, actuator.Stopped)
			if f.shouldRun(name) {
				want = states(name, actuator.Running, actuator.Running)
			}
			if got := f.stateOf(name); got != want {
				t.Errorf("%s should run: %t, found %s", name, f.shouldRun(name), got)
			}
		}
		t.Logf("%d flips, %d orders, %d wrong stops", clusters*flips, stops, f.cloud.wrongStops)
		if f.cloud.wrongStops > 0 || stops == 0 {
			t.Errorf("%d machines of clusters that should run were stopped, by %d orders", f.cloud.wrongStops, stops)
		}
	})
}

// pass runs a pass of a cluster that should run or hibernate according to its cache.
func (f *fleet) pass(name string, shouldRun bool) {
	seen, isKnown := f.look(name, "a")
	if !isKnown {
		f.service.RefreshMachines(named(name))
		return
	}
	from, verb := actuator.Running, StopVerb
	if shouldRun {
		from, verb = actuator.Stopped, StartVerb
	}
	var ids []string
	for _, m := range seen.Machines {
		if m.State == from {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		f.service.Withdraw(named(name), StopVerb, StartVerb)
	} else {
		f.service.Order(named(name), verb, ids, 0)
	}
	f.service.Watch(named(name), 2*time.Second)
	f.service.FinishPass(named(name), time.Second)
}
