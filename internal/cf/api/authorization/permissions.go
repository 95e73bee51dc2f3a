// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// maxParallelReviews limits the concurrent reviews of one request.
const maxParallelReviews = 16

// Permission is a verb on a resource in a namespace. An empty namespace means all namespaces; an empty group means
// Korifi's group.
type Permission struct{ Namespace, Verb, Group, Resource string }

// callerIdentity is the user of a credential at the time of its review.
type callerIdentity struct {
	name     string
	groups   []string
	reviewed time.Time
}

// reviewedPermission is the cache key of a reviewed permission.
type reviewedPermission struct {
	fingerprint credentialFingerprint
	Permission
}

// May asks the API server, as the caller, whether the caller has a permission. Results are cached.
func (c *Caller) May(ctx context.Context, p Permission) (bool, error) {
	return c.review(ctx, p, denialTTL)
}

// review implements May. denied is the time for which a denial is cached.
func (c *Caller) review(ctx context.Context, p Permission, denied time.Duration) (bool, error) {
	key := reviewedPermission{c.fingerprint, p}
	known, _ := c.permissions.Get(key)
	if allowed, ok := known.(bool); ok {
		return allowed, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: p.Namespace, Verb: p.Verb, Group: cmp.Or(p.Group, korifiv1alpha1.GroupVersion().Group), Resource: p.Resource,
		},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("review the caller's permission: %w", err)
	}
	ttl := answerTTL
	if !review.Status.Allowed {
		ttl = denied
	}
	c.permissions.Add(key, review.Status.Allowed, ttl)
	return review.Status.Allowed, nil
}

// MayReadLogs asks the API server, as the caller and without the cache, whether the caller may read the logs of all
// Pods of a namespace.
func (c *Caller) MayReadLogs(ctx context.Context, namespace string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods", Subresource: "log"},
	}}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("review the caller's right to read logs: %w", err)
	}
	return review.Status.Allowed, nil
}

// ForgetAnswers drops the cached reviews of all callers. It is called after a role was granted or revoked.
func (c *Caller) ForgetAnswers() { c.permissions.RemoveAll(func(any) bool { return true }) }

// AllowedNamespaces returns the given namespaces in which the caller has a permission. It ignores the namespace of p. A
// caller may be denied in most of a thousand namespaces, so denials are cached for as long as grants.
func (c *Caller) AllowedNamespaces(ctx context.Context, namespaces []string, p Permission) (map[string]bool, error) {
	// An administrator may have the permission in all namespaces, in which case one review is enough.
	p.Namespace = ""
	everywhere, err := c.review(ctx, p, answerTTL)
	if err != nil {
		return nil, err
	}
	allowed := make([]bool, len(namespaces))
	var reviews errgroup.Group
	reviews.SetLimit(maxParallelReviews)
	for i, namespace := range namespaces {
		if allowed[i] = everywhere; everywhere {
			continue
		}
		reviews.Go(func() (err error) {
			one := p
			one.Namespace = namespace
			allowed[i], err = c.review(ctx, one, answerTTL)
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i, namespace := range namespaces {
		if allowed[i] {
			found[namespace] = true
		}
	}
	return found, nil
}
