// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

// act applies what should be there. A Job cannot be changed: it is made once, and made again if somebody deletes it.
func (c Controller) act(ctx context.Context, cluster *mocov1beta2.MySQLCluster, seen observation) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return errors.Join(c.applyCronJob(ctx, cluster, seen), c.createRestoreJob(ctx, cluster, seen))
}

func (c Controller) applyCronJob(ctx context.Context, cluster *mocov1beta2.MySQLCluster, seen observation) error {
	name := policyName(cluster)
	switch {
	case name == "" && !seen.cronJob:
		return nil
	case name == "":
		old := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: backup.CronJobName(cluster.Name)}}
		if err := c.client.Delete(ctx, old, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the CronJob: %w", err)
		}
		return nil
	case seen.policy == nil:
		return fmt.Errorf("spec.backupPolicyName: expected a BackupPolicy %s in namespace %s, found none; make it, or remove the name", name, cluster.Namespace)
	}
	cron, err := backup.BuildCronJob(cluster, seen.policy, c.Image)
	if err != nil {
		return err
	}
	return c.applyObject(ctx, cron)
}

func (c Controller) createRestoreJob(ctx context.Context, cluster *mocov1beta2.MySQLCluster, seen observation) error {
	if cluster.Spec.Restore == nil || cluster.Status.RestoredTime != nil || seen.restore != nil {
		return nil
	}
	job, err := backup.BuildRestoreJob(cluster, c.Image)
	if err != nil {
		return err
	}
	return c.applyObject(ctx, job)
}

// applyObject says what the object should be; what others have set and we do not name stays.
func (c Controller) applyObject(ctx context.Context, obj client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s: %w", obj.GetName(), err)
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(Name), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), obj.GetName(), err)
	}
	return nil
}
