// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/torpor-dev/torpor/internal/syncset"
)

// act hands in a job; what becomes of it is observed by a later pass.
func (c Controller) act(_ context.Context, seen *clusterObservation, plan syncset.Plan) error {
	if plan.Job == nil || seen.Answer != nil {
		return nil // What the last job did is written down before the next.
	}
	job := &clusterJob{Job: *plan.Job, Cluster: seen.cluster, KubeconfigSecret: seen.kubeconfigSecret}
	for _, key := range plan.Job.Sets {
		for _, set := range seen.sets {
			if set.SetKey == key {
				job.Sets = append(job.Sets, set)
			}
		}
	}
	c.applier.Submit(seen.cluster, job)
	return nil
}
