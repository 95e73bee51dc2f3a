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

// maxParallelReviews is how many questions are asked at once for one request.
const maxParallelReviews = 16

// Permission is whether a caller may do something. An empty namespace means all of them.
type Permission struct{ Namespace, Verb, Resource string }

type answer struct {
	allowed bool
	until   time.Time
}

// identity is what is known of a credential.
type identity struct {
	name   string
	groups []string
	until  time.Time

	mu      sync.Mutex
	answers map[Permission]answer
}

// May asks the API server, as the caller, what the caller may do with a resource of korifi's group.
func (c *Caller) May(ctx context.Context, q Permission) (bool, error) {
	now := c.clock.Now()
	c.identity.mu.Lock()
	known, ok := c.identity.answers[q]
	c.identity.mu.Unlock()
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
	until := now.Add(answerTTL)
	if !review.Status.Allowed {
		until = now.Add(denialTTL)
	}
	c.identity.mu.Lock()
	c.identity.answers[q] = answer{allowed: review.Status.Allowed, until: until}
	c.identity.mu.Unlock()
	return review.Status.Allowed, nil
}

// AllowedNamespaces are those of the namespaces in which the caller may do something.
func (c *Caller) AllowedNamespaces(ctx context.Context, namespaces []string, verb, resource string) (map[string]bool, error) {
	everywhere, err := c.May(ctx, Permission{Verb: verb, Resource: resource})
	if err != nil {
		return nil, err
	}
	allowed := make([]bool, len(namespaces))
	wrong := make([]error, len(namespaces))
	slots := make(chan struct{}, maxParallelReviews)
	var group sync.WaitGroup
	for i, namespace := range namespaces {
		if everywhere {
			allowed[i] = true
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			allowed[i], wrong[i] = c.May(ctx, Permission{Namespace: namespace, Verb: verb, Resource: resource})
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
