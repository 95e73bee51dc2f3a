// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// The reasons of a False condition that a Dormant group shows as its state in its metric and its log.
const (
	DisabledReason  = "Disabled"
	ForbiddenReason = "Forbidden"
)

const (
	forbiddenInterval = 10 * time.Second // between two reviews of a missing right
	failedInterval    = 2 * time.Second  // after a review without an answer
	maxReviewTime     = 30 * time.Second // for all reviews of a round

	// notANamespace has no RoleBindings: a right that is granted there is granted in the whole cluster.
	notANamespace = "-"
)

// shownStates returns the values of the label "state": the phases, and the reasons that replace Dormant.
func shownStates() []string {
	states := []string{DisabledReason, ForbiddenReason}
	for _, p := range allPhases() {
		states = append(states, string(p))
	}
	return states
}

// Disabled never holds. The group appears in metrics and on the status page, and makes no requests.
func Disabled() Condition {
	return builtinCondition{
		name: DisabledReason,
		observeFunc: func(_ context.Context, _ Sources, report func(Status)) error {
			report(Status{State: False, Reason: DisabledReason, Message: "it is switched off"})
			return nil
		},
	}
}

// Allowed holds while the API server grants all the rights. At first, each right is checked by a
// SelfSubjectAccessReview. After that, one SelfSubjectRulesReview per namespace checks all of them once per period.
// Every authenticated user may create both reviews. A missing right is checked every 10 s. Combine Allowed and Served
// by All: a controller without the right to list a kind that it watches would log errors without end.
func Allowed(every time.Duration, rights ...authorizationv1.ResourceAttributes) Condition {
	return builtinCondition{
		name:    "Allowed",
		mistake: errorUnless(every > 0 && len(rights) > 0, "condition Allowed needs a period longer than 0 and at least one right: pass both"),
		observeFunc: func(ctx context.Context, src Sources, report func(Status)) error {
			c, err := authorizationclient.NewForConfigAndClient(src.Config, src.HTTPClient)
			if err != nil {
				return fmt.Errorf("make client: %w", err)
			}
			observeRights(ctx, c, every, rights, report)
			return nil
		},
	}
}

func observeRights(ctx context.Context, c authorizationclient.AuthorizationV1Interface, every time.Duration, rights []authorizationv1.ResourceAttributes, report func(Status)) {
	doubtful := rights
	for {
		at, isMissing, err := findMissingRight(ctx, c.SelfSubjectAccessReviews(), doubtful)
		pause := every
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(every, failedInterval)
			doubtful = doubtful[at:] // Many rights in many namespaces may take several rounds.
			report(Status{State: Unknown, Reason: "ReviewFailed", Message: err.Error()})
		case isMissing:
			pause = min(every, forbiddenInterval)
			report(Status{State: False, Reason: ForbiddenReason, Message: "no right to " + describeRight(doubtful[at])})
			// The next round begins with this right: while it is missing, one review is enough.
			doubtful = slices.Concat(doubtful[at:], doubtful[:at])
		default:
			report(Status{State: True, Reason: "Allowed"})
			doubtful = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if len(doubtful) == 0 {
			doubtful = findDoubtfulRights(ctx, c.SelfSubjectRulesReviews(), rights)
		}
	}
}

// findDoubtfulRights returns the rights that the caller's rules do not grant, or that could not be checked.
// Authorizers other than RBAC need not list their rules, and may deny a right that rules grant; that is only noticed
// at the next start.
func findDoubtfulRights(ctx context.Context, c authorizationclient.SelfSubjectRulesReviewInterface, rights []authorizationv1.ResourceAttributes) (doubtful []authorizationv1.ResourceAttributes) {
	ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
	defer cancel()
	rules := map[string][]authorizationv1.ResourceRule{}
	for _, right := range rights {
		namespace := cmp.Or(right.Namespace, notANamespace)
		if _, isKnown := rules[namespace]; !isKnown {
			review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
			answer, err := c.Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return rights
			}
			rules[namespace] = answer.Status.ResourceRules
		}
		if !slices.ContainsFunc(rules[namespace], func(rule authorizationv1.ResourceRule) bool { return grantsRight(rule, right) }) {
			doubtful = append(doubtful, right)
		}
	}
	return doubtful
}

// grantsRight does not match wildcards for parts of a resource: such a right is checked by an access review.
func grantsRight(rule authorizationv1.ResourceRule, right authorizationv1.ResourceAttributes) bool {
	resource := right.Resource
	if right.Subresource != "" {
		resource += "/" + right.Subresource
	}
	has := func(values []string, want string) bool {
		return slices.Contains(values, want) || slices.Contains(values, "*")
	}
	return has(rule.Verbs, right.Verb) && has(rule.APIGroups, right.Group) && has(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, right.Name))
}

// findMissingRight returns the index of the first right that is not granted or could not be checked.
func findMissingRight(ctx context.Context, c authorizationclient.SelfSubjectAccessReviewInterface, rights []authorizationv1.ResourceAttributes) (at int, isMissing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
	defer cancel()
	for i := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &rights[i]}}
		answer, err := c.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return i, false, fmt.Errorf("ask for the right to %s: %w", describeRight(rights[i]), err)
		}
		if !answer.Status.Allowed {
			return i, true, nil
		}
	}
	return len(rights), false, nil
}

// describeRight describes a right like kubectl auth can-i.
func describeRight(r authorizationv1.ResourceAttributes) string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	words := []string{r.Verb, resource}
	if r.Name != "" {
		words = append(words, r.Name)
	}
	if r.Namespace != "" {
		words = append(words, "in namespace "+r.Namespace)
	}
	return strings.Join(words, " ")
}
