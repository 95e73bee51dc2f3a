// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// orderGrace is how long an order may arrive after the user's opposite request was acknowledged. A manager reads the
	// spec from the API server before each order, and the order needs some time to reach the cloud.
	orderGrace = time.Second
	// freshness is how long a status about the current spec may contradict the machines or the Pods. These are read one
	// after the other. Otherwise they never contradict each other, even if a manager is killed, because the start of a
	// change is in the status before the first order.
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
	// LieSeconds is the total time in which a status contradicted the machines or the Pods for longer than freshness.
	LieSeconds float64 `json:"lie_seconds"`
	// LongestContradiction is the longest time in which a status contradicted the machines or the Pods.
	LongestContradiction float64 `json:"longest_contradiction_seconds"`
	// ObjectHours is the total time in which statuses were observed.
	ObjectHours float64 `json:"object_hours"`
	// LostIntents counts objects that did not reach the last intent after the last fault of a round.
	LostIntents int `json:"lost_intents"`
	// RestSeconds are the times from the end of the last fault of each round until all objects were at rest.
	RestSeconds []float64 `json:"rest_seconds"`
	// Acts counts the statements of the managers that change servers of databases, and WrongActs those while clustering
	// was stopped.
	Acts      int `json:"acts"`
	WrongActs int `json:"wrong_acts"`
	// LostRows counts acknowledged rows that an instance does not have, and DualMoments the moments at which two
	// primaries acknowledged rows.
	AcknowledgedRows int `json:"acknowledged_rows"`
	LostRows         int `json:"lost_rows"`
	DualMoments      int `json:"dual_moments"`
	Promotions       int `json:"promotions"`
	// UnequalDatabases counts databases whose instances have different rows.
	UnequalDatabases int `json:"unequal_databases"`
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
	sum := v.WrongOrders + v.WrongActs + v.LostIntents + v.LostRows + v.DualMoments + v.UnequalDatabases + v.Secrets
	return sum == 0 && v.LieSeconds == 0
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
	if isCurrent(cd.Status.Conditions, hivev1.ClusterHibernatingCondition, hivev1.HibernatingHibernationReason, cd.Generation) {
		all = append(all, claimsStopped)
	}
	if isCurrent(cd.Status.Conditions, hivev1.ClusterReadyCondition, hivev1.RunningHibernationReason, cd.Generation) {
		all = append(all, claimsRunning)
	}
	return all
}

// isCurrent reports whether a condition is true for a reason, and was observed for the current spec.
func isCurrent(conditions []metav1.Condition, kind, reason string, generation int64) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason && c.ObservedGeneration == generation
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

// findContradictionOfCluster returns a statement in the status of a cluster that its machines contradict, or "".
func findContradictionOfCluster(cd *hivev1.ClusterDeployment, states []string) string {
	for _, c := range readClaims(cd) {
		if slices.ContainsFunc(states, c.isContradicted) {
			return string(c)
		}
	}
	return ""
}

// findContradictionOfApp returns a statement in the status of an app that its Pods contradict, or "".
func findContradictionOfApp(app *korifiv1alpha1.CFApp, pods []corev1.Pod) string {
	isReported := func(reason string) bool {
		revision := strconv.FormatInt(app.Status.ObservedRevision, 10)
		return isCurrent(app.Status.Conditions, korifiv1alpha1.ReadyCondition, reason, app.Generation) && revision == app.Annotations[korifiv1alpha1.RevisionAnnotation]
	}
	serving := countPods(pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && p.Labels[korifiv1alpha1.VersionLabel] == app.Annotations[korifiv1alpha1.RevisionAnnotation]
	})
	switch {
	case isReported(korifiv1alpha1.StoppedReason) && len(pods) > 0:
		return "it has no instance"
	case isReported(korifiv1alpha1.RunningReason) && serving < replicas:
		return "all its instances run"
	default:
		return ""
	}
}

// contradictions records since when each statement has been contradicted.
type contradictions struct {
	since map[string]time.Time
	last  time.Time
}

// judgeStatuses judges one poll of a number of objects, of which some have contradicted statements.
func (v *verdicts) judgeStatuses(seen *contradictions, objects int, contradicted []string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	passed := now.Sub(seen.last)
	if seen.last.IsZero() {
		passed = 0
	}
	seen.last = now
	v.ObjectHours += float64(objects) * passed.Hours()
	still := map[string]time.Time{}
	for _, statement := range contradicted {
		began, isOld := seen.since[statement]
		if !isOld {
			began = now
		}
		still[statement] = began
		lasted := now.Sub(began)
		v.LongestContradiction = max(v.LongestContradiction, lasted.Seconds())
		if lasted > freshness {
			if lasted-passed <= freshness {
				v.note("the status has been wrong for %s: %s", lasted.Round(time.Second), statement)
			}
			v.LieSeconds += min(passed, lasted-freshness).Seconds()
		}
	}
	seen.since = still
}

