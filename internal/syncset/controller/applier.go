// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/clusterjobs"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/syncset"
)

// jobTime is how long a job may go on before other clusters have their turn: no set is begun after that, and what is left goes on in the
// next job.
const jobTime = time.Minute

// Applier applies sets to clusters beside the passes, which never wait for a cluster. Its fields are set before it is used.
type Applier struct {
	clusterjobs.Connector
	*clusterjobs.Runner[clusterJob, syncset.Answer, syncset.Attempt]
	Clock clock.PassiveClock
	// Metrics count what becomes of jobs.
	Metrics *Metrics
}

// clusterJob is a job with what is needed to do it.
type clusterJob struct {
	syncset.Job
	Cluster types.NamespacedName
	// KubeconfigSecret is in the namespace of the cluster.
	KubeconfigSecret string
	// Sets are those of the job, in its order.
	Sets []setToApply
}

// setToApply is a set as it was when the job was handed in. It is only read.
type setToApply struct {
	syncset.SetKey
	Generation int64
	Spec       *hivev1.SyncSetCommonSpec
	// IsUnreadable says that the selector of a SelectorSyncSet cannot be read.
	IsUnreadable bool
}

// NewApplier returns an applier that dials nobody before it is started.
func NewApplier(d targetcluster.Dialer, c clock.PassiveClock) *Applier {
	a := &Applier{Connector: clusterjobs.Connector{Dialer: d}, Clock: c, Metrics: NewMetrics()}
	a.Runner = clusterjobs.NewRunner(a.do, rememberAttempt)
	return a
}

// do does a job, and counts it.
func (a *Applier) do(ctx context.Context, job *clusterJob) (*syncset.Answer, clusterjobs.Outcome) {
	begun := a.Clock.Now()
	answer := a.run(ctx, job)
	took := answer.At.Sub(begun)
	a.Metrics.countJob(answer, took)
	// A set may have so many objects that one job of a cluster that answers slowly takes all of a job's time.
	return answer, clusterjobs.Outcome{At: answer.At, HasFailed: hasFailed(answer), IsSilent: answer.NoAnswer != "" || took > jobTime}
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
