// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

func havingOperators(operators ...ObservedOperator) func(*Observed) {
	return func(o *Observed) { o.Operators = operators }
}

// TestBrokenOperatorsAreRecorded varies the operators at the start of a hibernation.
func TestBrokenOperatorsAreRecorded(t *testing.T) {
	registry := ObservedOperator{Name: "image-registry", Problem: "degraded", IsBroken: true}
	busy := ObservedOperator{Name: "monitoring", Problem: "progressing"}
	before := resumedRecord(time.Hour)
	before.BrokenOperators = []string{"dns"}
	var names []string
	var many []ObservedOperator
	for i := range maxBrokenOperators + 1 {
		names = append(names, fmt.Sprintf("operator-%d", i))
		many = append(many, ObservedOperator{Name: names[i], Problem: "degraded", IsBroken: true})
	}
	cancelled := resumingRecord(time.Minute)
	cancelled.BrokenOperators = []string{"dns"}
	for name, row := range map[string]struct {
		in   Observed
		want []string
	}{
		"degraded operator is recorded, and a progressing one is not": {
			observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(readyNode("n0")), havingOperators(registry, busy, ObservedOperator{Name: "etcd"})),
			[]string{"image-registry"},
		},
		"operators that were read replace those of the last hibernation": {
			observedCluster(wantHibernating, before, actuator.Running, apiWithNodes(readyNode("n0")), havingOperators(registry)), []string{"image-registry"},
		},
		"operators of the last hibernation count if they cannot be read": {
			observedCluster(wantHibernating, before, actuator.Running, apiWithNodes(readyNode("n0")), func(o *Observed) { o.OperatorsError = "no answer in time" }), []string{"dns"},
		},
		"cancelled resume keeps the operators of its hibernation": {
			observedCluster(wantHibernating, cancelled, actuator.Running, apiWithNodes(readyNode("n0")), havingOperators(registry)), []string{"dns"},
		},
		"operators beyond the limit of the record are not recorded": {
			observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(readyNode("n0")), havingOperators(many...)), names[:maxBrokenOperators],
		},
		"operator that is listed twice is recorded once": {
			observedCluster(wantHibernating, nil, actuator.Running, apiWithNodes(readyNode("n0")), havingOperators(registry, registry)), []string{"image-registry"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if p.Rule != "record nodes" {
				t.Fatalf("expected the rule that saves the record, found %q", p.Rule)
			}
			if diff := cmp.Diff(row.want, p.Record.BrokenOperators); diff != "" {
				t.Errorf("recorded operators (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBrokenOperatorsAreNotAwaited varies the operators of clusters whose machines and nodes are back six minutes
// after the start of the resume.
func TestBrokenOperatorsAreNotAwaited(t *testing.T) {
	record := resumingRecord(6 * time.Minute)
	record.BrokenOperators = []string{"image-registry"}
	back := []func(*Observed){apiWithNodes(readyNode("n0"), readyNode("n1"))}
	registry := ObservedOperator{Name: "image-registry", Problem: "degraded", IsBroken: true, LastSeen: modelTime()}
	fine := ObservedOperator{Name: "etcd", LastSeen: modelTime()}
	busy := ObservedOperator{Name: "etcd", Problem: "progressing", LastSeen: modelTime()}
	skips := func(o *Observed) { o.SkipsOperators = true }
	for name, row := range map[string]struct {
		in          Observed
		ready       string
		wantMessage string
	}{
		"cluster runs degraded if an operator was broken before the hibernation and still is": {
			observedCluster("", record, actuator.Running, append(back, havingOperators(registry, fine))...), hivev1.RunningHibernationReason,
			"The cluster runs; the resume does not wait for ClusterOperators that were not ready even before the hibernation: image-registry (degraded)",
		},
		"resume waits for a progressing operator although another operator was broken before the hibernation": {
			observedCluster("", record, actuator.Running, append(back, havingOperators(registry, busy))...), hivev1.WaitingForClusterOperatorsReason, "",
		},
		"resume waits for a degraded operator that was not broken before the hibernation": {
			observedCluster("", resumingRecord(6*time.Minute), actuator.Running, append(back, havingOperators(registry, fine))...), hivev1.WaitingForClusterOperatorsReason, "",
		},
		"resume waits for operators that cannot be read": {
			observedCluster("", record, actuator.Running, append(back, func(o *Observed) { o.OperatorsError = "no answer" })...), hivev1.WaitingForClusterOperatorsReason, "",
		},
		"cluster runs if an operator was broken before the hibernation and is ready now": {
			observedCluster("", record, actuator.Running, append(back, havingOperators(ObservedOperator{Name: "image-registry"}, fine))...), hivev1.RunningHibernationReason, "",
		},
		"cluster runs degraded if an operator is not ready ten minutes after the start of the resume": {
			observedCluster("", func() *hivev1.HibernationRecord {
				r := resumingRecord(partialResumeAfter + time.Second)
				r.BrokenOperators = record.BrokenOperators
				return r
			}(), actuator.Running, append(back, havingOperators(registry, busy))...), hivev1.RunningHibernationReason,
			"The cluster runs; the resume no longer waits for ClusterOperators that were not ready after ten minutes: etcd (progressing)" +
				"; the resume does not wait for ClusterOperators that were not ready even before the hibernation: image-registry (degraded)",
		},
		"cluster with Hive's label runs degraded if an operator is not ready": {
			observedCluster("", resumingRecord(time.Minute), actuator.Running, append(back, havingOperators(busy), skips)...), hivev1.RunningHibernationReason,
			"The cluster runs; ClusterOperators are not ready, and hive.openshift.io/resume-skips-cluster-operators disables the wait for them: etcd (progressing)",
		},
		"cluster with Hive's label runs although an operator has not reported": {
			observedCluster("", resumingRecord(time.Minute), actuator.Running, append(back, havingOperators(ObservedOperator{Name: "etcd"}), skips)...), hivev1.RunningHibernationReason, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			want := decision.Condition{}
			if row.wantMessage != "" {
				want = decision.True(hivev1.ClusterOperatorsNotReadyReason, row.wantMessage)
			}
			if p.Ready.Reason != row.ready {
				t.Errorf("expected Ready with the reason %s, found %+v", row.ready, p.Ready)
			}
			if diff := cmp.Diff(want, p.Degraded); diff != "" {
				t.Errorf("degraded (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadyStaysTrueWhileAMachineComesLate follows a resume in which the cloud had no capacity for one machine at
// first.
func TestReadyStaysTrueWhileAMachineComesLate(t *testing.T) {
	record := resumingRecord(time.Minute)
	n0, n1 := readyNode("n0"), readyNode("n1")
	record.Nodes = recordedNodes(n0)
	busy := ObservedOperator{Name: "etcd", Problem: "progressing", LastSeen: modelTime()}
	cordoned := n1
	cordoned.Cordon = NodeCordon{IsSet: true, IsOurs: true}
	for _, pass := range []struct {
		name     string
		in       Observed
		degraded metav1.ConditionStatus
	}{
		{"the cloud refuses the machine", observedCluster("", nil, actuator.Running, secondMachine(actuator.Stopped), apiWithNodes(n0), func(o *Observed) {
			o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room for i-1"}, []string{"i-1"}}
		}), metav1.ConditionTrue},
		{"the machine starts", observedCluster("", nil, actuator.Running, secondMachine(actuator.Starting), apiWithNodes(n0)), metav1.ConditionTrue},
		{"the machine's node reports and operators react", observedCluster("", nil, actuator.Running, secondMachine(actuator.Starting), apiWithNodes(n0, n1), havingOperators(busy)), metav1.ConditionTrue},
		{"the machine's node is cordoned", observedCluster("", nil, actuator.Running, apiWithNodes(n0, cordoned), havingOperators(busy)), metav1.ConditionTrue},
		{"everything is back", observedCluster("", nil, actuator.Running, apiWithNodes(n0, n1)), ""},
	} {
		pass.in.Record = record
		p := Decide(pass.in)
		if p.Ready.Status != metav1.ConditionTrue || p.Degraded.Status != pass.degraded {
			t.Errorf("%s: expected Ready True and Degraded %q, found Ready %+v and Degraded %+v", pass.name, pass.degraded, p.Ready, p.Degraded)
		}
		record = p.Record
	}
	if record.ResumedAt == nil {
		t.Error("expected the end of the resume in the record, found none")
	}
}
