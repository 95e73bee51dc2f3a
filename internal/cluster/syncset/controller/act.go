// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/torpor-dev/torpor/internal/cluster/syncset"
)

// act submits a job. A later pass observes its result.
func (c Controller) act(_ context.Context, seen *clusterObservation, plan syncset.Plan) error {
	if plan.Job == nil || seen.Answer != nil {
		return nil // The result of the previous job is recorded before the next job begins.
	}
	job := &clusterJob{Job: *plan.Job, Cluster: seen.cluster, Server: seen.server}
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
