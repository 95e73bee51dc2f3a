// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// RulesCache caches the manager's rules by namespace, so the groups of an API server share one SelfSubjectRulesReview
// per namespace. The zero value is empty.
type RulesCache struct {
	mu         sync.Mutex
	namespaces map[string]*namespaceRules
}

// namespaceRules contains the rules in one namespace. turn is a lock: it contains a value while a goroutine reads or
// replaces the rules.
type namespaceRules struct {
	turn   chan struct{}
	readAt time.Time // zero before the first response
	rules  authorizationv1.SubjectRulesReviewStatus
}

// Read returns the rules of a namespace that are not older than maxAge. The caller must not modify them. Concurrent
// callers share one request. Errors are not cached.
func (c *RulesCache) Read(ctx context.Context, server authorizationclient.SelfSubjectRulesReviewsGetter, namespace string, maxAge time.Duration) (authorizationv1.SubjectRulesReviewStatus, error) {
	found := c.find(namespace)
	select {
	case found.turn <- struct{}{}:
		defer func() { <-found.turn }()
	case <-ctx.Done():
		return authorizationv1.SubjectRulesReviewStatus{}, fmt.Errorf("read own rights in namespace %s: %w", namespace, context.Cause(ctx))
	}
	if !found.readAt.IsZero() && time.Since(found.readAt) < maxAge {
		return found.rules, nil
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	answer, err := server.SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectRulesReviewStatus{}, fmt.Errorf("read own rights in namespace %s: %w", namespace, err)
	}
	found.rules, found.readAt = answer.Status, time.Now()
	return found.rules, nil
}

func (c *RulesCache) find(namespace string) *namespaceRules {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces == nil {
		c.namespaces = map[string]*namespaceRules{}
	}
	if c.namespaces[namespace] == nil {
		c.namespaces[namespace] = &namespaceRules{turn: make(chan struct{}, 1)}
	}
	return c.namespaces[namespace]
}
