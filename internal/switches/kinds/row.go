// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// StuckPrefix begins the value of the NEXT column for a switch that waits for an intervention.
const StuckPrefix = "it is stuck: "

// Row describes one switch of an object.
type Row struct {
	Namespace string `json:"namespace"`
	// APIGroup is set only for a kind of a StopAdapter, because its name alone may be ambiguous.
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	// DisplayName is the display name of the object; empty if its kind has none.
	DisplayName string `json:"displayName,omitempty"`
	// Part is the name of the part that the switch stops.
	Part string `json:"part"`
	// State is status.powerState for a ClusterDeployment; otherwise running, stopping, stopped, starting or unknown.
	State string `json:"state"`
	// Stopped is true if the object should be stopped now.
	Stopped bool `json:"stopped"`
	// Since and By describe the stop if Stopped is true, and otherwise the last start. Reason and Until describe the
	// stop.
	Since  *metav1.Time `json:"since,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Until  *metav1.Time `json:"until,omitempty"`
	// UntilBy is the user who set the end.
	UntilBy string `json:"untilBy,omitempty"`
	// Overdue is true if the stop continues although it should have ended.
	Overdue bool `json:"overdue,omitempty"`
	// SkippedUntil is the time until which Slumbers do not stop the object, and SkippedBy is the user who set it. The
	// time may have passed.
	SkippedUntil *metav1.Time `json:"skippedUntil,omitempty"`
	SkippedBy    string       `json:"skippedBy,omitempty"`
	// Next is the next step for the user, or the next automatic step.
	Next string `json:"next,omitempty"`
	// NoController is the reason why no controller acts on the object; empty if a controller does, or if this is
	// unknown.
	NoController string `json:"noController,omitempty"`
	// Message is the message of the object's status.
	Message string `json:"message,omitempty"`

	// Controllers is the name of the group of controllers that act on the switch, and Remedy the next step if
	// NoController is set.
	Controllers string `json:"-"`
	Remedy      string `json:"-"`
	// Stops holds the recorded stops that users requested with the switch. PastScheduled holds the recorded stops by
	// Slumbers, including the one that is in effect.
	Stops         stoprecord.Records          `json:"-"`
	PastScheduled []torporv1alpha1.StopRecord `json:"-"`
	// UntilAnnotation is the annotation with the end of the stop.
	UntilAnnotation string             `json:"-"`
	Conditions      []metav1.Condition `json:"-"`
	// IsAsked is true if the switch requests a stop that has not expired. For an object that stopped automatically,
	// Stopped is true but IsAsked is false.
	IsAsked bool `json:"-"`
	// Labels are the labels of the object, by which Slumbers select it. Slumber is the name of the Slumber that
	// stops it. UID determines when it is stopped in a wave that is spread over time.
	Labels    map[string]string `json:"-"`
	Slumber   string            `json:"-"`
	UID       types.UID         `json:"-"`
	GroupKind schema.GroupKind  `json:"-"`
	// Refusal is the reason why the manager refuses the requested stop or start.
	Refusal string `json:"-"`
	// IsNameShared is true if the display name is also the name or the display name of another object.
	IsNameShared bool `json:"-"`
	// IsUntouched is true if neither a user nor a Slumber ever stopped the object. RestsByItself is true if the
	// object is stopped by its own field, such as spec.suspend, without a request to Torpor.
	IsUntouched   bool `json:"-"`
	RestsByItself bool `json:"-"`
	// kindName is the name of the kind in commands.
	kindName string
}

// newRow returns a row. It uses the record of stops only if the record matches the switch, because the controller might
// not have recorded the latest write yet.
func newRow(d Definition, obj Object, part Part, isStopped bool, stops stoprecord.Records) Row {
	r := Row{
		Namespace: obj.GetNamespace(), Kind: d.GVK().Kind, Name: obj.GetName(), Part: part.Name, Controllers: part.Controllers,
		Stopped: isStopped, Stops: stops, Labels: obj.GetLabels(), UID: obj.GetUID(), GroupKind: d.GVK().GroupKind(), kindName: d.Names()[0],
		UntilAnnotation: torporv1alpha1.UntilAnnotation, IsAsked: isStopped && !stops.HasExpired(),
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

// withScheduled adds the stop of a Slumber, or its end, to the row of an object that has no other stop.
func (r Row) withScheduled(stops []torporv1alpha1.ScheduledStop) Row {
	for _, one := range stops {
		r.PastScheduled = append(r.PastScheduled, one.Stops...)
	}
	at := slices.IndexFunc(stops, func(s torporv1alpha1.ScheduledStop) bool { return stoprecord.Records(s.Stops).Holds() })
	switch {
	case r.Stopped:
		return r
	case at < 0:
		return r.withScheduledStart()
	}
	newest := stops[at].Stops[0]
	r.Stopped, r.Since, r.By, r.Reason, r.Until, r.Slumber = true, &newest.Since, newest.By, newest.Reason, newest.Until, stops[at].Slumber
	return r
}

// withScheduledStart shows the end of the last stop of a Slumber as the last start, unless a later start is recorded
// or a manual start is not recorded yet.
func (r Row) withScheduledStart() Row {
	for _, past := range r.PastScheduled {
		if past.EndedAt != nil && !r.Stops.Holds() && (r.Since == nil || past.EndedAt.After(r.Since.Time)) {
			r.Since, r.By = past.EndedAt, past.StartedBy
		}
	}
	return r
}

// withNext sets NEXT: an error of the stop first, otherwise the step that ends the stop.
func (r Row) withNext(startCommand string) Row {
	ignored := r.Stops.DescribeIgnored(r.UntilAnnotation)
	switch {
	case !r.Stopped:
	case ignored != "":
		r.Next = ignored
	case r.Slumber != "" && r.Until != nil:
		r.Next = r.wakesItself()
	case r.Slumber != "":
		r.Next = r.SkipCommand()
	case r.Until != nil:
		r.Next = stoprecord.StartsByItself
	default:
		r.Next = startCommand
	}
	return r
}

// wakesItself returns the value of the NEXT column for an object that a Slumber stops until a known time.
func (r Row) wakesItself() string { return "starts by itself, or now by " + r.SkipCommand() }

// CommandKind returns the name of the kind in commands.
func (r Row) CommandKind() string { return cmp.Or(r.kindName, strings.ToLower(r.Kind)) }

// ObjectName returns the argument that names the object in commands, with its own name instead of a display name,
// which may be ambiguous.
func (r Row) ObjectName() string { return r.CommandKind() + "/" + r.Name }

// StartCommand returns the command that starts the object, with its namespace, so that it works in any current
// namespace.
func (r Row) StartCommand() string {
	return fmt.Sprintf("kubectl torpor start -n %s %s", r.Namespace, r.ObjectName())
}

// SkipCommand returns the command that skips the current stop of the Slumbers, with the namespace, so that it works
// in any current namespace.
func (r Row) SkipCommand() string {
	return fmt.Sprintf("kubectl torpor skip -n %s %s", r.Namespace, r.ObjectName())
}

// showableName matches the display names that tables show and shells complete. They are short and have no characters
// that a terminal or a shell interprets. An object with another display name is shown by its own name.
var showableName = regexp.MustCompile(`^[-\w]{1,64}$`)

// ShownName returns the display name of the object, or its name if the display name is ambiguous or cannot be shown.
func (r Row) ShownName() string {
	if r.IsNameShared || !showableName.MatchString(r.DisplayName) {
		return r.Name
	}
	return r.DisplayName
}

// IsAsleepBySchedule reports whether a Slumber stops the object. A start does not end such a stop; kubectl torpor
// skip does.
func (r Row) IsAsleepBySchedule() bool { return r.Stopped && r.Slumber != "" }

// WithoutHistory returns the row without its earlier stops, its conditions and its labels, which take most of its
// memory.
func (r Row) WithoutHistory() Row {
	r.Stops, r.Conditions, r.Labels, r.PastScheduled = nil, nil, nil, nil
	return r
}

// JudgeController returns a finding if no controller acts on the part in a namespace, or if no manager renews the
// Lease.
func (p Part) JudgeController(acting lease.Acting, namespace string) []preflight.Finding {
	gap := acting.DescribeGap(p.Controllers, namespace)
	switch {
	case gap != nil:
		return preflight.JudgeController(gap.String())
	case !acting.EndedAt.IsZero():
		return preflight.JudgeMissingManager(fmt.Sprintf("%s/%s", lease.Namespace, lease.Name))
	default:
		return nil
	}
}

// WithGap reports in NEXT that the active manager runs no controller for the object, so that a stop remains in
// effect and a change in progress remains unfinished.
func (r Row) WithGap(acting lease.Acting) Row {
	gap := acting.DescribeGap(r.Controllers, r.Namespace)
	if gap == nil {
		return r
	}
	r.Next = "no controller acts on it: " + gap.Found
	if isAtRest := slices.Contains([]string{"running", "unknown"}, strings.ToLower(r.State)); r.Stopped || !isAtRest {
		r.Next = StuckPrefix + r.Next
	}
	r.NoController, r.Remedy = gap.String(), gap.Remedy
	return r
}
