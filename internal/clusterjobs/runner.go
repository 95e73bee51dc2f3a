// SPDX-License-Identifier: Apache-2.0

package clusterjobs

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
	// promptJobs are done at once, and patientJobs at clusters that did not answer before, or slowly: they hold up no others.
	promptJobs, patientJobs = 40, 10
	// jobTimeout bounds a job.
	jobTimeout = 10 * time.Minute
	// minRetry and maxRetry bound the interval after an attempt that failed. It doubles.
	minRetry, maxRetry = 5 * time.Second, 10 * time.Minute
	// retryJitter keeps clusters that fail for one reason apart.
	retryJitter = 0.1
)

// Outcome is what a runner has to know of an answer.
type Outcome struct {
	At time.Time
	// HasFailed says that the same job is worth another attempt, and IsSilent that the cluster did not answer, or so slowly that it must not
	// hold up others.
	HasFailed, IsSilent bool
}

// Runner does at most one job for each object at any time. J is a job, A what becomes of it, and M what is kept in memory of the last
// attempt. Its fields are set before it is used.
type Runner[J, A, M any] struct {
	// Do does a job. It ends with the first request that gets no answer, and when the cluster may not be dialled any more.
	Do func(ctx context.Context, job *J) (*A, Outcome)
	// Remember returns what is kept of an attempt after the one before. A zero time means that it has not failed.
	Remember func(before M, answer *A, retryAt time.Time) M

	// enqueue has an object's pass run soon, and does not block.
	enqueue         func(object types.NamespacedName)
	prompt, patient workqueue.TypedInterface[types.NamespacedName]
	mu              sync.Mutex
	objects         map[types.NamespacedName]*attemptedJob[J, A, M]
}

// attemptedJob is what is known of one object. The lock of its runner guards it.
type attemptedJob[J, A, M any] struct {
	job *J
	// isRunning says that the job has begun.
	isRunning bool
	// answer is one that no pass has reported yet; nil if there is none.
	answer   *A
	attempt  M
	failures int
	isSilent bool
}

// NewRunner returns a runner that dials nobody before it is started.
func NewRunner[J, A, M any](do func(context.Context, *J) (*A, Outcome), remember func(M, *A, time.Time) M) *Runner[J, A, M] {
	return &Runner[J, A, M]{
		Do: do, Remember: remember, objects: map[types.NamespacedName]*attemptedJob[J, A, M]{},
		prompt: workqueue.NewTyped[types.NamespacedName](), patient: workqueue.NewTyped[types.NamespacedName](),
	}
}

// Answers has the passes of objects run that the runner has answered about.
func (r *Runner[J, A, M]) Answers() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.enqueue = func(object types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: object}) }
		return nil
	})
}

// RequestAnswer returns what became of the last job, and of the last attempt; false while a job is being done, after which the pass runs again.
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

// Reported forgets an answer that is in the status.
func (r *Runner[J, A, M]) Reported(object types.NamespacedName, answer *A) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.objects[object]; known != nil && known.answer == answer {
		known.answer = nil
	}
}

// Submit hands a job in. One that is not over yet stays.
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

// ForgetObject forgets an object that is gone. A job that is being done ends by itself, because its cluster may not be dialled.
func (r *Runner[J, A, M]) ForgetObject(object types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.objects[object]; known != nil && known.job == nil {
		delete(r.objects, object)
	}
}

// Start implements manager.Runnable. It returns when ctx ends, with all that it has started.
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
		return // What was cut off by the end of the manager is not about the cluster.
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
