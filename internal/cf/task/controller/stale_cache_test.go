// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/task"
)

// behindCache is a cache that lacks all new objects.
type behindCache struct{ cache.Cache }

func (behindCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return k8serrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// liveServer is an API server that contains at most one Job.
type liveServer struct {
	client.Reader
	job *batchv1.Job
}

func (l liveServer) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if job, ok := into.(*batchv1.Job); ok && l.job != nil {
		l.job.DeepCopyInto(job)
		return nil
	}
	return k8serrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// A task must not fail permanently because a cache lacks its Job. The Job would continue to run, and no user could
// cancel it.
func TestJobThatTheCacheDoesNotHaveYetIsNotLost(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		canceled, started bool
		owner             string
		gone              bool
		want              task.Action
		fails             bool
	}{
		"a canceled task with a Job in the API server deletes the Job": {canceled: true, owner: "own", want: task.DeleteJob},
		"a started task with a Job in the API server continues":        {started: true, owner: "own"},
		"a started task without a Job in the API server fails":         {started: true, owner: "own", gone: true, fails: true},
		"a canceled task without a Job in the API server has ended":    {canceled: true, owner: "own", gone: true, fails: true},
		"a canceled task does not delete a Job of another owner":       {canceled: true, owner: "another", fails: true},
	} {
		obj := &korifiv1alpha1.CFTask{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "task", UID: "own"}}
		if obj.Spec.Canceled = row.canceled; row.started {
			obj.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.TaskStartedCondition, Status: metav1.ConditionTrue}}
		}
		owner := obj.DeepCopy()
		owner.UID = "another"
		if row.owner == "own" {
			owner = obj
		}
		live := liveServer{job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "space", Name: "task", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, korifiv1alpha1.CFTaskKind())},
		}}}
		if row.gone {
			live.job = nil
		}
		c := Controller{Clock: clock.RealClock{}, jobs: behindCache{}, live: live}
		seen, err := c.observe(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		plan := task.Decide(seen)
		if _, fails := plan.Conditions[korifiv1alpha1.TaskFailedCondition]; plan.Do != row.want || fails != row.fails {
			t.Errorf("%s: expected the action %d, and %t that it fails, found %+v", name, row.want, row.fails, plan)
		}
	}
}
