// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
)

// jobTime limits the duration of a job, so that jobs of other clusters can run. No set is started after that time. The
// remaining sets are applied by the next job.
const jobTime = time.Minute

// Applier applies sets to clusters outside of reconcile passes, so that no pass waits for a cluster. Its fields are set
// before it is used.
type Applier struct {
	targetcalls.Connector
	*targetcalls.Runner[clusterJob, syncset.Answer, syncset.Attempt]
	Clock clock.PassiveClock
	// Metrics count the results of jobs.
	Metrics *Metrics
}

// clusterJob is a job and the data that it needs.
type clusterJob struct {
	syncset.Job
	Cluster types.NamespacedName
	Server  targetcalls.Server
	// Sets are the job's sets, in its order.
	Sets []setToApply
}

// setToApply is a set as it was when the job was submitted. It is read-only.
type setToApply struct {
	syncset.SetKey
	Generation int64
	Spec       *hivev1.SyncSetCommonSpec
	// IsUnreadable reports that the selector of a SelectorSyncSet is invalid.
	IsUnreadable bool
}

// NewApplier returns an applier, which dials no cluster until it is started.
func NewApplier(d targetcluster.Dialer, c clock.PassiveClock) *Applier {
	a := &Applier{Connector: targetcalls.Connector{Dialer: d}, Clock: c, Metrics: NewMetrics()}
	a.Runner = targetcalls.NewRunner(a.do, rememberAttempt)
	return a
}

// do runs a job, and counts it in the metrics.
func (a *Applier) do(ctx context.Context, job *clusterJob) (*syncset.Answer, targetcalls.Outcome) {
	begun := a.Clock.Now()
	answer := a.run(ctx, job)
	took := answer.At.Sub(begun)
	a.Metrics.countJob(answer, took)
	// A set may have so many objects that one job at a slow cluster uses its whole time. The next job of this cluster
	// must not delay other clusters.
	return answer, targetcalls.Outcome{At: answer.At, HasFailed: hasFailed(answer), IsSilent: answer.NoAnswer != "" || took > jobTime}
}

func rememberAttempt(before syncset.Attempt, answer *syncset.Answer, retryAt time.Time) syncset.Attempt {
	attempt := syncset.Attempt{Fingerprint: answer.Job.Fingerprint, RetryAt: retryAt, NoAnswer: answer.NoAnswer, NotDeleted: answer.NotDeleted}
	return attempt.AddReached(before, answer)
}

func hasFailed(answer *syncset.Answer) bool {
	for _, r := range answer.Results {
		if r.Failure != "" {
			return true
		}
	}
	return answer.NoAnswer != "" || answer.NotDeleted != ""
}
