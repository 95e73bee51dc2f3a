// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const tenMinutes = 10 * time.Minute

// drainBegan is the record of a hibernation with a drain in progress.
func drainBegan(before time.Duration) *hivev1.HibernationRecord {
	r := beganBefore(before)
	r.Drain = &hivev1.DrainRecord{}
	return r
}

// drainEnded is the record of a hibernation whose drain has ended.
func drainEnded(before time.Duration, left string) *hivev1.HibernationRecord {
	r := beganBefore(time.Hour)
	r.Drain = &hivev1.DrainRecord{EndedAt: new(secondsAgo(before)), Left: left}
	return r
}

func withBudget(o *Observed) { o.Options.DrainBudget = tenMinutes }

// workerNode is the second node. The first one, firstNode, belongs to the control plane.
func workerNode(c NodeCordon) ObservedNode {
	n := readyNode("n1")
	n.Cordon = c
	return n
}

func firstNode() ObservedNode {
	n := readyNode("n0")
	n.ControlPlane = true
	return n
}

func withPods(pods ...ObservedPod) func(*Observed) {
	return func(o *Observed) { o.Pods = WorkerPods{IsRead: true, Pods: pods} }
}

func podOf(name string) ObservedPod {
	return ObservedPod{Namespace: "shop", Name: name, UID: "uid-" + name, Node: "n1"}
}

