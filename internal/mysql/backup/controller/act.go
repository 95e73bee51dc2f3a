// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act carries out the parts of the plan. An error about the CronJob does not prevent the restore of the cluster.
func (c Controller) act(ctx context.Context, seen observation, plan backup.Plan) error {
	return errors.Join(c.actOnCronJob(ctx, seen, plan.CronJob), c.actOnShipper(ctx, plan.Shipper), c.actOnRestore(ctx, plan.Restore))
}

func (c Controller) actOnCronJob(ctx context.Context, seen observation, plan backup.CronJobPlan) error {
	switch {
	case plan.Err != nil:
		return plan.Err
	case plan.Delete != nil:
		return reconcile.DeleteObserved(ctx, c.client, plan.Delete)
	case plan.Apply != nil:
		if seen.CronJob != nil && c.Guard.HasUpstreamWritten(seen.Cluster) {
			// Without this takeover of fields, the containers of MOCO's Job would run in addition to Torpor's.
			if err := c.Guard.TakeFieldsOver(ctx, c.client, seen.CronJob.DeepCopy(), Name); err != nil {
				return err
			}
		}
		return c.applyObject(ctx, plan.Apply)
	}
	return nil
}

func (c Controller) actOnShipper(ctx context.Context, plan backup.ShipperPlan) error {
	switch {
	case plan.Delete != nil:
		return reconcile.DeleteObserved(ctx, c.client, plan.Delete)
	case plan.Apply != nil:
		return c.applyObject(ctx, plan.Apply)
	}
	return plan.Err
}

func (c Controller) actOnRestore(ctx context.Context, plan backup.RestorePlan) error {
	if plan.Create == nil {
		return plan.Err
	}
	return c.applyObject(ctx, plan.Create)
}

// applyObject applies the fields that are set in obj, even if other writers own them, and changes no other fields.
func (c Controller) applyObject(ctx context.Context, obj client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s: %w", obj.GetName(), err)
	}
	// The typed object has an empty status, which the API server would treat as a requested change.
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(Name), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), obj.GetName(), err)
	}
	return nil
}
