// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/syncset"
)

const (
	// promptJobs are done at once, and patientJobs at clusters that did not answer before: they hold up no others.
	promptJobs, patientJobs = 40, 10
	// jobTime is how long a job may go on before other clusters have their turn: no set is begun after that, and what is left goes on in the
	// next job. jobTimeout bounds the set that is being applied then.
	jobTime, jobTimeout = time.Minute, 10 * time.Minute
	// minRetry and maxRetry bound the interval after an attempt that failed. It doubles.
	minRetry, maxRetry = 5 * time.Second, 10 * time.Minute
	// retryJitter keeps clusters that fail for one reason apart.
	retryJitter = 0.1
)

// Applier applies sets to clusters beside the passes, which never wait for a cluster. Its fields are set before it is used.
type Applier struct {
	Dialer targetcluster.Dialer
	Clock  clock.PassiveClock
	// ReadSecret reads a Secret of the hub.
	ReadSecret func(ctx context.Context, secret types.NamespacedName) (*corev1.Secret, error)
	// MayDial reports whether the cluster may be dialled now. It is asked before the connection, and before every request.
	MayDial func(ctx context.Context, cluster types.NamespacedName) bool
	// Metrics count what becomes of jobs.
	Metrics *Metrics
	// Enqueue has a cluster's pass run soon, and does not block.
	Enqueue func(cluster types.NamespacedName)

	prompt, patient workqueue.TypedInterface[types.NamespacedName]
	mu              sync.Mutex
	clusters        map[types.NamespacedName]*appliedCluster
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
}

// appliedCluster is what is known of one cluster. The lock of its applier guards it.
type appliedCluster struct {
	job *clusterJob
	// isRunning says that the job has begun.
	isRunning bool
	// answer is one that no pass has reported yet; nil if there is none.
	answer   *syncset.Answer
	attempt  syncset.Attempt
	failures int
	isSilent bool
}

// NewApplier returns an applier that dials nobody before it is started.
func NewApplier(d targetcluster.Dialer, c clock.PassiveClock) *Applier {
	return &Applier{
		Dialer: d, Clock: c, Metrics: NewMetrics(), clusters: map[types.NamespacedName]*appliedCluster{},
		prompt: workqueue.NewTyped[types.NamespacedName](), patient: workqueue.NewTyped[types.NamespacedName](),
	}
}

// Ask returns what became of the last job, and of the last attempt; false while a job is being done, after which the pass runs again.
func (a *Applier) Ask(cluster types.NamespacedName) (*syncset.Answer, syncset.Attempt, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[cluster]
	switch {
	case c == nil:
		return nil, syncset.Attempt{}, true
	case c.job != nil:
		return nil, syncset.Attempt{}, false
	default:
		return c.answer, c.attempt, true
	}
}

// Reported forgets an answer that is in the status.
func (a *Applier) Reported(cluster types.NamespacedName, answer *syncset.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.clusters[cluster]; c != nil && c.answer == answer {
		c.answer = nil
	}
}

// Submit hands a job in. One that is not over yet stays.
func (a *Applier) Submit(job *clusterJob) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[job.Cluster]
	if c == nil {
		c = &appliedCluster{}
		a.clusters[job.Cluster] = c
	}
	if c.job != nil {
		return
	}
	c.job = job
	if c.isSilent {
		a.patient.Add(job.Cluster)
	} else {
		a.prompt.Add(job.Cluster)
	}
}

// Forget forgets a cluster that is gone. A job that is being done ends by itself, because its cluster may not be dialled.
func (a *Applier) Forget(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.clusters[cluster]; c != nil && c.job == nil {
		delete(a.clusters, cluster)
	}
}

// Start implements manager.Runnable. It returns when ctx ends, with all that it has started.
func (a *Applier) Start(ctx context.Context) error {
	var work sync.WaitGroup
	for queue, count := range map[workqueue.TypedInterface[types.NamespacedName]]int{a.prompt: promptJobs, a.patient: patientJobs} {
		for range count {
			work.Go(func() { a.work(ctx, queue) })
		}
	}
	<-ctx.Done()
	a.prompt.ShutDown()
	a.patient.ShutDown()
	work.Wait()
	return nil
}

func (a *Applier) work(ctx context.Context, queue workqueue.TypedInterface[types.NamespacedName]) {
	for {
		name, isOver := queue.Get()
		if isOver {
			return
		}
		if job := a.take(name); job != nil && ctx.Err() == nil {
			begun := a.Clock.Now()
			answer := a.run(ctx, job)
			a.Metrics.countJob(answer, answer.At.Sub(begun))
			a.publish(ctx, job, answer)
		}
		queue.Done(name)
	}
}

func (a *Applier) take(name types.NamespacedName) *clusterJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[name]
	if c == nil || c.job == nil || c.isRunning {
		return nil
	}
	c.isRunning = true
	return c.job
}

// publish keeps an answer until a pass has reported it.
func (a *Applier) publish(ctx context.Context, job *clusterJob, answer *syncset.Answer) {
	if ctx.Err() != nil {
		return // What was cut off by the end of the manager is not about the cluster.
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[job.Cluster]
	c.job, c.isRunning, c.answer, c.isSilent = nil, false, answer, answer.NoAnswer != ""
	c.attempt = syncset.Attempt{Fingerprint: job.Fingerprint, NoAnswer: answer.NoAnswer, NotDeleted: answer.NotDeleted}.AddReached(c.attempt, answer)
	if hasFailed(answer) {
		interval := min(minRetry<<min(c.failures, 10), maxRetry)
		c.failures++
		c.attempt.RetryAt = answer.At.Add(wait.Jitter(interval, retryJitter))
	} else {
		c.failures = 0
	}
	a.Enqueue(job.Cluster)
}

func hasFailed(answer *syncset.Answer) bool {
	for _, r := range answer.Results {
		if r.Failure != "" {
			return true
		}
	}
	return answer.NoAnswer != "" || answer.NotDeleted != ""
}