func TestWorkersAreDrainedBeforeTheStop(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	stopping := hivev1.StoppingHibernationReason
	drain := func(do Action) expectedPlan {
		return expectedPlan{"drain workers", do, stopping, hivev1.DrainingWorkersReason, drainInterval}
	}
	end := expectedPlan{"record drain end", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately}
	stop := expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	ours, persons := NodeCordon{IsSet: true, IsOurs: true, ResourceVersion: "7"}, NodeCordon{IsSet: true, ResourceVersion: "7"}
	worker := NodeVersion{Name: "n1", UID: "uid-n1", ResourceVersion: "7"}
	open, cordoned := apiWithNodes(firstNode(), workerNode(NodeCordon{ResourceVersion: "7"})), apiWithNodes(firstNode(), workerNode(ours))
	leaving, bare := podOf("leaving"), podOf("bare")
	leaving.IsLeaving, bare.IsBare = true, true
	silent := func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }
	unread := func(o *Observed) { o.Pods = WorkerPods{Error: "pods cannot be read: no answer in time"} }
	more := func(o *Observed) { o.Pods.HasMore = true }
	refused, elsewhere := podOf("refused"), ObservedPod{Namespace: "shop", Name: "other", UID: "uid-other", Node: "n2"}
	refused.IsRefused = true
	closed := workerNode(NodeCordon{IsRefused: true, ResourceVersion: "7"})
	other := readyNode("n2")
	other.Cordon = ours
	revoked := func(o *Observed) { o.API, o.IsAPIProblemLasting = Unreachable, true }
	unlisted := func(o *Observed) { o.API, o.IsAPIForbidden = Unreachable, true }
	secret := func(o *Observed) { o.Pods = WorkerPods{IsForbidden: true, Error: "pods cannot be read"} }
	resting := func(o *Observed) { o.CordonError, o.IsCordonResting = "the server responds with 500", true }
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"workers are cordoned before their pods are evicted": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, open, withPods(podOf("a"))), drain(DrainWorkers{Cordon: []NodeVersion{worker}}),
		},
		"pods of cordoned workers are evicted": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(podOf("a"), leaving, bare)), drain(DrainWorkers{Evict: []ObservedPod{podOf("a")}}),
		},
		"pods of workers that a user has cordoned are evicted": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, apiWithNodes(firstNode(), workerNode(persons)), withPods(podOf("a"))),
			drain(DrainWorkers{Evict: []ObservedPod{podOf("a")}}),
		},
		"pods that are being deleted are awaited":                                                  {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(leaving)), drain(NoAction{})},
		"pods that could not be read are awaited":                                                  {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, unread), drain(NoAction{})},
		"unreachable cluster is awaited":                                                           {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, silent), drain(NoAction{})},
		"pods beyond the read limit are awaited":                                                   {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(), more), drain(NoAction{})},
		"drain ends when no pod is left":                                                           {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods()), end},
		"drain ends when only pods without a controller are left":                                  {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(bare)), end},
		"drain ends when its budget has elapsed":                                                   {observedCluster(wantHibernating, drainBegan(tenMinutes), on, withBudget, withPods(podOf("a"))), end},
		"drain ends when a user removes the budget":                                                {observedCluster(wantHibernating, drainBegan(time.Second), on), end},
		"drain ends when no machine runs":                                                          {observedCluster(wantHibernating, drainBegan(time.Second), actuator.Stopping, withBudget), end},
		"drain ends when only pods without a controller and pods with a refused eviction are left": {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(refused, bare)), end},
		"drain ends when the cluster refuses to evict every pod of a full page": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(refused), more), end,
		},
		"pod with a refused eviction does not delay other pods": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(refused, podOf("a"))), drain(DrainWorkers{Evict: []ObservedPod{refused, podOf("a")}}),
		},
		"pods that are being deleted are awaited even if evictions of others are refused": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, withPods(refused, leaving)), drain(DrainWorkers{Evict: []ObservedPod{refused}}),
		},
		"drain ends when the cluster refuses to cordon every node": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, apiWithNodes(firstNode(), closed), withPods(podOf("a"))), end,
		},
		"node that cannot be cordoned does not delay other nodes": {
			observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, apiWithNodes(firstNode(), closed, other), withPods(podOf("a"), elsewhere)),
			drain(DrainWorkers{Cordon: []NodeVersion{worker}, Evict: []ObservedPod{elsewhere}}),
		},
		"drain ends when the cluster refuses to list pods":                    {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, secret), end},
		"drain ends when the cluster refuses to list nodes":                   {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, unlisted), end},
		"drain ends when the cluster refuses the credentials":                 {observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, revoked), end},
		"machines are stopped after the drain":                                {observedCluster(wantHibernating, drainEnded(time.Second, ""), on, withBudget), stop},
		"drain budget set after the start of the hibernation starts no drain": {observedCluster(wantHibernating, openRecord(), on, withBudget), stop},
		"nodes are uncordoned before the cluster runs": {
			observedCluster("", resumingRecord(time.Second), on, cordoned), expectedPlan{"resuming, nodes cordoned", UncordonNodes{[]NodeVersion{worker}}, hivev1.ResumingHibernationReason, hivev1.WaitingForNodesReason, drainInterval},
		},
		"node cordoned by a user stays cordoned": {
			observedCluster("", resumingRecord(time.Second), on, apiWithNodes(firstNode(), workerNode(persons))), expectedPlan{"running", NoAction{}, hivev1.RunningHibernationReason, hivev1.RunningHibernationReason, minAftercareInterval},
		},
		"node that cannot be uncordoned does not delay the start of machines": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), cordoned, resting),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, hivev1.ResumingHibernationReason, hivev1.StartingMachinesReason, minProbeInterval},
		},
		"node that cannot be uncordoned is awaited for at most ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, cordoned, resting), expectedPlan{"running", NoAction{}, hivev1.RunningHibernationReason, hivev1.RunningHibernationReason, minAftercareInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectPlan(t, row.want, row.in)
		})
	}
}

