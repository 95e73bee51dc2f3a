// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// parallel is how many questions are asked at once for one request.
const parallel = 16

// Question is whether a caller may do something. An empty namespace means all of them.
type Question struct{ Namespace, Verb, Resource string }

type answer struct {
	allowed bool
	until   time.Time
}

// memory is what is known of a credential.
type memory struct {
	name   string
	groups []string
	until  time.Time

	mu      sync.Mutex
	answers map[Question]answer
}

// May asks the API server, as the caller, what the caller may do with a resource of korifi's group.
func (c *Caller) May(ctx context.Context, q Question) (bool, error) {
	now := c.clock.Now()
	c.memory.mu.Lock()
	known, ok := c.memory.answers[q]
	c.memory.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.allowed, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: q.Namespace, Verb: q.Verb, Group: korifiv1alpha1.GroupVersion().Group, Resource: q.Resource,
		},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask what the caller may: %w", err)
	}
	until := now.Add(remembered)
	if !review.Status.Allowed {
		until = now.Add(refused)
	}
	c.memory.mu.Lock()
	c.memory.answers[q] = answer{allowed: review.Status.Allowed, until: until}
	c.memory.mu.Unlock()
	return review.Status.Allowed, nil
}

// Where are those of the namespaces in which the caller may do something.
func (c *Caller) Where(ctx context.Context, namespaces []string, verb, resource string) (map[string]bool, error) {
	everywhere, err := c.May(ctx, Question{Verb: verb, Resource: resource})
	if err != nil {
		return nil, err
	}
	allowed := make([]bool, len(namespaces))
	wrong := make([]error, len(namespaces))
	slots := make(chan struct{}, parallel)
	var group sync.WaitGroup
	for i, namespace := range namespaces {
		if everywhere {
			allowed[i] = true
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			allowed[i], wrong[i] = c.May(ctx, Question{Namespace: namespace, Verb: verb, Resource: resource})
		})
	}
	group.Wait()
	found := map[string]bool{}
	for i, namespace := range namespaces {
		if allowed[i] {
			found[namespace] = true
		}
	}
	return found, errors.Join(wrong...)
}
