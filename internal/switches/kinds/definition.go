// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/stop/savings"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
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

// Definition defines a kind of objects that can be stopped. It may also implement the optional interfaces of
// options.go.
type Definition interface {
	Type
	Stoppable
}

// Type contains the names and the Go types of a kind.
type Type interface {
	// GVK returns the group, version and kind.
	GVK() schema.GroupVersionKind
	// Names returns the names in commands, in lower case: the singular or the StopAdapter's name, the plural as in
	// paths and RBAC rules, and other names.
	Names() []string
	// AddToScheme registers the Go types of the kind and of the related objects that a plan reads.
	AddToScheme(known *runtime.Scheme) error
	// New and NewList return empty objects of the kind.
	New() Object
	NewList() List
}

// Stoppable describes how objects of a kind are stopped, and how to read their state.
type Stoppable interface {
	// ReadState reads the state of an object for Slumbers.
	ReadState(obj Object, now time.Time) State
	// DescribeRows returns a row for each switch of an object. It may modify obj.
	DescribeRows(obj Object) []Row
	// Parts returns the parts of an object, including those that are only shown. The switch of a part is in the spec or
	// in annotations.
	Parts() []Part
	// Switch describes how the manager stops objects of a kind whose controllers are unaware of Torpor. It returns
	// nil for a kind whose own controllers read the stops of Slumbers from the status.
	Switch() *FieldSwitch
	// Notes describes what the policies and webhooks of config/record write to annotations about a request. It
	// returns nil if the kind's own admission records requesters.
	Notes() *Notes
}

// Kind is a kind of objects that can be stopped, with everything that follows from its definition.
type Kind struct{ Definition }

// Part is a part of an object that has its own switch.
type Part struct {
	// Name is shown in tables and metrics.
	Name string
	// Controllers is the name of the group of controllers that stop and start the part.
	Controllers string
	// Annotations are the annotations for the reason and the end of a stop.
	Annotations stoprecord.AnnotationSwitch
	// Stop sets the switch, and removes the reason and the end of an earlier stop. Start resets the switch, and removes
	// the reason and the end of the stop. Both are nil for a part that is only shown.
	Stop, Start func(obj Object, now time.Time)
}

// FieldSwitch describes how to stop objects of a kind whose controllers are unaware of Torpor: users request a stop
// by an annotation, and the manager sets and restores fields.
type FieldSwitch struct {
	// Operations stop an object.
	Operations []torporv1alpha1.StopOperation
	// IsScaled is true if an autoscaler may scale the objects.
	IsScaled bool
	// IsLate is true if the objects are stopped after those of other kinds, which may use them.
	IsLate bool
	// Part is the name of the stopped part in tables and metrics.
	Part string
	// ReadActivity returns whether the object can be stopped and whether it runs, as read from the object itself.
	ReadActivity func(*unstructured.Unstructured) ObservedActivity
	// ReadSchedule reads the schedule by which objects start Pods, and the deadline of a start in seconds; nil for a kind
	// without schedules.
	ReadSchedule func(*unstructured.Unstructured) (schedule string, deadline *int64)
	// ReadRate reads what a stop of the object saves; nil for a kind whose savings are unknown.
	ReadRate func(*unstructured.Unstructured) savings.Rate
}

// State is the state of an object. An object that is neither asleep nor awake is in transition, or has failed.
type State struct {
	// IsStoppable is true if the object can be stopped now.
	IsStoppable bool
	// IsAsleep and IsAwake become true when the object's own controller reports this, not when it is requested.
	IsAsleep, IsAwake bool
	// IsStoppedWithoutSlumbers is true if the object is stopped, or a stop is requested, for another reason than a
	// Slumber.
	IsStoppedWithoutSlumbers bool
	// ResumedAt is when a user or another writer last started, restarted or deployed the object, and ResumedBy is the
	// requester; zero and empty if neither has.
	ResumedAt metav1.Time
	ResumedBy string
	// Message describes why the object is not yet asleep or awake.
	Message string
	// ScheduledStops are the stops of Slumbers.
	ScheduledStops []torporv1alpha1.ScheduledStop
}

// restoreStatus restores the status fields that another project's schema has dropped, from annotations of the object.
// It returns a changed copy, or the cached object itself if no annotation contains such a field.
func restoreStatus[T Object](obj T) T {
	if !statusannotation.IsIn(obj) {
		return obj
	}
	restored, _ := obj.DeepCopyObject().(T)
	statusannotation.RestoreStatus(restored)
	return restored
}

