// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// promptJobs is the number of parallel jobs. patientJobs is the number for clusters that were unreachable
	// or slow before, so they do not delay others.
	promptJobs, patientJobs = 40, 10
	// jobTimeout bounds a job.
	jobTimeout = 10 * time.Minute
	// minRetry and maxRetry bound the interval after a failed attempt. It doubles.
	minRetry, maxRetry = 5 * time.Second, 10 * time.Minute
	// retryJitter spreads clusters that fail for the same reason.
	retryJitter = 0.1
)

// Outcome is the part of an answer that the runner needs.
type Outcome struct {
	At time.Time
	// HasFailed is whether the same job is worth another attempt. IsSilent is whether the cluster did not
	// answer, or answered so slowly that it must not delay others.
	HasFailed, IsSilent bool
}

// Runner runs at most one job for each object at any time. J is a job, A is its answer, and M is what is kept
// in memory of the last attempt. Its fields are set before it is used.
type Runner[J, A, M any] struct {
	// Do runs a job. It ends with the first request that gets no answer, and when the cluster may no longer be
	// dialled.
	Do func(ctx context.Context, job *J) (*A, Outcome)
	// Remember returns what is kept of an attempt, given what was kept of the previous one. A zero time means
	// that the attempt has not failed.
	Remember func(before M, answer *A, retryAt time.Time) M

	// enqueue triggers a pass of the object soon, and does not block.
	enqueue         func(object types.NamespacedName)
	prompt, patient workqueue.TypedInterface[types.NamespacedName]
	mu              sync.Mutex
	objects         map[types.NamespacedName]*attemptedJob[J, A, M]
}

// attemptedJob is the state of one object. It is guarded by the lock of its runner.
type attemptedJob[J, A, M any] struct {
	job *J
	// isRunning is whether the job has begun.
	isRunning bool
	// answer is the answer that no pass has reported yet; nil if there is none.
	answer   *A
	attempt  M
	failures int
	isSilent bool
}

// NewRunner returns a runner that dials no cluster before it is started.
func NewRunner[J, A, M any](do func(context.Context, *J) (*A, Outcome), remember func(M, *A, time.Time) M) *Runner[J, A, M] {
	return &Runner[J, A, M]{
		Do: do, Remember: remember, objects: map[types.NamespacedName]*attemptedJob[J, A, M]{},
		prompt: workqueue.NewTyped[types.NamespacedName](), patient: workqueue.NewTyped[types.NamespacedName](),
	}
}

// Answers triggers passes of the objects that the runner has answers for.
func (r *Runner[J, A, M]) Answers() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.enqueue = func(object types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: object}) }
		return nil
	})
}

// RequestAnswer returns the answer of the last job, and the memory of the last attempt. It returns false while
// a job is in progress; the pass runs again after that.
func (r *Runner[J, A, M]) RequestAnswer(object types.NamespacedName) (*A, M, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.objects[object]
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

// Reported forgets an answer that was saved in the status.
func (r *Runner[J, A, M]) Reported(object types.NamespacedName, answer *A) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.objects[object]; known != nil && known.answer == answer {
		known.answer = nil
	}
}

// Submit submits a job. A job that is not finished stays.
func (r *Runner[J, A, M]) Submit(object types.NamespacedName, job *J) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.objects[object]
	if known == nil {
		known = &attemptedJob[J, A, M]{}
		r.objects[object] = known
	}
	if known.job != nil {
		return
	}
	known.job = job
	if known.isSilent {
		r.patient.Add(object)
	} else {
		r.prompt.Add(object)
	}
}

// ForgetObject forgets an object that is gone. A job in progress ends soon, because its cluster may not be
// dialled.
func (r *Runner[J, A, M]) ForgetObject(object types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.objects[object]; known != nil && known.job == nil {
		delete(r.objects, object)
	}
}

// Start implements manager.Runnable. It returns when ctx and all goroutines that it started have ended.
func (r *Runner[J, A, M]) Start(ctx context.Context) error {
	var work sync.WaitGroup
	for queue, count := range map[workqueue.TypedInterface[types.NamespacedName]]int{r.prompt: promptJobs, r.patient: patientJobs} {
		for range count {
			work.Go(func() { r.work(ctx, queue) })
		}
	}
	<-ctx.Done()
	r.prompt.ShutDown()
	r.patient.ShutDown()
	work.Wait()
	return nil
}

func (r *Runner[J, A, M]) work(ctx context.Context, queue workqueue.TypedInterface[types.NamespacedName]) {
	for {
		object, isOver := queue.Get()
		if isOver {
			return
		}
		if job := r.take(object); job != nil && ctx.Err() == nil {
			jobCtx, cancel := context.WithTimeout(ctx, jobTimeout)
			answer, outcome := r.Do(jobCtx, job)
			cancel()
			r.publish(ctx, object, answer, outcome)
		}
		queue.Done(object)
	}
}

func (r *Runner[J, A, M]) take(object types.NamespacedName) *J {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.objects[object]
	if known == nil || known.job == nil || known.isRunning {
		return nil
	}
	known.isRunning = true
	return known.job
}

// publish keeps an answer until a pass has reported it.
func (r *Runner[J, A, M]) publish(ctx context.Context, object types.NamespacedName, answer *A, outcome Outcome) {
	if ctx.Err() != nil {
		return // A job that was cut off by the end of the manager is no result.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.objects[object]
	known.job, known.isRunning, known.answer, known.isSilent = nil, false, answer, outcome.IsSilent
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
