// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// maxOver is how many deployments that are over an app keeps; it remembers as many revisions.
const maxOver = 20

// prune deletes the oldest deployments of the app that are over.
func (c Controller) prune(ctx context.Context, d *torporv1alpha1.CFDeployment) error {
	var list torporv1alpha1.CFDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return fmt.Errorf("list the app's deployments: %w", err)
	}
	over := slices.DeleteFunc(list.Items, func(other torporv1alpha1.CFDeployment) bool {
		return other.Spec.AppRef != d.Spec.AppRef || other.Status.Value != torporv1alpha1.FinalizedDeployment || !other.DeletionTimestamp.IsZero()
	})
	slices.SortFunc(over, func(a, b torporv1alpha1.CFDeployment) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var all []error
	for i := range max(0, len(over)-maxOver) {
		all = append(all, client.IgnoreNotFound(c.client.Delete(ctx, &over[i], client.Preconditions{UID: new(over[i].UID)})))
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("delete deployments that are over: %w", err)
	}
	return nil
}
