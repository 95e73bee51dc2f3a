// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// Object is an object of the API, and List a list of them.
type (
	Object interface {
		metav1.Object
		runtime.Object
	}
	List interface {
		metav1.ListInterface
		runtime.Object
	}
)

// Kind is a kind of objects that can be stopped. Most kinds keep the stops of Slumbers in status.scheduledStops and
// in an annotation, which their own controllers follow. The others have a Switch.
type Kind struct {
	GVK schema.GroupVersionKind
	// New and NewList return empty objects of the kind.
	New     func() Object
	NewList func() List
	// ReadState reads the state of an object.
	ReadState func(obj Object, now time.Time) State
	// Switch is nil for a kind whose status has the stops of Slumbers.
	Switch *FieldSwitch
}

// FieldSwitch describes how to stop objects of a kind that does not know Torpor: annotations record the requests, and
// fields of the spec are set and restored.
type FieldSwitch struct {
	// Operations stop an object.
	Operations []torporv1alpha1.StopOperation
	// IsScaled is true if an autoscaler may scale the objects.
	IsScaled bool
	// Part names the stopped part in tables and metrics.
	Part string
	// ReadActivity reads the activity from the object itself.
	ReadActivity func(*unstructured.Unstructured) ObservedActivity
}

// State is the state of an object. An object that is neither asleep nor awake is in transition, or has failed.
type State struct {
	// IsStoppable is true if the object can be stopped, and is ready for it.
	IsStoppable bool
	// IsAsleep and IsAwake are observations of the object's own controller, not its instructions.
	IsAsleep, IsAwake bool
	// IsStoppedWithoutSlumbers is true if the object is to be stopped regardless of Slumbers.
	IsStoppedWithoutSlumbers bool
	// ResumedAt is when a user last took a stop back, and ResumedBy is that user; zero and empty if no user has.
	ResumedAt metav1.Time
	ResumedBy string
	// Message describes what an object lacks to be asleep or awake.
	Message string
	// ScheduledStops are the stops of Slumbers.
	ScheduledStops []torporv1alpha1.ScheduledStop
}

// restoreStatus returns a cached object together with those fields of its status that another project's schema drops
// and that annotations hold. The cached object itself is not changed.
func restoreStatus[T Object](obj T) T {
	if !statusannotation.IsIn(obj) {
		return obj
	}
	restored, _ := obj.DeepCopyObject().(T)
	statusannotation.RestoreStatus(restored)
	return restored
}

// ListKinds returns the kinds whose status has the stops of Slumbers.
func ListKinds() []Kind { return []Kind{clusterDeployments(), mysqlClusters(), cfApps()} }

// ListWorkloads returns the kinds of Kubernetes itself.
func ListWorkloads() []Kind { return []Kind{deployments(), statefulSets(), cronJobs()} }

// FindGroup returns the API group of a kind that can be named without it; empty for other kinds. It is called for
// every target and object, and therefore allocates nothing.
func FindGroup(kind string) string {
	for _, gvk := range [...]schema.GroupVersionKind{
		hivev1.ClusterDeploymentKind(), mocov1beta2.MySQLClusterKind(), korifiv1alpha1.CFAppKind(), deploymentKind(), statefulSetKind(), cronJobKind(),
	} {
		if gvk.Kind == kind {
			return gvk.Group
		}
	}
	return ""
}
