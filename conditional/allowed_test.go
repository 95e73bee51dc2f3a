// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// reviewer simulates an API server that grants every right unless isDenied returns true. It takes 100 ms for an
// access review, and 1 ms for a rules review.
type reviewer struct {
	authorizationclient.AuthorizationV1Interface
	// rules is the result of every rules review.
	rules authorizationv1.SubjectRulesReviewStatus
	// errs are returned by the next rules reviews, one at a time.
	errs []error
	// isDenied reports whether an access review denies a right. If it is nil, no right is denied.
	isDenied func(authorizationv1.ResourceAttributes) bool

	mu                          sync.Mutex
	rulesReviews, accessReviews int
}

func (r *reviewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rulesReviews + r.accessReviews
}

type (
	rulesReviewer struct {
		authorizationclient.SelfSubjectRulesReviewInterface
		*reviewer
	}
	accessReviewer struct {
		authorizationclient.SelfSubjectAccessReviewInterface
		*reviewer
	}
)

func (r *reviewer) SelfSubjectRulesReviews() authorizationclient.SelfSubjectRulesReviewInterface {
	return rulesReviewer{reviewer: r}
}

func (r *reviewer) SelfSubjectAccessReviews() authorizationclient.SelfSubjectAccessReviewInterface {
	return accessReviewer{reviewer: r}
}

// Create implements SelfSubjectRulesReviewInterface.
func (r rulesReviewer) Create(_ context.Context, review *authorizationv1.SelfSubjectRulesReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	<-time.After(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rulesReviews++
	if len(r.errs) > 0 {
		err := r.errs[0]
		r.errs = r.errs[1:]
		return nil, err
	}
	answer := review.DeepCopy()
	answer.Status = r.rules
	return answer, nil
}

// Create implements SelfSubjectAccessReviewInterface.
func (r accessReviewer) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accessReviews++
	answer := review.DeepCopy()
	answer.Status.Allowed = r.isDenied == nil || !r.isDenied(*review.Spec.ResourceAttributes)
	return answer, nil
}

var allRules = authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{{
	Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"},
}}}

// observeStates returns the states that a group with 400 rights reports in its first rounds.
func observeStates(t *testing.T, server *reviewer, rounds int) (states []State) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	group := rightsReviewer{server: server, cache: &process.RulesCache{}, every: time.Hour, rights: make([]authorizationv1.ResourceAttributes, 400)}
	group.observe(ctx, func(status Status) {
		if states = append(states, status.State); len(states) == rounds {
			cancel()
		}
	})
	return states
}

// TestRightsAreReviewed covers the possible results of a rules review. One round does not have enough time for 400
// access reviews.
func TestRightsAreReviewed(t *testing.T) {
	forbidden := k8serrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectrulesreviews"}, "", nil)
	for name, row := range map[string]struct {
		server *reviewer
		want   []State
		// rulesReviews and accessReviews are the expected numbers of requests.
		rulesReviews, accessReviews int
	}{
		"rules that grant all rights: no access review":              {server: &reviewer{rules: allRules}, want: []State{True, True}, rulesReviews: 2},
		"rules that grant nothing: one access review for each right": {server: &reviewer{}, want: []State{Unknown, True}, rulesReviews: 1, accessReviews: 400},
		"an authorizer with incomplete rules: access reviews only until all rights have been granted": {
			server: &reviewer{rules: authorizationv1.SubjectRulesReviewStatus{ResourceRules: allRules.ResourceRules, Incomplete: true}},
			want:   []State{Unknown, True, True}, rulesReviews: 2, accessReviews: 400,
		},
		"forbidden rules reviews: one access review for each right": {
			server: &reviewer{errs: []error{forbidden}}, want: []State{Unknown, True}, rulesReviews: 1, accessReviews: 400,
		},
		"a rules review that fails once: the next round repeats it": {
			server: &reviewer{rules: allRules, errs: []error{errors.New("etcd is gone")}}, want: []State{Unknown, True}, rulesReviews: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := observeStates(t, row.server, len(row.want))
				if !slices.Equal(found, row.want) {
					t.Errorf("expected the states %v, found %v", row.want, found)
				}
				if row.server.rulesReviews != row.rulesReviews || row.server.accessReviews != row.accessReviews {
					t.Errorf("expected %d rules reviews and %d access reviews, found %d and %d",
						row.rulesReviews, row.accessReviews, row.server.rulesReviews, row.server.accessReviews)
				}
			})
		})
	}
}

