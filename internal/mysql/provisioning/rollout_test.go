// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	fresh := Pod{Exists: true, Ready: true, ReadyFor: Settle}
	old := Pod{Exists: true, Ready: true, ReadyFor: Settle, Outdated: true}
	broken := Pod{Exists: true, Outdated: true}
	three := func(pods ...Pod) Observed {
		return Observed{Name: "test", Known: true, Pods: pods, Primary: 1, Healthy: true}
	}
	with := func(o Observed, change func(*Observed)) Observed {
		change(&o)
		return o
	}
	for name, row := range map[string]struct {
		in   Observed
		rule string
		do   Action
	}{
		"no Pod is wanted":                               {Observed{Offline: true}, "offline", Nothing{}},
		"all Pods are new":                               {three(fresh, fresh, fresh), "done", Nothing{}},
		"a new template that nobody has seen":            {Observed{Pods: []Pod{old}}, "the template is new", Nothing{}},
		"a Pod that is missing has nothing to replace":   {three(fresh, Pod{}, fresh), "nothing to replace", Nothing{}},
		"the first replica is first":                     {three(old, old, old), "replace a replica", Replace{0}},
		"then the second, not the primary before it":     {three(fresh, old, old), "replace a replica", Replace{2}},
		"the primary hands over first":                   {three(fresh, old, fresh), "demote the primary", Demote{1}},
		"and it is waited for":                           {three(fresh, with1(old), fresh), "switchover", Nothing{}},
		"a Pod on its way holds up the others":           {three(fresh, old, Pod{}), "one at a time", Nothing{}},
		"so does one that ends":                          {three(Pod{Exists: true, Ready: true, Terminating: true, Outdated: true}, old, old), "one at a time", Nothing{}},
		"so does a new one that is not ready":            {three(Pod{Exists: true}, old, broken), "one at a time", Nothing{}},
		"a new one has to settle":                        {three(Pod{Exists: true, Ready: true, ReadyFor: 1}, old, old), "settle", Nothing{}},
		"a broken Pod may go at any time":                {with(three(old, old, broken), func(o *Observed) { o.Healthy = false }), "replace a broken Pod", Replace{2}},
		"but not a broken primary while others are old":  {with(three(old, broken, old), func(o *Observed) { o.Healthy = false }), "not healthy", Nothing{}},
		"a broken primary goes when it is the last":      {with(three(fresh, broken, fresh), func(o *Observed) { o.Healthy = false }), "replace a broken Pod", Replace{1}},
		"a cluster that is not healthy waits":            {with(three(old, old, old), func(o *Observed) { o.Healthy = false }), "not healthy", Nothing{}},
		"a cluster without a primary waits":              {with(three(old, old, old), func(o *Observed) { o.Primary = None }), "not healthy", Nothing{}},
		"a stop of clustering comes before a broken Pod": {with(three(old, old, broken), func(o *Observed) { o.ClusteringStopped = true }), "clustering is stopped", Nothing{}},
		"so does a stop of one instance":                 {with(three(old, old, broken), func(o *Observed) { o.StoppedInstances = true }), "instances are stopped", Nothing{}},
		"who is alone hands over to nobody":              {Observed{Known: true, Pods: []Pod{old}, Healthy: true}, "replace the only Pod", Replace{0}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(row.in)
			if diff := cmp.Diff([]any{row.rule, row.do}, []any{plan.Rule, plan.Do}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if plan.Done == (plan.Why != "") {
				t.Errorf("expected a plan that is done or says why not, found done %t and %q", plan.Done, plan.Why)
			}
		})
	}
}

func with1(p Pod) Pod {
	p.Demote = true
	return p
}

func TestAStopSaysWhatToDo(t *testing.T) {
	pod := Pod{Exists: true, Ready: true, Outdated: true}
	plan := Decide(Observed{Name: "test", Known: true, Pods: []Pod{pod, pod, pod, pod, pod}, ClusteringStopped: true})
	for _, words := range []string{"moco-test-0", "and 2 more", "kubectl moco start clustering test"} {
		if !strings.Contains(plan.Why, words) {
			t.Errorf("expected %q in %q", words, plan.Why)
		}
	}
}