// watchStatuses compares the statuses with the machines and Pods until ctx ends.
func (w *world) watchStatuses(ctx context.Context, t *testing.T) {
	seen := &contradictions{since: map[string]time.Time{}}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var clusters hivev1.ClusterDeploymentList
		var apps korifiv1alpha1.CFAppList
		var pods corev1.PodList
		if err := errors.Join(w.Client.List(ctx, &clusters), w.Client.List(ctx, &apps), w.Client.List(ctx, &pods), w.observeStops(ctx)); err != nil {
			continue // The next poll counts the time.
		}
		states := map[string][]string{}
		for _, i := range w.cloud.ListInstances(t, "") {
			states[clusterOf(i)] = append(states[clusterOf(i)], i.State)
		}
		var contradicted []string
		for i := range clusters.Items {
			if found := findContradictionOfCluster(&clusters.Items[i], states[clusters.Items[i].Name]); found != "" {
				contradicted = append(contradicted, clusters.Items[i].Name+": "+found)
			}
		}
		ofApp := map[string][]corev1.Pod{}
		for i := range pods.Items {
			app := pods.Items[i].Labels[korifiv1alpha1.AppGUIDLabel]
			ofApp[app] = append(ofApp[app], pods.Items[i])
		}
		for i := range apps.Items {
			if found := findContradictionOfApp(&apps.Items[i], ofApp[apps.Items[i].Name]); found != "" {
				contradicted = append(contradicted, apps.Items[i].Name+": "+found)
			}
		}
		w.found.judgeStatuses(seen, len(clusters.Items)+len(apps.Items), contradicted, time.Now())
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

// TestOracleFindsContradictions compares statuses with machines and Pods.
func TestOracleFindsContradictions(t *testing.T) {
	condition := func(kind, reason string, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation}}
	}
	hibernatingNow := condition(hivev1.ClusterHibernatingCondition, hivev1.HibernatingHibernationReason, 2)
	runningNow := condition(hivev1.ClusterReadyCondition, hivev1.RunningHibernationReason, 2)
	for name, row := range map[string]struct {
		conditions []metav1.Condition
		states     []string
		want       string
	}{
		"stopped machines of a hibernating cluster":             {hibernatingNow, []string{"stopped", "stopped"}, ""},
		"a running machine of a hibernating cluster":            {hibernatingNow, []string{"stopped", "running"}, "its machines are stopped"},
		"a stopping machine of a hibernating cluster":           {hibernatingNow, []string{"stopped", "stopping"}, ""},
		"a running machine, and a status about an earlier spec": {condition(hivev1.ClusterHibernatingCondition, hivev1.HibernatingHibernationReason, 1), []string{"running"}, ""},
		"running machines of a ready cluster":                   {runningNow, []string{"running", "running"}, ""},
		"a stopped machine of a ready cluster":                  {runningNow, []string{"running", "stopped"}, "its machines run"},
	} {
		t.Run(name, func(t *testing.T) {
			cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			cd.Status.Conditions = row.conditions
			testenv.ExpectEqual(t, "contradiction", row.want, findContradictionOfCluster(cd, row.states))
		})
	}
	pod := func(revision string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{korifiv1alpha1.VersionLabel: revision}}}
	}
	stoppedNow, startedNow := condition(korifiv1alpha1.ReadyCondition, korifiv1alpha1.StoppedReason, 2), condition(korifiv1alpha1.ReadyCondition, korifiv1alpha1.RunningReason, 2)
	for name, row := range map[string]struct {
		conditions []metav1.Condition
		pods       []corev1.Pod
		want       string
	}{
		"no Pod of a stopped app":                     {stoppedNow, nil, ""},
		"a Pod of a stopped app":                      {stoppedNow, []corev1.Pod{pod("6")}, "it has no instance"},
		"all Pods of a running app":                   {startedNow, []corev1.Pod{pod("7"), pod("7")}, ""},
		"a Pod of an earlier revision of an app":      {startedNow, []corev1.Pod{pod("7"), pod("6")}, "all its instances run"},
		"no Pod, and a status about an earlier spec":  {condition(korifiv1alpha1.ReadyCondition, korifiv1alpha1.RunningReason, 1), nil, ""},
		"no Pod, and a condition with another reason": {condition(korifiv1alpha1.ReadyCondition, "Other", 2), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Generation: 2, Annotations: map[string]string{korifiv1alpha1.RevisionAnnotation: "7"}}}
			app.Status.Conditions, app.Status.ObservedRevision = row.conditions, 7
			testenv.ExpectEqual(t, "contradiction", row.want, findContradictionOfApp(app, row.pods))
		})
	}
}

// TestOracleCountsLies polls an object every second while its status is wrong.
func TestOracleCountsLies(t *testing.T) {
	const seconds = 60
	v, seen := &verdicts{}, &contradictions{since: map[string]time.Time{}}
	for s := range seconds + 1 {
		contradicted := []string{"c: its machines are stopped"}
		if s%2 == 0 {
			contradicted = append(contradicted, "d: its machines run") // This statement is never wrong in two consecutive polls.
		}
		v.judgeStatuses(seen, 1, contradicted, time.Unix(int64(s), 0))
	}
	testenv.ExpectEqual(t, "seconds", seconds-freshness.Seconds(), v.LieSeconds)
	testenv.ExpectEqual(t, "the longest contradiction", float64(seconds), v.LongestContradiction)
	testenv.ExpectEqual(t, "findings", 1, len(v.findings))
	testenv.ExpectEqual(t, "the oracle has found nothing", false, v.isClean())
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