// TestGroupsShareReviews observes the rights of fifteen groups in thirty namespaces over ten minutes.
func TestGroupsShareReviews(t *testing.T) {
	const groups, namespaces, minutes = 15, 30, 10
	synctest.Test(t, func(t *testing.T) {
		server, cache := &reviewer{rules: allRules}, &process.RulesCache{}
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute+30*time.Second)
		defer cancel()
		var running sync.WaitGroup
		for g := range groups {
			var rights []authorizationv1.ResourceAttributes
			for n := range namespaces {
				rights = append(rights, authorizationv1.ResourceAttributes{Verb: "list", Resource: fmt.Sprintf("kind-%d", g), Namespace: fmt.Sprintf("team-%d", n)})
			}
			running.Go(func() {
				group := rightsReviewer{server: server, cache: cache, every: time.Minute, rights: rights}
				group.observe(ctx, func(status Status) {
					if status.State != True {
						t.Errorf("expected the rights to be granted, found %v", status)
					}
				})
			})
		}
		running.Wait()
		if want := namespaces * (minutes + 1); server.rulesReviews != want || server.accessReviews != 0 {
			t.Errorf("expected %d rules reviews and no access review, found %d and %d", want, server.rulesReviews, server.accessReviews)
		}
	})
}

// TestReviewsOfManyNamespacesAreFew counts the reviews of fifteen groups with ten rights in each of thirty namespaces.
func TestReviewsOfManyNamespacesAreFew(t *testing.T) {
	const groups, namespaces, minutes, mostAtStart, mostPerMinute = 15, 30, 10, 100, 30
	var namespacedRules authorizationv1.SubjectRulesReviewStatus
	for g := range groups {
		namespacedRules.ResourceRules = append(namespacedRules.ResourceRules, authorizationv1.ResourceRule{
			Verbs: []string{"verb-0", "verb-1", "verb-2", "verb-3", "verb-4", "verb-5", "verb-6", "verb-7", "verb-8"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("kind-", g)},
		})
	}
	for name, row := range map[string]struct {
		server  *reviewer
		between time.Duration // between is the time between the starts of two groups
		want    State
	}{
		"granted rights, groups started at the same time: few reviews":     {&reviewer{rules: allRules}, 0, True},
		"granted rights, groups started one after the other: few reviews":  {&reviewer{rules: allRules}, 4 * time.Second, True},
		"a missing right, groups started at the same time: few reviews":    {&reviewer{rules: namespacedRules, isDenied: isLastVerb}, 0, False},
		"a missing right, groups started one after the other: few reviews": {&reviewer{rules: namespacedRules, isDenied: isLastVerb}, 4 * time.Second, False},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cache := &process.RulesCache{}
				var running sync.WaitGroup
				for g := range groups {
					var rights []authorizationv1.ResourceAttributes
					for v := range 10 {
						for n := range namespaces {
							rights = append(rights, authorizationv1.ResourceAttributes{Verb: fmt.Sprint("verb-", v), Resource: fmt.Sprint("kind-", g), Namespace: fmt.Sprint("team-", n)})
						}
					}
					running.Go(func() {
						<-time.After(time.Duration(g) * row.between)
						group := rightsReviewer{server: row.server, cache: cache, every: time.Minute, rights: rights}
						group.observe(ctx, func(status Status) {
							if status.State != row.want {
								t.Errorf("expected %v, found %v", row.want, status)
							}
						})
					})
				}
				most, before := mostAtStart, 0
				for minute := range minutes {
					<-time.After(time.Minute)
					now := row.server.count()
					if now-before > most {
						t.Errorf("minute %d: expected at most %d reviews, found %d", minute, most, now-before)
					}
					t.Logf("minute %d: %d reviews", minute, now-before)
					most, before = mostPerMinute, now
				}
				cancel()
				running.Wait()
			})
		})
	}
}

func isLastVerb(right authorizationv1.ResourceAttributes) bool { return right.Verb == "verb-9" }

// TestAGrantedRightIsFoundSoon grants a missing right, first by rules and then by an authorizer that does not list the
// right.
func TestAGrantedRightIsFoundSoon(t *testing.T) {
	for name, row := range map[string]struct {
		grant func(*reviewer)
		limit time.Duration
	}{
		"a right granted by rules: found after at most two review intervals":                                    {func(r *reviewer) { r.rules, r.isDenied = allRules, nil }, 2 * forbiddenInterval},
		"a right granted by an authorizer that does not list it: found after at most a minute and one interval": {func(r *reviewer) { r.isDenied = nil }, time.Minute + forbiddenInterval},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &reviewer{isDenied: func(authorizationv1.ResourceAttributes) bool { return true }}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var grantedAt time.Time
				go func() {
					<-time.After(5*time.Minute + 3*time.Second)
					server.mu.Lock()
					defer server.mu.Unlock()
					row.grant(server)
					grantedAt = time.Now()
				}()
				group := rightsReviewer{server: server, cache: &process.RulesCache{}, every: time.Minute, rights: make([]authorizationv1.ResourceAttributes, 1)}
				group.observe(ctx, func(status Status) {
					if status.State == True {
						cancel()
					}
				})
				server.mu.Lock()
				defer server.mu.Unlock()
				if late := time.Since(grantedAt); late > row.limit+time.Second {
					t.Errorf("the right was found after %s, want at most %s", late, row.limit)
				}
			})
		})
	}
}
