// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// The parts of objects, as shown in the column PART.
const (
	machinesPart       = "machines"
	clusteringPart     = "clustering"
	reconciliationPart = "reconciliation"
	appPart            = "app"
	serversPart        = "servers"
)

// stuckPrefix begins the NEXT of a switch that waits for an intervention.
const stuckPrefix = "it is stuck: "

// stoppableKind is a kind of objects that users can stop.
type stoppableKind struct {
	gvk schema.GroupVersionKind
	// names are the names of the kind in commands, in lower case: the singular first, then the plural and the short
	// names.
	names []string
	// isSwitched is set if the controllers of the kind do not know Torpor. Objects that were never stopped are not
	// listed, because every cluster has many of them.
	isSwitched  bool
	addToScheme func(*runtime.Scheme) error
	newObject   func() client.Object
	newList     func() client.ObjectList
	// describe returns a row for each switch of the object.
	describe func(client.Object) []stopRow
	// parts are the switches that the verbs can change.
	parts []string
	// stop sets the switch of a part, and removes the reason and the end of an earlier stop. start resets the switch,
	// and removes the reason and the end of the stop.
	stop, start func(obj client.Object, part string, now time.Time)
	// restart is nil for a kind that cannot be restarted.
	restart func(obj client.Object, now time.Time)
	// readRevisions returns the requested revision of an object, and the newest one that the whole object has reached.
	// It is nil for a kind that cannot be restarted.
	readRevisions func(obj client.Object) (wanted, settled int64)
	// annotationsOf returns the annotations for the reason and the end of a part's stop.
	annotationsOf func(part string) stoprecord.AnnotationSwitch
	// plan returns the effects of a stop or a start of a part, and the problems that it may meet.
	plan planFunction
	// displayNameOf returns the name that users gave an object; it is nil for a kind without display names.
	displayNameOf func(client.Object) string
}

func (k stoppableKind) hasName(text string) bool {
	return slices.Contains(k.names, strings.ToLower(text))
}

// stoppableKinds returns the kinds that need no StopAdapter.
func stoppableKinds() []stoppableKind { return append(ownKinds(), workloadKinds()...) }

// ownKinds returns the kinds whose status Torpor writes.
func ownKinds() []stoppableKind {
	return []stoppableKind{clusterDeploymentKind(), mysqlClusterKind(), cfAppKind()}
}

// of adapts a function for one type to the objects of its kind.
func of[T client.Object](change func(T, string, time.Time)) func(client.Object, string, time.Time) {
	return func(obj client.Object, part string, now time.Time) { change(obj.(T), part, now) }
}

// sharedAnnotations returns the annotations of kinds with one switch.
func sharedAnnotations(string) stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation}
}

func removeSharedAnnotations(obj client.Object) {
	setAnnotation(obj, torporv1alpha1.ReasonAnnotation, "")
	setAnnotation(obj, torporv1alpha1.UntilAnnotation, "")
}