func TestIncompleteDrainIsReported(t *testing.T) {
	const on = actuator.Running
	cordoned := apiWithNodes(firstNode(), workerNode(NodeCordon{IsSet: true, IsOurs: true}))
	leaving, bare := podOf("leaving"), podOf("bare")
	leaving.IsLeaving, bare.IsBare = true, true
	refused := podOf("refused")
	refused.IsRefused = true
	forbidden := func(o *Observed) {
		o.Pods.Error = "nodes or pods cannot be changed: the kubeconfig's user lacks a permission (403)"
	}
	kept := func(o *Observed) { o.Pods.Kept = []string{"shop/kept"} }
	all := withPods(podOf("kept"), podOf("other"), leaving, bare)
	const left = "pods that PodDisruptionBudgets protect from eviction: shop/kept; pods that are still being deleted: shop/leaving; pods that were not evicted yet: shop/other; " +
		"pods without a controller, which are not evicted: shop/bare"
	const draining = "Draining the workers before the machines are stopped, for at most 10m"
	for name, row := range map[string]struct {
		in         Observed
		want, left string
	}{
		"drain that has just begun lists no pods": {in: observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, cordoned, all, kept), want: draining},
		"long drain lists the pods":               {in: observedCluster(wantHibernating, drainBegan(lateAfter+time.Second), on, withBudget, cordoned, all, kept), want: draining + "; remaining: " + left},
		"end of a drain is recorded with the remaining pods": {
			in: observedCluster(wantHibernating, drainBegan(tenMinutes), on, withBudget, cordoned, all, kept), want: "Stopping the cluster's 2 machines", left: left,
		},
		"end of an unreachable cluster's drain is recorded with the error": {
			in: observedCluster(wantHibernating, drainBegan(tenMinutes), on, withBudget, func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }), want: "Stopping the cluster's 2 machines",
			left: "the API server does not answer: no answer in time",
		},
		"end of a refused drain is recorded with the refused nodes and pods": {
			in: observedCluster(wantHibernating, drainBegan(time.Second), on, withBudget, apiWithNodes(firstNode(), workerNode(NodeCordon{IsRefused: true})), withPods(refused, podOf("other")), forbidden), want: "Stopping the cluster's 2 machines",
			left: "nodes or pods cannot be changed: the kubeconfig's user lacks a permission (403); nodes that the cluster refuses to cordon: n1; pods that the cluster refuses to evict: shop/refused; pods that were not evicted yet: shop/other",
		},
		"error is not recorded if the drain left only pods without a controller": {
			in:   observedCluster(wantHibernating, drainBegan(time.Minute), on, withBudget, cordoned, withPods(bare), func(o *Observed) { o.Pods.Error = "nodes or pods cannot be changed: x" }),
			want: "Stopping the cluster's 2 machines", left: "pods without a controller, which are not evicted: shop/bare",
		},
		"stop reports the remaining pods": {
			in:   observedCluster(wantHibernating, drainEnded(time.Second, "pods that PodDisruptionBudgets protect from eviction: shop/kept"), on, withBudget),
			want: "Stopping the cluster's 2 machines; the workers were not drained completely; remaining: pods that PodDisruptionBudgets protect from eviction: shop/kept", left: "pods that PodDisruptionBudgets protect from eviction: shop/kept",
		},
		"unreachable cluster is not drained": {
			in: observedCluster(wantHibernating, nil, on, withBudget, func(o *Observed) { o.API = Unreachable }), want: "Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume",
			left: "all Pods, because the API server does not answer",
		},
		"nodes that cannot be uncordoned are listed": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, cordoned, func(o *Observed) { o.CordonError, o.IsCordonResting = "no", true }), want: "The cluster runs and its API server answers; cordoned nodes that cannot be uncordoned: n1: no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if p.Ready.Message != row.want {
				t.Errorf("found\n%s\nwant\n%s", p.Ready.Message, row.want)
			}
			var got string
			if p.Record.Drain != nil {
				got = p.Record.Drain.Left
			}
			if got != row.left {
				t.Errorf("the record has\n%s\nwant\n%s", got, row.left)
			}
		})
	}
}

