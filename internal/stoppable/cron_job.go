// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func cronJobKind() schema.GroupVersionKind { return batchv1.SchemeGroupVersion.WithKind("CronJob") }

// cronJobs create no Jobs while they are suspended. Running Jobs continue, and are waited for.
func cronJobs() Kind {
	suspend := FieldSwitch{Part: "jobs", Operations: []torporv1alpha1.StopOperation{set(torporv1alpha1.AddOperation, "/spec/suspend", "true")}}
	return NewSwitched(cronJobKind(), suspend, func(u *unstructured.Unstructured) ObservedActivity {
		isSuspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
		active, _, _ := unstructured.NestedSlice(u.Object, "status", "active")
		r := ObservedActivity{IsStoppable: true, IsQuiet: isSuspended && len(active) == 0, IsReady: !isSuspended}
		if isSuspended && len(active) > 0 {
			r.Message = fmt.Sprintf("%d Jobs run", len(active))
		}
		return r
	})
}