// stopRow describes one switch of an object.
type stopRow struct {
	Namespace string `json:"namespace"`
	// APIGroup is set only for a kind of a StopAdapter, whose name alone is ambiguous.
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	// DisplayName is the name that users gave the object; empty for kinds without one.
	DisplayName string `json:"displayName,omitempty"`
	// Part names what the switch stops.
	Part string `json:"part"`
	// State is status.powerState for a ClusterDeployment; otherwise running, stopping, stopped, starting or unknown.
	State string `json:"state"`
	// Stopped is whether the object is to be stopped now.
	Stopped bool `json:"stopped"`
	// Since and By describe the stop while the object is to be stopped, and the last start otherwise. Reason and Until
	// describe the stop.
	Since  *metav1.Time `json:"since,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Until  *metav1.Time `json:"until,omitempty"`
	// UntilBy is the user who set the end.
	UntilBy string `json:"untilBy,omitempty"`
	// Overdue is whether the stop continues although it should have ended.
	Overdue bool `json:"overdue,omitempty"`
	// SkippedUntil is a future time until which Slumbers leave the object alone, and SkippedBy is the user who set it.
	SkippedUntil *metav1.Time `json:"skippedUntil,omitempty"`
	SkippedBy    string       `json:"skippedBy,omitempty"`
	// Next is the next step for the user, or the next automatic step.
	Next string `json:"next,omitempty"`
	// NoController is the reason why no controller acts on the object; empty if one does, or if that is unknown.
	NoController string `json:"noController,omitempty"`
	// remedy is the next step for NoController.
	remedy string
	// Message is the message of the object's status.
	Message string `json:"message,omitempty"`
	stops   stoprecord.Records
	// untilAnnotation is the annotation with the end of the stop.
	untilAnnotation string
	conditions      []metav1.Condition
	// isAsked is whether the switch requests a stop that has not expired. An object that stopped automatically is
	// Stopped, but not asked.
	isAsked bool
	// Schedule lists the next stops and starts of the object by Slumbers.
	Schedule []scheduledTransition `json:"schedule,omitempty"`
	// labels are the labels of the object, by which Slumbers select it. slumber is the name of the Slumber that stops
	// it.
	labels    map[string]string
	groupKind schema.GroupKind
	slumber   string
	// pastScheduled are the stops by Slumbers in the record of the object.
	pastScheduled []torporv1alpha1.StopRecord
	// refusal is the reason why the manager refuses the requested stop or start.
	refusal string
	// kindName is the name of the kind in commands, if it is not the kind in lower case.
	kindName string
	// isNameShared is whether the display name also names another object.
	isNameShared bool
	// isUntouched is whether neither a user nor a Slumber ever stopped the object, and restsByItself whether its own
	// switch stops it.
	isUntouched, restsByItself bool
}

// newStopRow fills a row from the record, but only if the record matches the switch. The controller may not have seen
// the latest write yet.
func newStopRow(k schema.GroupVersionKind, obj client.Object, part string, isStopped bool, stops stoprecord.Records) stopRow {
	r := stopRow{
		Namespace: obj.GetNamespace(), Kind: k.Kind, Name: obj.GetName(), Part: part, Stopped: isStopped, stops: stops, labels: obj.GetLabels(), groupKind: k.GroupKind(),
		untilAnnotation: torporv1alpha1.UntilAnnotation, isAsked: isStopped && !stops.HasExpired(),
	}
	if until, _ := stoprecord.ReadSkip(obj.GetAnnotations()); !until.IsZero() {
		r.SkippedUntil, r.SkippedBy = new(metav1.NewTime(until)), stoprecord.ReadAuthor(obj.GetAnnotations(), torporv1alpha1.SkipUntilAnnotation)
	}
	switch {
	case len(stops) == 0 || isStopped != stops.Holds():
	case isStopped:
		r.Since, r.By, r.Reason, r.Until, r.UntilBy = &stops[0].Since, stops[0].By, stops[0].Reason, stops[0].Until, stops[0].UntilBy
	default:
		r.Since, r.By = stops[0].EndedAt, stops[0].StartedBy
	}
	return r
}

// withNext sets NEXT: an error of the stop first, otherwise the step that ends the stop.
func (r stopRow) withNext(startCommand string) stopRow {
	ignored := r.stops.DescribeIgnored(r.untilAnnotation)
	switch {
	case !r.Stopped:
	case ignored != "":
		r.Next = ignored
	case r.slumber != "" && r.Until != nil:
		r.Next = r.wakesItself()
	case r.slumber != "":
		r.Next = r.skipCommand()
	case r.Until != nil:
		r.Next = stoprecord.StartsByItself
	default:
		r.Next = startCommand
	}
	return r
}

// startCommand returns the command with the namespace, so that it works in any current namespace.
func (r stopRow) startCommand() string {
	return fmt.Sprintf("kubectl torpor start -n %s %s", r.Namespace, r.objectName())
}
