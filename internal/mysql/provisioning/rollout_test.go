// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func TestDecideRollout(t *testing.T) {
	fresh := PodState{Exists: true, Ready: true, Served: true, ReadyFor: SettleTime}
	old := PodState{Exists: true, Ready: true, Served: true, ReadyFor: SettleTime, Outdated: true}
	broken := PodState{Exists: true, Outdated: true}
	three := func(pods ...PodState) ObservedRollout {
		return ObservedRollout{Name: "test", RevisionKnown: true, Pods: pods, Primary: 1, Healthy: true, HasTurn: true}
	}
	with := func(o ObservedRollout, changes ...func(*ObservedRollout)) ObservedRollout {
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	kept := fresh
	kept.IsKept = true
	force := func(o *ObservedRollout) { o.Forced, o.Healthy = true, false }
	heal := func(o *ObservedRollout) { o.Healthy = true }
	for name, row := range map[string]struct {
		in   ObservedRollout
		rule string
		do   RolloutAction
	}{
		"an offline cluster has no Pods to replace":                                             {ObservedRollout{Offline: true}, "cluster is offline", Nothing{}},
		"all Pods are up to date: nothing to do":                                                {three(fresh, fresh, fresh), "rollout is complete", Nothing{}},
		"no Pod is replaced until the StatefulSet controller has observed the new template":     {ObservedRollout{Pods: []PodState{old}}, "the template is new", Nothing{}},
		"a missing Pod and no outdated Pod: nothing to replace":                                 {three(fresh, PodState{}, fresh), "nothing to replace", Nothing{}},
		"all Pods are outdated: the replica of the highest ordinal is replaced":                 {three(old, old, old), "replace a replica", ReplacePod{2}},
		"the last replica is replaced before the primary":                                       {three(old, old, fresh), "replace a replica", ReplacePod{0}},
		"a switchover is requested before the primary is replaced":                              {three(fresh, old, fresh), "demote the primary", RequestSwitchover{1}},
		"a requested switchover delays the replacement of the primary":                          {three(fresh, withDemotionRequested(old), fresh), "waiting for the switchover", Nothing{}},
		"a missing Pod delays the replacement of other Pods":                                    {three(fresh, old, PodState{}), "another Pod is not ready", Nothing{}},
		"a terminating Pod delays the replacement of other Pods":                                {three(PodState{Exists: true, Ready: true, Terminating: true, Outdated: true}, old, old), "another Pod is not ready", Nothing{}},
		"a new Pod that is not ready delays the replacement of other Pods":                      {three(PodState{Exists: true}, old, broken), "another Pod is not ready", Nothing{}},
		"a rollout waits until a new Pod has been ready for SettleTime":                         {three(PodState{Exists: true, Ready: true, Served: true, ReadyFor: 1}, old, old), "new Pod has just become ready", Nothing{}},
		"a broken Pod is replaced in an unhealthy cluster":                                      {with(three(old, old, broken), func(o *ObservedRollout) { o.Healthy = false }), "replace a broken Pod", ReplacePod{2}},
		"a broken primary is not replaced while other Pods are outdated":                        {with(three(old, broken, old), func(o *ObservedRollout) { o.Healthy = false }), "cluster is not healthy", Nothing{}},
		"a broken primary is replaced when it is the last outdated Pod":                         {with(three(fresh, broken, fresh), func(o *ObservedRollout) { o.Healthy = false }), "replace a broken Pod", ReplacePod{1}},
		"a rollout waits until the cluster is healthy":                                          {with(three(old, old, old), func(o *ObservedRollout) { o.Healthy = false }), "cluster is not healthy", Nothing{}},
		"a rollout waits until the cluster has a primary":                                       {with(three(old, old, old), func(o *ObservedRollout) { o.Primary = None }), "cluster is not healthy", Nothing{}},
		"a broken Pod is not replaced while clustering is stopped":                              {with(three(old, old, broken), func(o *ObservedRollout) { o.ClusteringStopped = true }), "clustering is stopped", Nothing{}},
		"a broken Pod is not replaced while clustering of an instance is stopped":               {with(three(old, old, broken), func(o *ObservedRollout) { o.StoppedInstances = true }), "clustering of instances is stopped", Nothing{}},
		"a new Pod without a role label delays the replacement of other Pods":                   {three(PodState{Exists: true, Ready: true, ReadyFor: SettleTime}, old, old), "role label is not set yet", Nothing{}},
		"a rollout waits while the maximum number of rollouts of other clusters is in progress": {with(three(old, old, old), func(o *ObservedRollout) { o.HasTurn = false }), "waiting for other rollouts", Nothing{}},
		"a broken Pod is replaced regardless of the rollouts of other clusters":                 {with(three(old, old, broken), func(o *ObservedRollout) { o.HasTurn = false }), "replace a broken Pod", ReplacePod{2}},
		"the only Pod is replaced without a switchover":                                         {ObservedRollout{RevisionKnown: true, Pods: []PodState{old}, Healthy: true, HasTurn: true}, "replace the only Pod", ReplacePod{0}},
		"a kept Pod of another version of Torpor is not replaced":                               {with(three(fresh, kept, fresh), force), "rollout is complete", Nothing{}},
		"a forced rollout replaces a Pod of an unhealthy cluster":                               {with(three(old, old, old), force), "forced replacement", ReplacePod{2}},
		"a forced rollout replaces a Pod of a cluster without a primary":                        {with(three(old, old, old), force, func(o *ObservedRollout) { o.Primary = None }), "forced replacement", ReplacePod{2}},
		"a forced rollout replaces the primary last":                                            {with(three(fresh, old, old), force), "forced replacement", ReplacePod{2}},
		"a forced rollout replaces the primary without a switchover":                            {with(three(fresh, old, fresh), force), "forced replacement", ReplacePod{1}},
		"a forced rollout replaces the only Pod":                                                {ObservedRollout{RevisionKnown: true, Pods: []PodState{old}, Forced: true}, "forced replacement", ReplacePod{0}},
		"a forced rollout begins with a switchover while the cluster is healthy":                {with(three(fresh, old, fresh), force, heal), "demote the primary", RequestSwitchover{1}},
		"a forced rollout of an unhealthy cluster ignores missing role labels":                  {with(three(PodState{Exists: true, Ready: true, ReadyFor: SettleTime}, old, old), force), "forced replacement", ReplacePod{2}},
		"a forced rollout of a healthy cluster waits for the role labels":                       {with(three(PodState{Exists: true, Ready: true, ReadyFor: SettleTime}, old, old), force, heal), "role label is not set yet", Nothing{}},
		"a forced rollout waits until a new Pod has been ready for SettleTime":                  {with(three(PodState{Exists: true, Ready: true, ReadyFor: 1}, old, old), force), "new Pod has just become ready", Nothing{}},
		"a forced rollout proceeds regardless of the rollouts of other clusters":                {with(three(old, old, old), force, heal, func(o *ObservedRollout) { o.HasTurn = false }), "replace a replica", ReplacePod{2}},
		"a forced rollout waits for a missing Pod":                                              {with(three(fresh, old, PodState{}), force), "another Pod is not ready", Nothing{}},
		"a forced rollout waits for a new Pod before it replaces a serving Pod":                 {with(three(PodState{Exists: true}, old, old), force), "another Pod is not ready", Nothing{}},
		"a forced rollout replaces a broken Pod while a new Pod is not ready":                   {with(three(PodState{Exists: true}, old, broken), force), "replace a broken Pod", ReplacePod{2}},
		"a forced rollout replaces a broken primary while a new Pod is not ready":               {with(three(PodState{Exists: true}, broken, old), force), "replace a broken Pod", ReplacePod{1}},
		"a forced rollout replaces serving replicas before the primary":                         {with(three(old, broken, old), force), "forced replacement", ReplacePod{2}},
		"a forced rollout does not override a stop of clustering":                               {with(three(old, old, old), force, func(o *ObservedRollout) { o.ClusteringStopped = true }), "clustering is stopped", Nothing{}},
		"a forced rollout does not override a stop of an instance":                              {with(three(old, old, old), force, func(o *ObservedRollout) { o.StoppedInstances = true }), "clustering of instances is stopped", Nothing{}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := DecideRollout(row.in)
			if diff := cmp.Diff([]any{row.rule, row.do}, []any{plan.Rule, plan.Action}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if plan.Done == (plan.Message != "") {
				t.Errorf("expected a plan that is done or says why not, found done %t and %q", plan.Done, plan.Message)
			}
		})
	}
}

