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
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// These are the reasons of a False condition that replace the state Dormant in a group's metric.
const (
	DisabledReason  = "Disabled"
	ForbiddenReason = "Forbidden"
	// ElsewhereReason means that another replica runs the group. No condition of this module has this reason: it is
	// for a condition about a Lease that another replica holds.
	ElsewhereReason = "Elsewhere"
)

const (
	forbiddenInterval = 10 * time.Second // forbiddenInterval is the longest pause between two checks of a missing right
	failedInterval    = 2 * time.Second  // failedInterval is the longest pause after a failed review
	maxReviewTime     = 30 * time.Second // maxReviewTime limits the reviews of one round

	// notANamespace is not a valid name of a namespace, so no RoleBinding exists there. A right that is granted there
	// is granted in the whole cluster.
	notANamespace = "-"
)

// shownStates returns the values of the label "state": the phases, and the reasons that replace Dormant.
func shownStates() []string {
	states := shownReasons()
	for _, p := range allPhases() {
		states = append(states, string(p))
	}
	return states
}

func shownReasons() []string { return []string{DisabledReason, ForbiddenReason, ElsewhereReason} }

// Disabled returns a Condition that is never true. A group with this Condition stays Dormant: it appears in the metrics
// and on the status page, but sends no requests to the API server.
func Disabled() Condition {
	return builtinCondition{
		name: DisabledReason,
		observeFunc: func(_ context.Context, _ Sources, report func(Status)) error {
			report(Status{State: False, Reason: DisabledReason, Message: "the group is disabled"})
			return nil
		},
	}
}

// Allowed is true while the API server grants all the rights. The rights are checked once per period with one
// SelfSubjectRulesReview per namespace. All groups of the manager share a review until it is one period old, so a
// revoked right is detected within two periods. A right that the rules do not grant is checked with a
// SelfSubjectAccessReview. If an authorizer does not list its rules, every right is checked in this way at first. Every
// authenticated user may create both reviews. While a right is missing, the shared rules are read at least every 10 s,
// and the access review is repeated once per period. If an authorizer does not list its rules, the access review is
// repeated at least every 10 s. Combine Allowed and Served with All, because a controller without the right to list a
// kind that it watches would log errors continuously.
func Allowed(every time.Duration, rights ...authorizationv1.ResourceAttributes) Condition {
	return builtinCondition{
		name:    "Allowed",
		mistake: errorUnless(every > 0 && len(rights) > 0, "condition Allowed needs a period longer than 0 and at least one right: pass both"),
		observeFunc: func(ctx context.Context, src Sources, report func(Status)) error {
			c, err := authorizationclient.NewForConfigAndClient(src.Config, src.HTTPClient)
			if err != nil {
				return fmt.Errorf("create client: %w", err)
			}
			server, release, err := process.AcquireState(src.toServer(), src.Logger)
			if err != nil {
				return err
			}
			defer release()
			reviewer := rightsReviewer{server: c, cache: &server.Rules, every: every, rights: rights}
			reviewer.observe(ctx, report)
			return nil
		},
	}
}

// rightsReviewer checks the rights of one group.
type rightsReviewer struct {
	server authorizationclient.AuthorizationV1Interface
	cache  *process.RulesCache
	every  time.Duration
	rights []authorizationv1.ResourceAttributes

	// doubtful lists the rights that need an access review, in the order of the next round.
	doubtful []authorizationv1.ResourceAttributes
	// deniedAt is the time at which an access review denied the first right of doubtful; zero if none did.
	deniedAt time.Time
	// wereGranted is true if a review has ever found all rights granted. It is never reset.
	wereGranted bool
}