// toy is a world with a StatefulSet controller, a kubelet and clustering, each of which does one thing a step.
type toy struct {
	Observed
	// failing Pods do not become ready before they are replaced.
	failing [5]bool
}

// TestModel starts a rollout from every small world and follows it to its end.
func TestModel(t *testing.T) {
	states := []Pod{
		{},
		{Exists: true, Outdated: true},
		{Exists: true, Ready: true, Outdated: true, ReadyFor: Settle},
		{Exists: true, Ready: true, Outdated: true, Terminating: true, ReadyFor: Settle},
		{Exists: true},
		{Exists: true, Ready: true},
		{Exists: true, Ready: true, ReadyFor: Settle},
	}
	worlds := 0
	for _, n := range []int{1, 3, 5} {
		if n == 5 && testing.Short() {
			continue
		}
		all := 1
		for range n {
			all *= len(states)
		}
		for code := range all {
			for primary := range n {
				w := toy{Observed: Observed{Name: "toy", Known: true, Primary: primary}}
				for i, rest := 0, code; i < n; i, rest = i+1, rest/len(states) {
					w.Pods = append(w.Pods, states[rest%len(states)])
					w.failing[i] = w.Pods[i].Exists && w.Pods[i].Outdated && !w.Pods[i].Ready
				}
				if trouble := w.follow(); trouble != "" {
					t.Fatalf("from world %d of %d, primary %d: %s", code, n, primary, trouble)
				}
				worlds++
			}
		}
	}
	t.Logf("%d worlds", worlds)
}

// follow plays until the rollout is done.
func (w *toy) follow() string {
	const perPod = 12
	for range perPod * (len(w.Pods) + 1) {
		w.judge()
		plan := Decide(w.Observed)
		if plan.Done {
			return ""
		}
		if trouble := w.act(plan.Do); trouble != "" {
			return fmt.Sprintf("%s: %s in %+v", plan.Rule, trouble, w.Pods)
		}
		w.turn()
	}
	return fmt.Sprintf("it does not end: %s in %+v", Decide(w.Observed).Why, w.Pods)
}

// judge is what clustering vouches for.
func (w *toy) judge() {
	w.Healthy = len(w.which(func(p Pod) bool { return !p.Ready || p.Terminating })) == 0
}

func (w *toy) act(do Action) string {
	switch do := do.(type) {
	case Nothing:
	case Demote:
		if do.Ordinal != w.Primary {
			return "another than the primary is asked to hand over"
		}
		w.Pods[do.Ordinal].Demote = true
	case Replace:
		p := &w.Pods[do.Ordinal]
		serves := p.Ready
		others := w.which(func(p Pod) bool { return p.Outdated })
		down := w.which(func(p Pod) bool { return !p.Exists || p.Terminating || !p.Ready })
		switch {
		case !p.Outdated || p.Terminating || !p.Exists:
			return "a Pod is replaced without need"
		case serves && len(down) > 0:
			return "a second Pod is taken down"
		case do.Ordinal == w.Primary && len(others) > 1:
			return "the primary is replaced before another"
		case do.Ordinal == w.Primary && serves && len(w.Pods) > 1:
			return "the primary is replaced without a switchover"
		}
		p.Terminating = true
	}
	return ""
}

// turn lets everybody else do what is next.
func (w *toy) turn() {
	for i := range w.Pods {
		p := &w.Pods[i]
		switch {
		case !p.Exists:
			*p = Pod{Exists: true}
			w.failing[i] = false
		case p.Terminating:
			*p = Pod{}
		case !p.Ready && !w.failing[i]:
			p.Ready = true
		case p.Ready:
			p.ReadyFor = Settle
		}
	}
	if p := &w.Pods[w.Primary]; p.Demote {
		p.Demote = false
		w.Primary = (w.Primary + 1) % len(w.Pods)
	} else if w.failing[w.Primary] || !p.Exists {
		// A failover, if somebody is there to take over.
		for i, other := range w.Pods {
			if other.Ready && !other.Terminating {
				w.Primary = i
				break
			}
		}
	}
}