func withDemotionRequested(p PodState) PodState {
	p.DemotionRequested = true
	return p
}

func TestRolloutMessageNamesTheCommandAfterAStop(t *testing.T) {
	pod := PodState{Exists: true, Ready: true, Outdated: true}
	plan := DecideRollout(ObservedRollout{Name: "test", RevisionKnown: true, Pods: []PodState{pod, pod, pod, pod, pod}, ClusteringStopped: true})
	for _, words := range []string{"moco-test-0", "and 2 more", "kubectl moco start clustering test"} {
		if !strings.Contains(plan.Message, words) {
			t.Errorf("expected %q in %q", words, plan.Message)
		}
	}
}

func TestWaitForHealthNamesTheWayOut(t *testing.T) {
	pod := PodState{Exists: true, Ready: true, Served: true, ReadyFor: SettleTime, Outdated: true}
	o := ObservedRollout{Name: "test", RevisionKnown: true, Pods: []PodState{pod}, HasTurn: true}
	if plan := DecideRollout(o); !strings.Contains(plan.Message, mocov1beta2.ForceRolloutAnnotation) {
		t.Errorf("expected the annotation in %q", plan.Message)
	}
	o.Forced = true
	if plan := DecideRollout(o); !plan.Forced || !strings.Contains(plan.Message, mocov1beta2.ForceRolloutAnnotation) {
		t.Errorf("expected a plan that is forced by the annotation, found %+v", plan)
	}
}

