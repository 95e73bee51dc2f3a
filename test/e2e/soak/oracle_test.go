// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// orderGrace is how long an order may arrive after the user's opposite request was acknowledged. A manager reads the
	// spec from the API server before each order, and the order needs some time to reach the cloud.
	orderGrace = time.Second
	// freshness is how long a status about the current spec may contradict the cloud. The status and the machines are
	// read one after the other. Otherwise they never contradict each other, even if a manager is killed, because the
	// start of a change is in the status before the first order.
	freshness = 3 * time.Second
	// lookInterval is the interval of the oracle's polls.
	lookInterval = time.Second
)

// verdicts are the findings of the oracle.
type verdicts struct {
	mu sync.Mutex

	Orders int `json:"orders"`
	// RepeatedOrders counts orders for machines that already had the requested state, such as after a crash.
	RepeatedOrders int `json:"repeated_orders"`
	// WrongOrders counts orders against the intent of the user.
	WrongOrders int `json:"wrong_orders"`
	// OldestOrder is the highest age of an order: the time since the opposite request was acknowledged.
	OldestOrder float64 `json:"oldest_order_seconds"`
	// LieSeconds is the total time in which a status contradicted the cloud for longer than freshness.
	LieSeconds float64 `json:"lie_seconds"`
	// LongestContradiction is the longest time in which a status contradicted the cloud.
	LongestContradiction float64 `json:"longest_contradiction_seconds"`
	// ObjectHours is the total time in which statuses were observed.
	ObjectHours float64 `json:"object_hours"`
	// LostIntents counts objects that did not reach the last intent after the last fault of a round.
	LostIntents int `json:"lost_intents"`
	// RestSeconds are the times from the end of the last fault of each round until all objects were at rest.
	RestSeconds []float64 `json:"rest_seconds"`
	// Secrets counts outputs that contain a secret.
	Secrets int `json:"secrets"`

	findings []string
}

// note records a finding.
func (v *verdicts) note(format string, args ...any) {
	v.findings = append(v.findings, time.Now().Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
}

// isClean reports whether the oracle has found no defect.
func (v *verdicts) isClean() bool {
	return v.WrongOrders == 0 && v.LieSeconds == 0 && v.LostIntents == 0 && v.Secrets == 0
}

// judgeOrder judges an order that arrives at the cloud. states are the states of the machines before the order.
func (v *verdicts) judgeOrder(l *intentLog, o order, states []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Orders++
	want, reached := running, []string{"running", "pending"}
	if o.action == "StopInstances" {
		want, reached = hibernating, []string{"stopped", "stopping"}
	}
	if !slices.ContainsFunc(states, func(s string) bool { return !slices.Contains(reached, s) }) {
		v.RepeatedOrders++
	}
	age, isKnown := l.age(o.cluster, want, o.at)
	v.OldestOrder = max(v.OldestOrder, age.Seconds())
	if isKnown && age <= orderGrace {
		return
	}
	v.WrongOrders++
	v.note("%s for %s, whose intent is %v; %s was last requested %s before", o.action, o.cluster, l.current(o.cluster, o.at), want, age)
}

// claim is a statement in the status of a cluster.
type claim string

const (
	claimsStopped claim = "its machines are stopped"
	claimsRunning claim = "its machines run"
)

// readClaims returns the statements of a status about the current spec.
func readClaims(cd *hivev1.ClusterDeployment) []claim {
	var all []claim
	for _, row := range []struct {
		condition, reason string
		claim             claim
	}{
		{hivev1.ClusterHibernatingCondition, hivev1.HibernatingHibernationReason, claimsStopped},
		{hivev1.ClusterReadyCondition, hivev1.RunningHibernationReason, claimsRunning},
	} {
		c := meta.FindStatusCondition(cd.Status.Conditions, row.condition)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == row.reason && c.ObservedGeneration == cd.Generation {
			all = append(all, row.claim)
		}
	}
	return all
}

// isContradicted reports whether the state of a machine contradicts a claim.
func (c claim) isContradicted(state string) bool {
	switch state {
	case "running", "pending":
		return c == claimsStopped
	case "stopped", "stopping":
		return c == claimsRunning
	default:
		return false
	}
}

// contradictions records since when each claim contradicts the cloud.
type contradictions struct {
	since map[string]time.Time
	last  time.Time
}

// judgeClaims compares the statuses with the machines of one poll. states are the states of the machines by cluster.
func (v *verdicts) judgeClaims(seen *contradictions, clusters []hivev1.ClusterDeployment, states map[string][]string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	passed := now.Sub(seen.last)
	if seen.last.IsZero() {
		passed = 0
	}
	seen.last = now
	v.ObjectHours += float64(len(clusters)) * passed.Hours()
	still := map[string]time.Time{}
	for i := range clusters {
		cd := &clusters[i]
		for _, c := range readClaims(cd) {
			if !slices.ContainsFunc(states[cd.Name], c.isContradicted) {
				continue
			}
			key := cd.Name + ": " + string(c)
			began, isOld := seen.since[key]
			if !isOld {
				began = now
			}
			still[key] = began
			lasted := now.Sub(began)
			v.LongestContradiction = max(v.LongestContradiction, lasted.Seconds())
			if lasted > freshness {
				if now.Sub(began)-passed <= freshness {
					v.note("the status of %s, and its machines are %v for %s", key, states[cd.Name], lasted.Round(time.Second))
				}
				v.LieSeconds += min(passed, lasted-freshness).Seconds()
			}
		}
	}
	seen.since = still
}

// watchClaims compares the statuses with the cloud until ctx ends.
func (w *world) watchClaims(ctx context.Context, t *testing.T) {
	seen := &contradictions{since: map[string]time.Time{}}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var list hivev1.ClusterDeploymentList
		if err := w.Client.List(ctx, &list); err != nil {
			continue // The next poll counts the time.
		}
		states := map[string][]string{}
		for _, i := range w.cloud.ListInstances(t, "") {
			states[w.clusterOf(i)] = append(states[w.clusterOf(i)], i.State)
		}
		w.found.judgeClaims(seen, list.Items, states, time.Now())
	}
}

