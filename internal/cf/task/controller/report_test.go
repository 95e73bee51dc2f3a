// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/task"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// A condition that is True remains True. Clients and users would otherwise see a running or ended task as pending.
func TestRefusalIsReportedAndStartedTasksStayStarted(t *testing.T) {
	t.Parallel()
	refused := &reconcile.RefusedError{Message: "delete the Job: forbidden"}
	for name, row := range map[string]struct {
		was  metav1.ConditionStatus
		do   task.Action
		want metav1.ConditionStatus
	}{
		"a new task whose Job is refused waits":                    {metav1.ConditionFalse, task.CreateJob, metav1.ConditionFalse},
		"a task that was canceled before it had a Pod waits":       {metav1.ConditionFalse, task.DeleteJob, metav1.ConditionFalse},
		"a started task whose cancellation is refused has started": {metav1.ConditionTrue, task.DeleteJob, metav1.ConditionTrue},
		"an ended task whose deletion is refused has started":      {metav1.ConditionTrue, task.DeleteTask, metav1.ConditionTrue},
	} {
		obj := &korifiv1alpha1.CFTask{}
		obj.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.TaskStartedCondition, Status: row.was}}
		out := Controller{Clock: clock.RealClock{}}.report(obj, task.Observed{}, task.Plan{Do: row.do, After: 1}, refused)
		c := meta.FindStatusCondition(obj.Status.Conditions, korifiv1alpha1.TaskStartedCondition)
		if c.Status != row.want || !strings.Contains(c.Message, refused.Message) || out.RequeueAfter != 0 {
			t.Errorf("%s: expected Started=%s with the refusal, found %+v and a retry after %s", name, row.want, c, out.RequeueAfter)
		}
	}
}