// IsSwitched reports whether the kind's controllers are unaware of Torpor, so that the manager sets fields to stop an
// object. Most objects of such a kind are never stopped. Commands list only objects that were stopped at least once.
func (k Kind) IsSwitched() bool { return k.Switch() != nil }

func (k Kind) isOwn() bool { return !k.IsSwitched() }

// IsForeign reports whether a StopAdapter describes the kind.
func (k Kind) IsForeign() bool { return !IsBuiltIn(k.GVK().GroupKind()) }

// Wave returns the number of the wave in which objects of the kind are stopped, if their requester sets no order. Objects
// are stopped before those that they may use.
func (k Kind) Wave() int {
	if late, isLate := k.Definition.(Late); isLate {
		return late.StopWave()
	}
	return 0
}

// Name returns a unique name of the kind: the kind itself if it is built in, and otherwise the name of its
// StopAdapter, because several API groups have a kind such as Cluster.
func (k Kind) Name() string {
	if k.IsForeign() {
		return k.Names()[0]
	}
	return k.GVK().Kind
}

// HasName reports whether a text is a name of the kind: alone, with its group, or with its version and its group,
// such as deployment, deployment.apps or deployment.v1.apps.
func (k Kind) HasName(text string) bool {
	text = strings.ToLower(text)
	name, group, hasGroup := strings.Cut(text, ".")
	gvk := k.GVK()
	isQualified := hasGroup && (group == gvk.Group || group == gvk.Version+"."+gvk.Group)
	return slices.Contains(k.Names(), text) || isQualified && slices.Contains(k.Names(), name)
}

// ObjectName returns the name of an object as kubectl get -o name prints it.
func (k Kind) ObjectName(name string) string { return ObjectName(k.GVK().GroupKind(), name) }

// ObjectName returns the name of an object as kubectl get -o name prints it.
func ObjectName(of schema.GroupKind, name string) string {
	return strings.ToLower(of.String()) + "/" + name
}

// Resource returns the plural, as used in paths and RBAC rules.
func (k Kind) Resource() string { return k.Names()[1] }

// MetricLabel returns the value of the label kind in metrics. For a kind of a StopAdapter, it contains the API
// group, because several groups have a kind such as Cluster.
func (k Kind) MetricLabel() string {
	if k.IsForeign() {
		return k.GVK().GroupKind().String()
	}
	return k.GVK().Kind
}

// PartNames returns the names of the parts that users can stop and start.
func (k Kind) PartNames() []string {
	var names []string
	for _, p := range k.Parts() {
		if p.Stop != nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// FindPart returns the part with a name, or a zero Part if none exists.
func (k Kind) FindPart(name string) Part {
	for _, p := range k.Parts() {
		if p.Name == name {
			return p
		}
	}
	return Part{}
}

// Controllers returns the names of the groups of controllers that stop and start objects of the kind.
func (k Kind) Controllers() []string {
	var names []string
	for _, name := range k.PartNames() {
		names = append(names, k.FindPart(name).Controllers)
	}
	return names
}

// HasRows reports whether the switches of an object are shown. If IsSwitched is true for the kind, only objects that
// were stopped at least once are shown.
func (k Kind) HasRows(obj Object) bool {
	return !k.IsSwitched() || !isUntouched(obj, fieldswitch.ReadSwitch(obj))
}

// FindRow returns the row of a part of an object, or a zero Row if the part is not shown. It does not modify obj.
func (k Kind) FindRow(obj Object, part string) Row {
	unchanged, _ := obj.DeepCopyObject().(Object)
	for _, r := range k.DescribeRows(unchanged) {
		if r.Part == part {
			return r
		}
	}
	return Row{}
}

// NewMetadataList returns an empty list for the metadata of objects, which can be cached even for kinds without a Go
// type.
func (k Kind) NewMetadataList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.GVK().GroupVersion().WithKind(k.GVK().Kind + "List"))
	return list
}

// AddToMapper registers the kind, so that a client finds it without discovery.
func (k Kind) AddToMapper(mapper *meta.DefaultRESTMapper) {
	resources := k.GVK().GroupVersion().WithResource(k.Resource())
	mapper.AddSpecific(k.GVK(), resources, resources, meta.RESTScopeNamespace)
}