// TestOracleJudgesOrders judges orders against histories of intents.
func TestOracleJudgesOrders(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	const ended = 20
	history := func(last outcome) []intent {
		return []intent{{running, at(0), at(1), acknowledged}, {hibernating, at(10), at(11), acknowledged}, {running, at(ended - 1), at(ended), last}}
	}
	for name, row := range map[string]struct {
		action  string
		last    outcome
		at      float64
		isWrong bool
	}{
		"a stop order before the request":                            {"StopInstances", acknowledged, 9, true},
		"a stop order while the request is sent":                     {"StopInstances", acknowledged, 10.5, false},
		"a stop order after the request":                             {"StopInstances", acknowledged, 15, false},
		"a stop order within the grace of a resume":                  {"StopInstances", acknowledged, ended + 0.9, false},
		"a stop order after the grace of a resume":                   {"StopInstances", acknowledged, ended + 3, true},
		"a stop order after a resume without an answer":              {"StopInstances", unknown, ended + 3, false},
		"a start order after a resume without an answer":             {"StartInstances", unknown, ended + 3, false},
		"a stop order after a refused resume":                        {"StopInstances", refused, ended + 3, false},
		"a start order after a refused resume":                       {"StartInstances", refused, ended + 3, true},
		"a start order after the request to hibernate":               {"StartInstances", acknowledged, 15, true},
		"a start order within the grace of the request to hibernate": {"StartInstances", acknowledged, 11.9, false},
		"a start order after the resume":                             {"StartInstances", acknowledged, ended + 3, false},
		"a start order for a cluster that was never hibernated":      {"StartInstances", acknowledged, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, l := &verdicts{}, newIntentLog()
			l.of["c"] = history(row.last)
			v.judgeOrder(l, order{action: row.action, cluster: "c", at: at(row.at)}, []string{"running"})
			if isWrong := v.WrongOrders > 0; isWrong != row.isWrong || isWrong == v.isClean() {
				t.Errorf("expected a wrong order: %t, found %v", row.isWrong, v.findings)
			}
		})
	}
}

// TestOracleCountsLies polls a cluster every second while its status contradicts its machines.
func TestOracleCountsLies(t *testing.T) {
	const seconds = 60
	hibernatingNow := metav1.Condition{Type: hivev1.ClusterHibernatingCondition, Status: metav1.ConditionTrue, Reason: hivev1.HibernatingHibernationReason, ObservedGeneration: 2}
	old := hibernatingNow
	old.ObservedGeneration = 1
	runningNow := metav1.Condition{Type: hivev1.ClusterReadyCondition, Status: metav1.ConditionTrue, Reason: hivev1.RunningHibernationReason, ObservedGeneration: 2}
	for name, row := range map[string]struct {
		condition metav1.Condition
		states    []string
		want      float64
	}{
		"stopped machines of a hibernating cluster":             {hibernatingNow, []string{"stopped", "stopped"}, 0},
		"a running machine of a hibernating cluster":            {hibernatingNow, []string{"stopped", "running"}, seconds - freshness.Seconds()},
		"a running machine, and a status about an earlier spec": {old, []string{"stopped", "running"}, 0},
		"running machines of a ready cluster":                   {runningNow, []string{"running", "running"}, 0},
		"a stopped machine of a ready cluster":                  {runningNow, []string{"running", "stopped"}, seconds - freshness.Seconds()},
	} {
		t.Run(name, func(t *testing.T) {
			v, seen := &verdicts{}, &contradictions{since: map[string]time.Time{}}
			cd := hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 2}}
			cd.Status.Conditions = []metav1.Condition{row.condition}
			for s := range seconds + 1 {
				v.judgeClaims(seen, []hivev1.ClusterDeployment{cd}, map[string][]string{"c": row.states}, time.Unix(int64(s), 0))
			}
			testenv.ExpectEqual(t, "seconds", row.want, v.LieSeconds)
			testenv.ExpectEqual(t, "findings", cmp.Compare(row.want, 0), len(v.findings))
		})
	}
}

// TestRevisionsOfAnApp expects the revisions that a history of stops and starts may have begun.
func TestRevisionsOfAnApp(t *testing.T) {
	for name, row := range map[string]struct {
		values []string
		last   outcome
		want   []string
	}{
		"a start of a started app":                      {[]string{started}, acknowledged, []string{"0"}},
		"a stop":                                        {[]string{stopped}, acknowledged, []string{"1"}},
		"two stops without a start":                     {[]string{stopped, stopped}, acknowledged, []string{"1"}},
		"a restart and a stop":                          {[]string{stopped, started, stopped}, acknowledged, []string{"2"}},
		"a restart, and a stop without an answer":       {[]string{stopped, started, stopped}, unknown, []string{"1", "2"}},
		"a restart, and a refused stop":                 {[]string{stopped, started, stopped}, refused, []string{"1"}},
		"a stop, and a start without an answer":         {[]string{stopped, started}, unknown, []string{"1"}},
		"a stop of a started app that has not returned": {[]string{stopped}, inFlight, []string{"0", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newIntentLog()
			for i, value := range row.values {
				o := acknowledged
				if i == len(row.values)-1 {
					o = row.last
				}
				l.of["app"] = append(l.of["app"], intent{value: value, outcome: o})
			}
			found := l.countRevisions("app")
			slices.Sort(found)
			testenv.ExpectEqual(t, "revisions", row.want, found)
		})
	}
}