// modelState models a cluster with its StatefulSet controller, kubelet and clustering, each of which performs one
// action per step.
type modelState struct {
	ObservedRollout
	// neverReady marks Pods that do not become ready until they are replaced.
	neverReady [5]bool
	// isNeverHealthy is true for a cluster that cannot become healthy.
	isNeverHealthy bool
}

// TestModel follows a rollout from every combination of states of one, three or five Pods.
func TestModel(t *testing.T) { exploreModel(t, modelState{}) }

// TestForcedModel explores clusters that never become healthy. Their rollouts can finish only because of the
// annotation.
func TestForcedModel(t *testing.T) {
	exploreModel(t, modelState{isNeverHealthy: true, ObservedRollout: ObservedRollout{Forced: true}})
}

func exploreModel(t *testing.T, start modelState) {
	t.Helper()
	states := []PodState{
		{},
		{Exists: true, Outdated: true},
		{Exists: true, Ready: true, Outdated: true, ReadyFor: SettleTime},
		{Exists: true, Ready: true, Outdated: true, Terminating: true, ReadyFor: SettleTime},
		{Exists: true},
		{Exists: true, Ready: true},
		{Exists: true, Ready: true, Served: true, ReadyFor: SettleTime},
	}
	explored := 0
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
				m := start
				m.Name, m.RevisionKnown, m.HasTurn, m.Primary = "toy", true, true, primary
				for i, rest := 0, code; i < n; i, rest = i+1, rest/len(states) {
					m.Pods = append(m.Pods, states[rest%len(states)])
					m.neverReady[i] = m.Pods[i].Exists && m.Pods[i].Outdated && !m.Pods[i].Ready
				}
				if trouble := m.runToEnd(); trouble != "" {
					t.Fatalf("from state %d of %d, primary %d: %s", code, n, primary, trouble)
				}
				explored++
			}
		}
	}
	t.Logf("%d states", explored)
}

func (m *modelState) runToEnd() string {
	const perPod = 12
	for range perPod * (len(m.Pods) + 1) {
		m.observeHealth()
		plan := DecideRollout(m.ObservedRollout)
		if plan.Done {
			return ""
		}
		if trouble := m.act(plan.Action); trouble != "" {
			return fmt.Sprintf("%s: %s in %+v", plan.Rule, trouble, m.Pods)
		}
		m.stepOthers()
	}
	return fmt.Sprintf("it does not end: %s in %+v", DecideRollout(m.ObservedRollout).Message, m.Pods)
}

func (m *modelState) observeHealth() {
	m.Healthy = !m.isNeverHealthy && len(m.ordinalsWhere(func(p PodState) bool { return !p.Ready || p.Terminating })) == 0
}

func (m *modelState) act(do RolloutAction) string {
	switch do := do.(type) {
	case Nothing:
	case RequestSwitchover:
		if do.Ordinal != m.Primary {
			return "an instance other than the primary is asked to hand over"
		}
		m.Pods[do.Ordinal].DemotionRequested = true
	case ReplacePod:
		p := &m.Pods[do.Ordinal]
		serves := p.Ready
		others := m.ordinalsWhere(func(p PodState) bool { return p.Outdated })
		down := m.ordinalsWhere(func(p PodState) bool { return !p.Exists || p.Terminating || !p.Ready })
		if m.Forced && do.Ordinal != m.Primary { // A broken primary may prevent the other Pods from becoming ready.
			down = slices.DeleteFunc(down, func(i int) bool { return i == m.Primary && m.Pods[i].Outdated })
		}
		switch {
		case !p.Outdated || p.Terminating || !p.Exists:
			return "a Pod is replaced without need"
		case serves && len(down) > 0:
			return "a second Pod is taken down"
		case do.Ordinal == m.Primary && len(others) > 1 && !m.Forced:
			return "the primary is replaced before another"
		case do.Ordinal == m.Primary && serves && len(others) > 1:
			return "a primary that serves is replaced before another"
		case do.Ordinal == m.Primary && serves && len(m.Pods) > 1 && !m.Forced:
			return "the primary is replaced without a switchover"
		}
		p.Terminating = true
	}
	return ""
}

