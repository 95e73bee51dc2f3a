// SPDX-License-Identifier: Apache-2.0

package targetcalls

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/internal/background"
)

const (
	// promptJobs is the number of parallel jobs. patientJobs is the number of parallel jobs for clusters that were
	// unreachable or slow before, so they do not delay other clusters.
	promptJobs, patientJobs = 40, 10
	// jobTimeout limits the duration of a job.
	jobTimeout = 10 * time.Minute
	// minRetry and maxRetry limit the interval after a failed attempt. The interval doubles with each failure.
	minRetry, maxRetry = 5 * time.Second, 10 * time.Minute
	// retryJitter spreads the retries of clusters that fail for the same reason.
	retryJitter = 0.1
)

// Outcome is the part of a job's result that the runner needs.
type Outcome struct {
	At time.Time
	// HasFailed is true if the same job should be retried. IsSilent is true if the cluster did not respond, or
	// responded so slowly that it must not delay others.
	HasFailed, IsSilent bool
}

// Runner runs at most one job for each object at any time. J is a job, A is the result of the job, and M is the state
// that is kept about the last attempt. The fields are set before the runner is used.
type Runner[J, A, M any] struct {
	// Do runs a job. The job stops at the first request without a response, and when the cluster may no longer be
	// dialled.
	Do func(ctx context.Context, job *J) (*A, Outcome)
	// Remember returns the state to keep about an attempt, given the state of the previous attempt. A zero retryAt
	// means that the attempt has not failed.
	Remember func(before M, answer *A, retryAt time.Time) M

	clock   clock.PassiveClock
	objects *background.Service[types.NamespacedName, attemptedJob[J, A, M]]
	// enqueue schedules a pass of the object, and does not block.
	enqueue func(object types.NamespacedName)
}

// attemptedJob is the state of one object.
type attemptedJob[J, A, M any] struct {
	job *J
	// answer is the result that no pass has reported yet; nil if there is none
	answer   *A
	attempt  M
	failures int
	isSilent bool
}

// NewRunner returns a runner, which dials no cluster until it is started.
func NewRunner[J, A, M any](do func(context.Context, *J) (*A, Outcome), remember func(M, *A, time.Time) M) *Runner[J, A, M] {
	r := &Runner[J, A, M]{Do: do, Remember: remember, clock: clock.RealClock{}}
	r.objects = background.NewService(r.clock, r.take)
	r.objects.Queue = func(_ types.NamespacedName, known *attemptedJob[J, A, M]) background.Share {
		if known.isSilent {
			return background.Share{Name: "patient", Limit: patientJobs}
		}
		return background.Share{Name: "prompt", Limit: promptJobs}
	}
	return r
}

// Answers triggers a pass for each object whose job has ended.
func (r *Runner[J, A, M]) Answers() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.objects.Lock()
		defer r.objects.Unlock()
		r.enqueue = func(object types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: object}) }
		return nil
	})
}

// RequestAnswer returns the result of the last job, and the state of the last attempt. It returns false while a job is
// in progress; the object is enqueued again when the job ends.
func (r *Runner[J, A, M]) RequestAnswer(object types.NamespacedName) (*A, M, bool) {
	r.objects.Lock()
	defer r.objects.Unlock()
	known := r.objects.Get(object)
	var none M
	switch {
	case known == nil:
		return nil, none, true
	case known.job != nil:
		return nil, none, false
	default:
		return known.answer, known.attempt, true
	}
}

// Reported drops the result of a job after it was saved in the status.
func (r *Runner[J, A, M]) Reported(object types.NamespacedName, answer *A) {
	r.objects.Lock()
	defer r.objects.Unlock()
	if known := r.objects.Get(object); known != nil && known.answer == answer {
		known.answer = nil
	}
}

// Submit submits a job. If a job for the object is unfinished, the new one is dropped.
func (r *Runner[J, A, M]) Submit(object types.NamespacedName, job *J) {
	r.objects.Lock()
	defer r.objects.Unlock()
	known := r.objects.Get(object)
	if known == nil {
		known = r.objects.Put(object, attemptedJob[J, A, M]{})
	}
	if known.job != nil {
		return
	}
	known.job = job
	r.objects.Ask(object, r.clock.Now())
}

// ForgetObject drops the state of a deleted object. A job in progress stops once its cluster may no longer be dialled,
// and its result is discarded.
func (r *Runner[J, A, M]) ForgetObject(object types.NamespacedName) {
	r.objects.Lock()
	defer r.objects.Unlock()
	r.objects.Forget(object)
}

// Start implements manager.Runnable. It returns when ctx and all jobs have ended.
func (r *Runner[J, A, M]) Start(ctx context.Context) error { return r.objects.Start(ctx) }

func (r *Runner[J, A, M]) take(object types.NamespacedName, known *attemptedJob[J, A, M], _ time.Time) background.Call {
	job := known.job
	return background.Call{Timeout: jobTimeout, Do: func(ctx context.Context) func() {
		answer, outcome := r.Do(ctx, job)
		return func() { r.store(object, known, answer, outcome) }
	}}
}

// store keeps the result of a job until a pass has reported it.
func (r *Runner[J, A, M]) store(object types.NamespacedName, known *attemptedJob[J, A, M], answer *A, outcome Outcome) {
	known.job, known.answer, known.isSilent = nil, answer, outcome.IsSilent
	var retryAt time.Time
	if outcome.HasFailed {
		retryAt = outcome.At.Add(wait.Jitter(min(minRetry<<min(known.failures, 10), maxRetry), retryJitter))
		known.failures++
	} else {
		known.failures = 0
	}
	known.attempt = r.Remember(known.attempt, answer, retryAt)
	if r.enqueue != nil {
		r.enqueue(object)
	}
}
