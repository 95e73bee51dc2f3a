// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GrantRights grants a user, such as alice or system:serviceaccount:prod:ci, the permissions of rules about
// resources, in all namespaces. It returns when they are in effect: the authorizer of the API server watches roles,
// which may take a while on a busy machine.
func (e *Environment) GrantRights(t testing.TB, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: strings.ReplaceAll(user, ":", "-")}
	e.ExpectCreated(t, &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	for _, rule := range rules {
		e.AwaitRight(t, firstRight(rule), user)
	}
}

// AwaitRight returns when a user with these groups has a permission.
func (e *Environment) AwaitRight(t testing.TB, right authorizationv1.ResourceAttributes, user string, groups ...string) {
	t.Helper()
	Eventually(t, user+" may "+right.Verb+" "+right.Resource, func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &right}}
		err := e.Client.Create(t.Context(), review)
		return errors.Join(err, ErrorIf(!review.Status.Allowed, "not yet"))
	})
}

// firstRight returns the first permission that a rule about resources grants.
func firstRight(rule rbacv1.PolicyRule) authorizationv1.ResourceAttributes {
	right := authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
	right.Resource, right.Subresource, _ = strings.Cut(rule.Resources[0], "/")
	if len(rule.ResourceNames) > 0 {
		right.Name = rule.ResourceNames[0]
	}
	return right
}