func (m *modelState) stepOthers() {
	for i := range m.Pods {
		p := &m.Pods[i]
		switch {
		case !p.Exists:
			*p = PodState{Exists: true}
			m.neverReady[i] = false
		case p.Terminating:
			*p = PodState{}
		case !p.Ready && !m.neverReady[i]:
			p.Ready = true
		case p.Ready:
			p.ReadyFor, p.Served = SettleTime, true
		}
	}
	if p := &m.Pods[m.Primary]; p.DemotionRequested {
		p.DemotionRequested = false
		m.Primary = (m.Primary + 1) % len(m.Pods)
	} else if m.neverReady[m.Primary] || !p.Exists {
		// Clustering performs a failover if another instance is ready.
		for i, other := range m.Pods {
			if other.Ready && !other.Terminating {
				m.Primary = i
				break
			}
		}
	}
}

func TestDecide(t *testing.T) {
	named := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
	}
	applied := func(name string) ObjectState {
		hash := HashContent(named(name))
		return ObjectState{Desired: named(name), AppliedHash: hash, ResultHash: hash, LiveHash: hash}
	}
	old := PodState{Exists: true, Ready: true, Served: true, ReadyFor: SettleTime, Outdated: true}
	for name, row := range map[string]struct {
		change func(*Observed)
		want   string
	}{
		"an outdated Pod is replaced when every object is up to date":          {func(*Observed) {}, "roll out"},
		"no action is taken while reconciliation is stopped":                   {func(o *Observed) { stopReconciliation(o.Cluster); o.NeedsPasswords = true }, ""},
		"an expired stop of reconciliation is ended before other actions":      {func(o *Observed) { stopReconciliation(o.Cluster); o.MayEndStop, o.NeedsPasswords = true, true }, "end the stop"},
		"missing passwords are added to the Secret before objects are applied": {func(o *Observed) { o.NeedsPasswords = true; o.Objects[0].LiveHash = ContentHash{} }, "the Secret"},
		"an object that was never applied is applied":                          {func(o *Observed) { o.Objects[0].AppliedHash = ContentHash{} }, "apply used"},
		"an object that another writer changed or deleted is applied again":    {func(o *Observed) { o.Objects[0].LiveHash = ContentHash{} }, "apply used"},
		"all objects that differ are applied in one pass": {func(o *Observed) {
			o.Objects = []ObjectState{{Desired: named("a")}, applied("b"), {Desired: named("c")}}
		}, "apply a, apply c"},
		"a ConfigMap that no Pod uses is deleted": {func(o *Observed) { o.ConfigMaps = append(o.ConfigMaps, named("old")) }, "prune old"},
		"a ConfigMap that a Pod uses is kept": {func(o *Observed) {
			o.ConfigMaps, o.UsedConfigMaps = append(o.ConfigMaps, named("old")), []string{"old"}
		}, "roll out"},
		"a ConfigMap is kept until the StatefulSet controller has observed the new template": {func(o *Observed) { o.ConfigMaps, o.Rollout.RevisionKnown = append(o.ConfigMaps, named("old")), false }, ""},
		"no action is taken if an object could not be read":                                  {func(o *Observed) { o.Err = errors.New("x"); o.Objects[0].LiveHash = ContentHash{} }, ""},
		"no action is taken while a user has to fix a problem":                               {func(o *Observed) { o.Problems = []string{"x"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{
				Cluster: &mocov1beta2.MySQLCluster{}, Desired: DesiredObjects{ConfigMapName: "used"}, Objects: []ObjectState{applied("used")},
				ConfigMaps: []*unstructured.Unstructured{named("used")},
				Rollout:    ObservedRollout{RevisionKnown: true, Pods: []PodState{old}, Healthy: true, HasTurn: true},
			}
			row.change(&seen)
			if got := effectsOf(Decide(seen)); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

func stopReconciliation(c *mocov1beta2.MySQLCluster) {
	c.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
}

func effectsOf(changes ChangeSet) string {
	var effects []string
	switch {
	case !changes.IsNotEmpty():
	case changes.EndsStop:
		effects = append(effects, "end the stop")
	case changes.CompletesPasswords:
		effects = append(effects, "the Secret")
	case changes.RollsOut():
		effects = append(effects, "roll out")
	default:
		for _, o := range changes.Apply {
			effects = append(effects, "apply "+o.GetName())
		}
		for _, o := range changes.Prune {
			effects = append(effects, "prune "+o.GetName())
		}
	}
	return strings.Join(effects, ", ")
}

func TestContentHashIgnoresBookkeeping(t *testing.T) {
	written := map[string]any{"kind": "Service", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"x": "y"}}
	read := map[string]any{
		"kind": "Service", "metadata": map[string]any{"name": "a", "resourceVersion": "7", "generation": int64(2)},
		"spec": map[string]any{"x": "y"}, "status": map[string]any{"z": "z"},
	}
	if HashContent(&unstructured.Unstructured{Object: written}) != HashContent(&unstructured.Unstructured{Object: read}) {
		t.Error("expected one hash for an object as it was written and as it was read, found two")
	}
}