func (r *rightsReviewer) observe(ctx context.Context, report func(Status)) {
	for {
		status, pause := r.review(ctx)
		if ctx.Err() != nil {
			return
		}
		report(status)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// review performs one round of reviews. It returns the resulting status and the pause before the next round.
func (r *rightsReviewer) review(ctx context.Context) (Status, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
	defer cancel()
	if r.isStillMissing(ctx) {
		return missingRight(r.doubtful[0]), r.missingPause()
	}
	r.deniedAt = time.Time{}
	if len(r.doubtful) == 0 {
		if err := r.readRules(ctx); err != nil {
			return Status{State: Unknown, Reason: "ReviewFailed", Message: err.Error()}, min(r.every, failedInterval)
		}
	}
	at, isMissing, err := findMissingRight(ctx, r.server.SelfSubjectAccessReviews(), r.doubtful)
	switch {
	case err != nil:
		r.doubtful = r.doubtful[at:] // The next round continues with this right, because a round has limited time.
		return Status{State: Unknown, Reason: "ReviewFailed", Message: err.Error()}, min(r.every, failedInterval)
	case isMissing:
		// The next round begins with the missing right. While it is missing, one access review per round is enough.
		r.doubtful, r.deniedAt = slices.Concat(r.doubtful[at:], r.doubtful[:at]), time.Now()
		return missingRight(r.doubtful[0]), r.missingPause()
	default:
		r.doubtful, r.wereGranted = nil, true
		return Status{State: True, Reason: "Allowed"}, r.every
	}
}

func (r *rightsReviewer) missingPause() time.Duration { return min(r.every, forbiddenInterval) }

// isStillMissing reports whether the right that was denied last is still missing, according to the shared rules. Rules
// need not list every granted right, so after one period another access review is necessary.
func (r *rightsReviewer) isStillMissing(ctx context.Context) bool {
	if r.deniedAt.IsZero() || time.Since(r.deniedAt) >= r.every {
		return false
	}
	right := r.doubtful[0]
	rules, err := r.cache.Read(ctx, r.server, rulesNamespace(right), r.missingPause())
	return err == nil && !rules.Incomplete && !isGranted(rules, right)
}

// rulesNamespace returns the namespace whose rules decide on a right.
func rulesNamespace(right authorizationv1.ResourceAttributes) string {
	return cmp.Or(right.Namespace, notANamespace)
}

func missingRight(right authorizationv1.ResourceAttributes) Status {
	return Status{State: False, Reason: ForbiddenReason, Message: "no permission to " + describeRight(right)}
}

// readRules sets doubtful to the rights that the rules do not grant, or to all rights if the rules cannot be used.
// Authorizers other than RBAC need not list their rules, and may deny a right that rules grant. Such a denial is
// detected only until all rights have been granted once.
func (r *rightsReviewer) readRules(ctx context.Context) error {
	byNamespace := map[string]authorizationv1.SubjectRulesReviewStatus{}
	for _, right := range r.rights {
		namespace := rulesNamespace(right)
		if _, isKnown := byNamespace[namespace]; isKnown {
			continue
		}
		// With a lower maximum age, groups that started at different times would share fewer reviews.
		rules, err := r.cache.Read(ctx, r.server, namespace, r.every)
		switch {
		case k8serrors.IsForbidden(err), k8serrors.IsNotFound(err), k8serrors.IsMethodNotSupported(err):
			r.doubtful = r.rights
			return nil
		case err != nil:
			return err
		}
		byNamespace[namespace] = rules
	}
	for _, right := range r.rights {
		rules := byNamespace[rulesNamespace(right)]
		if !isGranted(rules, right) || rules.Incomplete && !r.wereGranted {
			r.doubtful = append(r.doubtful, right)
		}
	}
	return nil
}

func isGranted(rules authorizationv1.SubjectRulesReviewStatus, right authorizationv1.ResourceAttributes) bool {
	return slices.ContainsFunc(rules.ResourceRules, func(rule authorizationv1.ResourceRule) bool { return grantsRight(rule, right) })
}

// grantsRight reports whether a rule grants a right. It does not evaluate wildcards for a part of a resource, such as
// */scale. A right that only such a rule grants is checked with an access review.
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

// findMissingRight returns the index of the first right that is not granted (isMissing) or could not be checked (err).
func findMissingRight(ctx context.Context, c authorizationclient.SelfSubjectAccessReviewInterface, rights []authorizationv1.ResourceAttributes) (at int, isMissing bool, err error) {
	for i := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &rights[i]}}
		answer, err := c.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return i, false, fmt.Errorf("check the permission to %s: %w", describeRight(rights[i]), err)
		}
		if !answer.Status.Allowed {
			return i, true, nil
		}
	}
	return len(rights), false, nil
}

// describeRight describes a right in the style of kubectl auth can-i.
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
