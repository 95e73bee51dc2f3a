// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;patch

// deployments is the kind Deployment. Its objects are stopped by scaling them to zero.
type deployments struct{}

// GVK implements Switchable.
func (deployments) GVK() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("Deployment")
}

// Names implements Switchable.
func (deployments) Names() []string { return []string{"deployment", "deployments", "deploy"} }

// Switch implements Switchable.
func (deployments) Switch() *FieldSwitch { return replicasSwitch("availableReplicas") }

// replicasSwitch returns a switch that scales to zero. A HorizontalPodAutoscaler does not act at zero replicas, and
// resumes when there are replicas again.
func replicasSwitch(readyField string) *FieldSwitch {
	return &FieldSwitch{
		IsScaled: true, Part: "replicas", Operations: []torporv1alpha1.StopOperation{set(torporv1alpha1.ReplaceOperation, "/spec/replicas", "0")},
		ReadActivity: func(u *unstructured.Unstructured) ObservedActivity { return readReplicas(u, readyField) },
		ReadRate:     readPodRequests,
	}
}

// readReplicas reads the number of Pods from the status, which counts only if the kind's own controller has observed
// the current spec.
func readReplicas(u *unstructured.Unstructured, readyField string) ObservedActivity {
	wanted, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	pods, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	ready, _, _ := unstructured.NestedInt64(u.Object, "status", readyField)
	r := ObservedActivity{IsStoppable: true}
	if isCurrent := observed >= u.GetGeneration(); isCurrent {
		r.IsQuiet, r.IsReady = wanted == 0 && pods == 0, wanted > 0 && ready >= wanted
	}
	if !r.IsQuiet && !r.IsReady {
		r.Message = fmt.Sprintf("%d of %d Pods are ready, %d exist", ready, wanted, pods)
	}
	return r
}
