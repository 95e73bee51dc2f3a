// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/decision"
)

// TestDecideIsTotal shows that whatever is observed, possible or not, has one complete plan.
func TestDecideIsTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rulesUsed := map[string]bool{}
	for n := range 10_000 {
		o := randomObserved(rng)
		o.IsBeingDeleted, o.IsStopOverdue = n%100 == 0, n%100 == 1 && o.Stop == nil
		before := o
		before.Instances = slices.Clone(o.Instances)
		p := Decide(o)
		rulesUsed[p.Rule] = true
		if !reflect.DeepEqual(o, before) || !reflect.DeepEqual(p, Decide(o)) {
			t.Fatalf("expected the same plan twice and nothing changed, for %+v", o)
		}
		if wrong := findIncompleteness(o, p); wrong != "" {
			t.Fatalf("%s: %+v\nfor %+v", wrong, p, o)
		}
		CheckStart(o)
		UpdateHistory(o.History, o)
	}
	if len(rulesUsed) < len(rules())-5 {
		t.Errorf("expected nearly all of %d rules, found %d", len(rules()), len(rulesUsed))
	}
}

func findIncompleteness(o Observed, p Plan) string {
	reason := regexp.MustCompile(`^[A-Za-z]+$`)
	for _, c := range []decision.Condition{p.Initialized, p.Available, p.Healthy, p.ClusteringActive} {
		known := c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown
		if !known || !reason.MatchString(c.Reason) || c.Message == "" {
			return "an incomplete condition"
		}
	}
	_, idle := p.Do.(Nothing)
	switch {
	case p.Rule == "" || p.Do == nil || p.Why == "" || p.State == "":
		return "no rule, action, reason or state"
	case p.After <= 0 || p.After > stoppedInterval || !idle && p.After != immediately:
		return "looks again at a wrong time"
	case o.StopAsked && o.Stop != nil && !idle:
		return "acts although it is stopped"
	case len(p.Instances) != max(o.Replicas, 0):
		return "does not report every instance"
	}
	for _, i := range TargetInstances(p.Do) {
		if i < 0 || i >= o.Replicas || o.Instances[i].Stopped {
			return "touches an instance that is not there or is left alone"
		}
	}
	return ""
}

func randomObserved(rng *rand.Rand) Observed {
	maybe := func() bool { return rng.IntN(2) == 0 }
	rarely := func() bool { return rng.IntN(12) == 0 }
	when := func() time.Time {
		return []time.Time{{}, modelTime(), modelTime().Add(-time.Second), modelTime().Add(-time.Hour)}[rng.IntN(4)]
	}
	o := Observed{
		Now: modelTime(), Replicas: []int{0, 1, 2, 3, 5}[rng.IntN(5)], Offline: rarely(), StopAsked: rarely(), Primary: rng.IntN(5) - 1,
		Source: OneTimeOperation{rarely(), rarely()}, Restore: OneTimeOperation{rarely(), rarely()}, History: History{when(), when(), when(), nil},
	}
	if rarely() {
		o.Stop = &StopRecord{Since: when()}
	}
	texts := []string{"", "0:1-9", "0:1-9", "0:1-9", "0:1-10", "0:1-9,1:1", "2:1"}
	threads := []ThreadState{Stopped, Connecting, Running, Running}
	for i := range 5 {
		s := Instance{
			Host: host(i), Pod: PodFacts{!rarely(), maybe(), rarely(), rarely(), []PodRole{RoleNone, RolePrimary, RoleReplica}[rng.IntN(3)]},
			Stopped: rarely(), KnownErrant: rarely(), Reachable: !rarely(), Refused: rarely(), Pending: rarely(), PendingFor: time.Duration(rng.IntN(20)) * time.Second,
			UUID: uuid(i), Connected: []string{uuid(rng.IntN(3)), uuid(rng.IntN(3))},
			SemiSync: SemiSync{i == o.Primary, i != o.Primary, o.Replicas / 2, endlessTimeout, rng.IntN(8) / 7},
			Clone:    []CloneState{NotCloned, NotCloned, NotCloned, Cloning, Cloned, CloneFailed}[rng.IntN(6)],
		}
		s.ReadOnly = maybe()
		s.SuperReadOnly = s.ReadOnly && !rarely()
		if text := texts[rng.IntN(len(texts))]; text != "" {
			s.Executed = parseTestSet(text)
		}
		if i != o.Primary || rarely() {
			s.Channel = ReplicationChannel{!rarely(), host(max(0, o.Primary)), threads[rng.IntN(4)], threads[rng.IntN(4)], 1236 * (rng.IntN(12) / 11), 1062 * (rng.IntN(12) / 11), 0, s.Executed}
		}
		o.Instances = append(o.Instances, s)
		o.History.Instances = append(o.History.Instances, InstanceHistory{when(), rng.IntN(3), when(), time.Time{}, "", ""})
	}
	return o
}

// TestPageListsTheRules shows that docs/clustering.md has the rules in their order.
func TestPageListsTheRules(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clustering.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| rule | what happens |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var got, want []string
	for line := range strings.SplitSeq(table, "\n") {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		got = append(got, name)
	}
	for _, r := range rules() {
		want = append(want, r.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules in docs/clustering.md (-want +got):\n%s", diff)
	}
}
