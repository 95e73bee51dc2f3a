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

// Kind is a kind of objects that can be stopped. Most keep the stops of Slumbers in status.scheduledStops, by which their own controller
// goes. The others have a Switch.
type Kind struct {
	GVK schema.GroupVersionKind
	// New and NewList make empty objects of the kind.
	New     func() Object
	NewList func() List
	// ReadState reads what is known of an object.
	ReadState func(obj Object, now time.Time) State
	// Switch is nil of a kind whose status has the stops of Slumbers.
	Switch *FieldSwitch
}

// FieldSwitch is how objects are stopped that know nothing of Torpor: annotations say who wants that, and fields of the spec are set and brought back.
type FieldSwitch struct {
	// Operations are what stops an object.
	Operations []torporv1alpha1.StopOperation
	// IsScaled says that an autoscaler may scale the objects.
	IsScaled bool
	// Part is what the switch stops, as tables and metrics have it.
	Part string
	// ReadActivity reads what an object says of itself.
	ReadActivity func(*unstructured.Unstructured) ObservedActivity
}

// State is what is known of an object. Neither asleep nor awake is on its way, or in trouble.
type State struct {
	// IsStoppable says that it can be stopped at all, yet.
	IsStoppable bool
	// IsAsleep and IsAwake are what its own controller has seen, and not what it was told.
	IsAsleep, IsAwake bool
	// IsStoppedWithoutSlumbers says that it is to be stopped whatever Slumbers say.
	IsStoppedWithoutSlumbers bool
	// ResumedAt is when somebody last took a stop back, and ResumedBy who; zero and empty if nobody has.
	ResumedAt metav1.Time
	ResumedBy string
	// Message says what is missing of what is neither asleep nor awake.
	Message string
	// ScheduledStops are those of Slumbers.
	ScheduledStops []torporv1alpha1.ScheduledStop
}

// ListKinds returns the kinds whose status has the stops of Slumbers.
func ListKinds() []Kind { return []Kind{clusterDeployments(), mysqlClusters(), cfApps()} }

// ListWorkloads returns the kinds of Kubernetes itself.
func ListWorkloads() []Kind { return []Kind{deployments(), statefulSets(), cronJobs()} }

// FindGroup returns the API group of a kind that needs none to be named; empty for others. It is asked for every target and object, so that nothing
// is made for it.
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
