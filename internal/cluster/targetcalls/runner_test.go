// SPDX-License-Identifier: Apache-2.0

package targetcalls

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

// TestRunner runs jobs in virtual time. Each job returns itself as the outcome. The runner remembers the time of the
// next attempt.
func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []Outcome
		submitted := make(chan struct{}) // A job finishes only after it was submitted twice.
		runner := NewRunner(func(ctx context.Context, job *Outcome) (*Outcome, Outcome) {
			begun = append(begun, *job)
			<-submitted
			if job.IsSilent {
				<-ctx.Done() // The job of an unresponsive cluster stops at its timeout.
			} else {
				<-time.After(time.Second) // The job is in progress when it is submitted again.
			}
			answer := *job
			answer.At = time.Now()
			return &answer, answer
		}, func(_ time.Time, _ *Outcome, retryAt time.Time) time.Time { return retryAt })
		object, queue := types.NamespacedName{Name: "o"}, workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		if err := runner.Answers().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- runner.Start(ctx) }()
		// do submits a job and returns the delay before the same job may run again.
		do := func(job Outcome) time.Duration {
			t.Helper()
			runner.Submit(object, &job)
			runner.Submit(object, &job) // The second submission is dropped.
			if _, _, isIdle := runner.RequestAnswer(object); isIdle {
				t.Error("expected a job in progress, found none")
			}
			submitted <- struct{}{}
			request, _ := queue.Get() // The pass runs again.
			queue.Done(request)
			answer, retryAt, isIdle := runner.RequestAnswer(object)
			if answer == nil || !isIdle || request.NamespacedName != object {
				t.Fatalf("expected an answer for %s, found %v for %s", object, answer, request)
			}
			runner.Reported(object, answer)
			if again, _, _ := runner.RequestAnswer(object); again != nil {
				t.Errorf("expected an answer that was reported to be forgotten, found %v", again)
			}
			if retryAt.IsZero() {
				return 0
			}
			return retryAt.Sub(answer.At)
		}
		failed := Outcome{HasFailed: true}
		for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
			if wait := do(failed); wait < want || wait > want+want/10 {
				t.Errorf("expected the next attempt after %s and up to a tenth, found %s", want, wait)
			}
		}
		if wait := do(Outcome{}); wait != 0 {
			t.Errorf("expected nothing to wait for after a success, found %s", wait)
		}
		if wait := do(failed); wait > 6*time.Second {
			t.Errorf("expected a failure after a success to start with the shortest interval, found %s", wait)
		}
		before := time.Now()
		for range 10 {
			do(Outcome{HasFailed: true, IsSilent: true})
		}
		if took := time.Since(before); took != 10*jobTimeout {
			t.Errorf("expected jobs without an answer to take %s each, found %s for ten", jobTimeout, took)
		}
		if wait := do(failed); wait < maxRetry || wait > maxRetry+maxRetry/10 {
			t.Errorf("expected the interval to end at %s, found %s", maxRetry, wait)
		}
		if len(begun) != 16 {
			t.Errorf("expected 16 jobs, found %d", len(begun))
		}
		runner.ForgetObject(object)
		if _, retryAt, isIdle := runner.RequestAnswer(object); !isIdle || !retryAt.IsZero() {
			t.Error("expected no state of an object that is gone")
		}
		queue.ShutDown()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReadGate(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	resume := metav1.NewTime(now)
	awake := func(changes ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
		cd := &hivev1.ClusterDeployment{}
		cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}}
		cd.Status.Conditions = []metav1.Condition{{Type: hivev1.ClusterUnreachableCondition, Status: metav1.ConditionFalse}}
		for _, change := range changes {
			change(cd)
		}
		return cd
	}
	const pause = hivev1.ReconcilePauseAnnotation
	for name, row := range map[string]struct {
		cd   *hivev1.ClusterDeployment
		want Gate
	}{
		"reachable cluster is dialed":                 {awake(), Gate{MayDial: true, isReachable: true, Server: Server{KubeconfigSecret: "admin"}}},
		"cluster that should hibernate is not dialed": {awake(func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = hivev1.PowerStateHibernating }), Gate{isReachable: true, Server: Server{KubeconfigSecret: "admin"}}},
		"cluster in an unknown state is not dialed":   {&hivev1.ClusterDeployment{}, Gate{}},
		"cluster that is being deleted is not dialed": {awake(func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = &resume }), Gate{isReachable: true, IsDeleted: true, Server: Server{KubeconfigSecret: "admin"}}},
		"resumed cluster is dialed": {awake(func(cd *hivev1.ClusterDeployment) {
			cd.Status.Hibernation = &hivev1.HibernationRecord{ResumeStartedAt: &resume}
		}), Gate{MayDial: true, isReachable: true, Server: Server{KubeconfigSecret: "admin"}, resume: now.Unix()}},
		"paused cluster is dialed":                            {awake(func(cd *hivev1.ClusterDeployment) { cd.Annotations = map[string]string{pause: "1"} }), Gate{MayDial: true, isReachable: true, IsPaused: true, Server: Server{KubeconfigSecret: "admin"}}},
		"cluster with a malformed pause annotation is dialed": {awake(func(cd *hivev1.ClusterDeployment) { cd.Annotations = map[string]string{pause: "maybe"} }), Gate{MayDial: true, isReachable: true, Server: Server{KubeconfigSecret: "admin"}}},
		"cluster paused by another annotation is dialed": {awake(func(cd *hivev1.ClusterDeployment) {
			cd.Annotations = map[string]string{hivev1.SyncsetPauseAnnotation: "true"}
		}), Gate{MayDial: true, isReachable: true, Server: Server{KubeconfigSecret: "admin"}}},
		"cluster with a server override is dialed": {awake(func(cd *hivev1.ClusterDeployment) {
			cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIURLOverride: "api-int.example.com:6443", APIServerIPOverride: "10.0.0.7"}
		}), Gate{MayDial: true, isReachable: true, Server: Server{KubeconfigSecret: "admin", Override: hibernation.ServerOverride{URL: "api-int.example.com:6443", Address: "10.0.0.7"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ReadGate(row.cd, now, pause); got != row.want || (got.resume != 0) != got.Resume().Equal(&resume) {
				t.Errorf("expected %+v, found %+v", row.want, got)
			}
		})
	}
}
