// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFirstRuleThatMatchesWins(t *testing.T) {
	rules := []Rule[int, string]{
		{"negative", func(n int) bool { return n < 0 }, func(int) string { return "below" }},
		{"small", func(n int) bool { return n < 10 }, func(int) string { return "few" }},
		{"any positive", func(n int) bool { return n > 0 }, func(int) string { return "many" }},
	}
	for observed, want := range map[int][2]string{-1: {"below", "negative"}, 0: {"few", "small"}, 9: {"few", "small"}, 10: {"many", "any positive"}} {
		plan, rule := First(rules, observed)
		if plan != want[0] || rule != want[1] {
			t.Errorf("%d: expected %v, found %q by rule %q", observed, want, plan, rule)
		}
	}
	if plan, rule := First(rules[:1], 5); plan != "" || rule != "" {
		t.Errorf("without a match: expected nothing, found %q by rule %q", plan, rule)
	}
	if plan, rule := First(append(rules[:1:1], Rule[int, string]{"otherwise", Always[int], func(int) string { return "rest" }}), 5); plan != "rest" || rule != "otherwise" {
		t.Errorf("with a last rule: expected rest by rule otherwise, found %q by rule %q", plan, rule)
	}
}

func TestConditionConstructorsSetTheStatus(t *testing.T) {
	for status, found := range map[metav1.ConditionStatus]Condition{
		metav1.ConditionTrue: True("Runs", "It runs"), metav1.ConditionFalse: False("Runs", "It runs"), metav1.ConditionUnknown: Unknown("Runs", "It runs"),
	} {
		if want := (Condition{Status: status, Reason: "Runs", Message: "It runs"}); found != want {
			t.Errorf("expected %+v, found %+v", want, found)
		}
	}
}
