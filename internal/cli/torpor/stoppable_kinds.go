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
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// The parts of objects, as the column PART has them.
const (
	machinesPart       = "machines"
	clusteringPart     = "clustering"
	reconciliationPart = "reconciliation"
	appPart            = "app"
	serversPart        = "servers"
)

// stuckPrefix begins the NEXT of what does not go on by itself.
const stuckPrefix = "it is stuck: "

// stoppableKind is a kind of objects that people stop.
type stoppableKind struct {
	gvk schema.GroupVersionKind
	// names are what people call it, in lower case: the singular first, then the plural and the short names.
	names []string
	// isSwitched says that its objects know nothing of Torpor. Those that nobody ever stopped are in no table, because every cluster is full of them.
	isSwitched  bool
	addToScheme func(*runtime.Scheme) error
	newObject   func() client.Object
	newList     func() client.ObjectList
	// describe has a row for each of the object's switches.
	describe func(client.Object) []stopRow
	// parts are the switches that the verbs are about.
	parts []string
	// stop sets the switch of a part, and removes what was said of an earlier stop; start sets it back, and removes what was said of the stop.
	stop, start func(obj client.Object, part string, now time.Time)
	// restart is nil of a kind that cannot be restarted.
	restart func(obj client.Object, now time.Time)
	// readRevisions returns the revision that an object is to have, and the newest one that all of it has come to; nil of a kind that cannot be restarted.
	readRevisions func(obj client.Object) (wanted, settled int64)
	// annotationsOf are those that say why a part is stopped, and until when.
	annotationsOf func(part string) stoprecord.AnnotationSwitch
	// plan says what a stop or a start of a part would do, and what it may run into.
	plan planFunction
}

func (k stoppableKind) hasName(text string) bool {
	return slices.Contains(k.names, strings.ToLower(text))
}

// stoppableKinds are those that need no StopAdapter.
func stoppableKinds() []stoppableKind { return append(ownKinds(), workloadKinds()...) }

// ownKinds are those whose status Torpor writes.
func ownKinds() []stoppableKind {
	return []stoppableKind{clusterDeploymentKind(), mysqlClusterKind(), cfAppKind()}
}

// of lets a function of one type handle the objects of its kind.
func of[T client.Object](change func(T, string, time.Time)) func(client.Object, string, time.Time) {
	return func(obj client.Object, part string, now time.Time) { change(obj.(T), part, now) }
}

// sharedAnnotations are those of kinds with one switch.
func sharedAnnotations(string) stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation}
}

func removeSharedAnnotations(obj client.Object) {
	setAnnotation(obj, torporv1alpha1.ReasonAnnotation, "")
	setAnnotation(obj, torporv1alpha1.UntilAnnotation, "")
}

// stopRow is what is known of one switch of an object.
type stopRow struct {
	Namespace string `json:"namespace"`
	// APIGroup is only there of a kind that needs it to be named: that of a StopAdapter.
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	// Part is what the switch stops of the object.
	Part string `json:"part"`
	// State is that of a ClusterDeployment's status.powerState; otherwise running, stopping, stopped, starting or unknown.
	State string `json:"state"`
	// Stopped is whether it is to be stopped now.
	Stopped bool `json:"stopped"`
	// Since and By are of the stop while it is to be stopped, of the last start otherwise; Reason and Until are of the stop.
	Since  *metav1.Time `json:"since,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Until  *metav1.Time `json:"until,omitempty"`
	// UntilBy is who set that end.
	UntilBy string `json:"untilBy,omitempty"`
	// SkippedUntil is until when Slumbers leave the object alone, while that is to come, and SkippedBy who said so.
	SkippedUntil *metav1.Time `json:"skippedUntil,omitempty"`
	SkippedBy    string       `json:"skippedBy,omitempty"`
	// Next is what people can do, or what happens by itself.
	Next string `json:"next,omitempty"`
	// Message is what the object's status says.
	Message string `json:"message,omitempty"`
	stops   stoprecord.Records
	// untilAnnotation says when the stop ends.
	untilAnnotation string
	conditions      []metav1.Condition
	// isAsked is whether the switch asks for a stop that goes on. What sleeps by itself is stopped, too.
	isAsked bool
	// Schedule is when Slumbers stop and start the object next.
	Schedule []scheduledTransition `json:"schedule,omitempty"`
	// labels are the object's, by which Slumbers select it; slumber is the name of the one that stops it.
	labels    map[string]string
	groupKind schema.GroupKind
	slumber   string
	// pastScheduled are the stops of Slumbers that the object remembers.
	pastScheduled []torporv1alpha1.StopRecord
	// refusal is why the manager does not start what is to be started, or does not stop what is to be stopped.
	refusal string
	// kindName is what the commands take, where that is not the kind in lower case.
	kindName string
	// isUntouched says that neither somebody nor a Slumber ever stopped it, and restsByItself that its own switch does.
	isUntouched, restsByItself bool
}

// newStopRow takes from the record what is about the switch as it is now: the controller may not have seen yet what somebody wrote.
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

// withNext adds what to do about a stop: what is wrong with it first, then what ends it.
func (r stopRow) withNext(startCommand string) stopRow {
	ignored := r.stops.DescribeIgnored(r.untilAnnotation)
	switch {
	case !r.Stopped:
	case ignored != "":
		r.Next = ignored
	case r.slumber != "" && r.Until != nil:
		r.Next = "wakes by itself, or by " + r.skipCommand()
	case r.slumber != "":
		r.Next = r.skipCommand()
	case r.Until != nil:
		r.Next = "starts by itself"
	default:
		r.Next = startCommand
	}
	return r
}

// startCommand works as it is printed, whatever the current namespace is.
func (r stopRow) startCommand() string {
	return fmt.Sprintf("kubectl torpor start -n %s %s", r.Namespace, r.displayName())
}
