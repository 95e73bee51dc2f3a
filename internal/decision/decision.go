// SPDX-License-Identifier: Apache-2.0

// Package decision contains the types that all decisions share: rules, and the conditions and events that a plan
// reports. The first rule that matches applies. The package has no side effects, so a decision can be tested
// exhaustively.
package decision

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rule is one rule of a decision. O is the type of the observation, and P is the type of the plan.
type Rule[O, P any] struct {
	// Name describes in a few words when the rule matches. It is logged with the plan.
	Name string
	// When reports whether the rule matches.
	When func(O) bool
	// Then returns the plan for an observation for which When is true.
	Then func(O) P
}

// First returns the plan of the first rule that matches, and the rule's name. If no rule matches, it returns the zero
// plan and an empty name. A decision is total if its last rule always matches.
func First[O, P any](rules []Rule[O, P], observed O) (P, string) {
	for _, rule := range rules {
		if rule.When(observed) {
			return rule.Then(observed), rule.Name
		}
	}
	var none P
	return none, ""
}

// Always matches every observation. It is used as When of the last rule.
func Always[O any](O) bool { return true }

// Condition is a status condition without its type and without the metadata of its object.
type Condition struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// True returns a condition with status True.
func True(reason, message string) Condition {
	return Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// False returns a condition with status False.
func False(reason, message string) Condition {
	return Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// Unknown returns a condition with status Unknown. The reason explains why the status cannot be determined.
func Unknown(reason, message string) Condition {
	return Condition{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// Event describes an event to emit about an object.
type Event struct {
	// Warning means that the event reports a problem and has the type Warning. Other events have the type Normal.
	Warning bool
	// Reason is a CamelCase word. Action is the performed action, in the same style.
	Reason, Action string
	// Note is a message for users.
	Note string
}