func TestDrainIsNotReportedAsStalled(t *testing.T) {
	hour := func(o *Observed) { o.Options.DrainBudget = time.Hour }
	p := Decide(observedCluster(wantHibernating, drainBegan(30*time.Minute), actuator.Running, hour, apiWithNodes(firstNode()), func(o *Observed) { o.Pods.Error = "x" }))
	if p.Rule != "drain workers" || p.Stalled.Status == metav1.ConditionTrue {
		t.Errorf("expected a drain in progress, found %s: %+v", p.Rule, p.Stalled)
	}
}

func TestNewHibernationsAreDrained(t *testing.T) {
	p := Decide(observedCluster(wantHibernating, nil, actuator.Running, withBudget, apiWithNodes(firstNode())))
	if p.Record.Drain == nil || p.Record.Drain.EndedAt != nil {
		t.Errorf("expected the start of a drain, found %+v", p.Record.Drain)
	}
	if p := Decide(observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(firstNode()))); p.Record.Drain != nil {
		t.Errorf("expected no drain without a budget, found %+v", p.Record.Drain)
	}
}

func TestFormatBudget(t *testing.T) {
	for budget, want := range map[time.Duration]string{
		time.Hour: "1h", 10 * time.Minute: "10m", 10 * time.Second: "10s", 90 * time.Second: "1m30s", 70 * time.Minute: "1h10m", time.Millisecond: "1ms",
	} {
		if got := formatBudget(budget); got != want {
			t.Errorf("expected %s, found %s", want, got)
		}
	}
}

func TestReadStopOptions(t *testing.T) {
	ignored := func(found string) string {
		return "the annotation torpor.dev/drain-budget is ignored: expected a duration of at most one hour, such as 10m, found \"" + found + `"`
	}
	for name, row := range map[string]struct {
		annotations map[string]string
		want        StopOptions
	}{
		"missing options are the defaults":            {nil, StopOptions{}},
		"workers-first order is accepted":             {map[string]string{hivev1.StopOrderAnnotation: hivev1.StopWorkersFirst}, StopOptions{WorkersFirst: true}},
		"requirement HibernationPossible is accepted": {map[string]string{hivev1.RequireAnnotation: "HibernationPossible"}, StopOptions{RequiresPossible: true}},
		"unknown requirement is ignored and reported": {
			map[string]string{hivev1.RequireAnnotation: "Ready"}, StopOptions{Ignored: `the annotation torpor.dev/require is ignored: expected HibernationPossible, found "Ready"`},
		},
		"drain budget is accepted":                               {map[string]string{hivev1.DrainBudgetAnnotation: "90s"}, StopOptions{DrainBudget: 90 * time.Second}},
		"largest drain budget is accepted":                       {map[string]string{hivev1.DrainBudgetAnnotation: "1h"}, StopOptions{DrainBudget: time.Hour}},
		"drain budget above the maximum is ignored and reported": {map[string]string{hivev1.DrainBudgetAnnotation: "1h1s"}, StopOptions{Ignored: ignored("1h1s")}},
		"drain budget of zero is ignored and reported":           {map[string]string{hivev1.DrainBudgetAnnotation: "0s"}, StopOptions{Ignored: ignored("0s")}},
		"negative drain budget is ignored and reported":          {map[string]string{hivev1.DrainBudgetAnnotation: "-1m"}, StopOptions{Ignored: ignored("-1m")}},
		"drain budget without a unit is ignored and reported":    {map[string]string{hivev1.DrainBudgetAnnotation: "10"}, StopOptions{Ignored: ignored("10")}},
		"empty drain budget is ignored and reported":             {map[string]string{hivev1.DrainBudgetAnnotation: ""}, StopOptions{Ignored: ignored("")}},
		"very long drain budget is ignored and reported in a shortened form": {
			map[string]string{hivev1.DrainBudgetAnnotation: strings.Repeat("9", 1000)}, StopOptions{Ignored: ignored(strings.Repeat("9", 40))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, ReadStopOptions(row.annotations)); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}
