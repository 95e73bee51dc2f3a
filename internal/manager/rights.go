// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/config"
)

// rightsInterval is how often granted permissions are checked again.
const rightsInterval = time.Minute

// listRights returns the permissions that the role of a group of controllers grants, for each of the namespaces, or
// for all if the list is empty.
func listRights(controllers string, namespaces []string) ([]authorizationv1.ResourceAttributes, error) {
	data, err := config.ReadRole(controllers)
	if err != nil {
		return nil, err
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		return nil, fmt.Errorf("parse the role of %s: %w", controllers, err)
	}
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var rights []authorizationv1.ResourceAttributes
	for _, rule := range role.Rules {
		for _, namespace := range namespaces {
			rights = append(rights, expandRule(rule, namespace)...)
		}
	}
	return rights, nil
}

// expandRule splits a rule into single permissions. Rules of controllers name at least one group, resource and verb,
// and no objects.
func expandRule(rule rbacv1.PolicyRule, namespace string) (rights []authorizationv1.ResourceAttributes) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			name, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				rights = append(rights, authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: group, Resource: name, Subresource: subresource,
				})
			}
		}
	}
	return rights
}
