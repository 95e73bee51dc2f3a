// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;patch

// cronJobs is the kind CronJob. A stop sets spec.suspend, so that no Jobs are created. A CronJob is asleep when its
// running Jobs have ended.
type cronJobs struct{}

// GVK implements Switchable.
func (cronJobs) GVK() schema.GroupVersionKind { return batchv1.SchemeGroupVersion.WithKind("CronJob") }

// Names implements Switchable.
func (cronJobs) Names() []string { return []string{"cronjob", "cronjobs", "cj"} }

// Switch implements Switchable.
func (cronJobs) Switch() *FieldSwitch {
	return &FieldSwitch{
		Part: "jobs", Operations: []torporv1alpha1.StopOperation{set(torporv1alpha1.AddOperation, "/spec/suspend", "true")},
		ReadActivity: readJobs, ReadSchedule: readSchedule,
	}
}

func readJobs(u *unstructured.Unstructured) ObservedActivity {
	isSuspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	active, _, _ := unstructured.NestedSlice(u.Object, "status", "active")
	r := ObservedActivity{IsStoppable: true, IsQuiet: isSuspended && len(active) == 0, IsReady: !isSuspended}
	if isSuspended && len(active) > 0 {
		r.Message = fmt.Sprintf("%d Jobs are still running", len(active))
	}
	return r
}

func readSchedule(u *unstructured.Unstructured) (schedule string, deadline *int64) {
	schedule, _, _ = unstructured.NestedString(u.Object, "spec", "schedule")
	if seconds, isThere, _ := unstructured.NestedInt64(u.Object, "spec", "startingDeadlineSeconds"); isThere {
		deadline = &seconds
	}
	return schedule, deadline
}
