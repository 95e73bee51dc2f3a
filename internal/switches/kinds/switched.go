// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/stop/savings"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

const (
	// maxConditions limits how many conditions are shown of a status that Torpor does not own.
	maxConditions = 50
	// unreadAutoscalers is the remark in a plan if the user has no permission to list autoscalers.
	unreadAutoscalers = "Expected permission to list HorizontalPodAutoscalers, found none, so it is unknown whether an autoscaler would undo the stop"
)

// ObservedActivity describes whether an object runs, according to the status that its own controller reports.
type ObservedActivity struct {
	// IsStoppable is true if the object can be stopped.
	IsStoppable bool
	// IsQuiet is true if no part of the object runs, and IsReady is true if every part runs, whether or not Torpor
	// caused this.
	IsQuiet, IsReady bool
	// Message describes why the object is neither quiet nor ready.
	Message string
}

// Switchable defines a kind whose controllers are unaware of Torpor. Users annotate an object, and the manager sets
// and resets the kind's own switch (ADR 0030, ADR 0035).
type Switchable interface {
	// GVK, Names and Switch have the same meaning as in Definition.
	GVK() schema.GroupVersionKind
	Names() []string
	Switch() *FieldSwitch
}

// switched implements Definition for a Switchable.
type switched[K Switchable] struct{ of K }

// NewSwitched returns the kind that a Switchable defines.
func NewSwitched(of Switchable) Kind { return Kind{switched[Switchable]{of}} }

// GVK implements Definition.
func (k switched[K]) GVK() schema.GroupVersionKind { return k.of.GVK() }

// Names implements Definition.
func (k switched[K]) Names() []string { return k.of.Names() }

// Switch implements Definition.
func (k switched[K]) Switch() *FieldSwitch { return k.of.Switch() }

// AddToScheme implements Definition. It registers only autoscalers, which plans read, because the objects of the kind
// are unstructured.
func (k switched[K]) AddToScheme(known *runtime.Scheme) error {
	return autoscalingv2.AddToScheme(known)
}

// New implements Definition.
func (k switched[K]) New() Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.GVK())
	return u
}

// NewList implements Definition.
func (k switched[K]) NewList() List {
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(k.GVK().GroupVersion().WithKind(k.GVK().Kind + "List"))
	return u
}

// ReadState implements Definition.
func (k switched[K]) ReadState(obj Object, now time.Time) State {
	if u, isUnstructured := obj.(*unstructured.Unstructured); isUnstructured {
		how := k.Switch()
		return readSwitched(u, *how, how.ReadActivity(u), now)
	}
	return State{}
}

// Notes implements Definition.
func (k switched[K]) Notes() *Notes {
	return &Notes{
		Policy: "workloads", Path: "/note-workloads", HasRecordInAnnotations: true,
		Switches: []NotedSwitch{{Annotations: fieldswitch.AnnotationSwitch(), StoppedValue: "true"}},
	}
}

// StopWave implements Late.
func (k switched[K]) StopWave() int {
	if k.Switch().IsLate {
		return 1
	}
	return 0
}

// Parts implements Definition.
func (k switched[K]) Parts() []Part {
	controllers := "adapters"
	if IsBuiltIn(k.GVK().GroupKind()) {
		controllers = "workloads"
	}
	return []Part{{
		Name: k.Switch().Part, Controllers: controllers, Annotations: sharedAnnotations(),
		Stop:  func(obj Object, _ time.Time) { fieldswitch.AskForStop(obj) },
		Start: func(obj Object, _ time.Time) { fieldswitch.AskForStart(obj) },
	}}
}

// ReadSavings implements Saver.
func (k switched[K]) ReadSavings(obj Object) Savings {
	if k.Switch().ReadRate == nil {
		return Savings{}
	}
	return Savings{Recorded: savings.ReadAnnotation(obj.GetAnnotations())}
}

// DescribeRows implements Definition.
func (k switched[K]) DescribeRows(obj Object) []Row {
	u, _ := obj.(*unstructured.Unstructured)
	how := k.Switch()
	is, rest := fieldswitch.ReadSwitch(u), how.ReadActivity(u)
	r := newRow(k, u, k.Parts()[0], fieldswitch.IsAsked(u) && !is.Records.HasExpired(), is.Records).withScheduled(is.ListStopsSinceResume())
	r.PastScheduled, r.Message, r.Conditions = nil, rest.Message, readConditions(u)
	if gvk := k.GVK(); !IsBuiltIn(gvk.GroupKind()) {
		r.APIGroup = gvk.Group
	}
	for _, one := range is.Scheduled {
		r.PastScheduled = append(r.PastScheduled, one.Stops...)
	}
	r.IsUntouched = isUntouched(u, is)
	if at, by := is.LastResume(); !r.Stopped && (r.Since == nil && !at.IsZero() || r.Since != nil && at.After(r.Since.Time)) {
		r.Since, r.By = &at, by
	}
	if r.State, r.RestsByItself = stateOfSwitched(how, r, is, rest, u); r.State == "stopped" || r.State == "running" {
		r.Message = "" // The object has reached the requested state, so the error of an expression does not matter.
	}
	return []Row{r.withNext(r.StartCommand()).withUnseen(is)}
}

// isUntouched reports whether neither a user nor a Slumber ever stopped the object.
func isUntouched(obj metav1.Object, is fieldswitch.SwitchState) bool {
	return len(is.Records)+len(is.Scheduled)+len(is.Saved) == 0 && !fieldswitch.IsAsked(obj)
}

// stateOfSwitched returns the value of the STATE column for an object. restsByItself is true if the object is stopped
// by its own field, such as spec.suspend, without a request to Torpor.
func stateOfSwitched(how *FieldSwitch, r Row, is fieldswitch.SwitchState, rest ObservedActivity, u *unstructured.Unstructured) (state string, restsByItself bool) {
	isKept := len(is.Saved) > 0
	switch {
	case r.Stopped && isKept && rest.IsQuiet:
		return "stopped", false
	case r.Stopped:
		return "stopping", false
	case !isKept && rest.IsQuiet && fieldswitch.IsSet(u.Object, how.Operations):
		return "stopped", true
	case !isKept && rest.IsReady:
		return "running", false
	default:
		return "starting", false
	}
}

// withUnseen sets NEXT to the reason why the manager refuses a stop, or, if no manager has recorded the stop, to a
// hint that the feature may be missing.
func (r Row) withUnseen(is fieldswitch.SwitchState) Row {
	switch {
	case (r.Stopped || r.IsAsked) && is.Refused != "":
		r.Refusal = is.Refused
		r.Next = StuckPrefix + is.Refused
	case r.IsAsked && !is.Records.Holds():
		r.Next = "waits for a manager with the feature workloads"
	}
	return r
}

// readConditions reads the conditions of a status that Torpor does not own. It skips conditions that do not have the
// form of a metav1.Condition.
func readConditions(u *unstructured.Unstructured) (conditions []metav1.Condition) {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range all[:min(len(all), maxConditions)] {
		fields, isMap := one.(map[string]any)
		var c metav1.Condition
		if isMap && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil && c.Type != "" {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// ListRelated implements Planner. It returns autoscalers, because an autoscaler that scales from zero would undo the
// stop.
func (k switched[K]) ListRelated(obj Object) []Related {
	if !k.Switch().IsScaled || fieldswitch.RefuseOwned(obj) != "" {
		return nil
	}
	return []Related{{List: &autoscalingv2.HorizontalPodAutoscalerList{}, Unread: unreadAutoscalers}}
}

// Plan implements Planner.
func (k switched[K]) Plan(s PlanSubject, r preflight.PlanRequest) preflight.Plan {
	u, _ := s.Object.(*unstructured.Unstructured)
	how, is, refusal := k.Switch(), fieldswitch.ReadSwitch(u), fieldswitch.RefuseOwned(u)
	scheduled := is.FindScheduled(u.GetAnnotations(), r.Now)
	effects := r.DescribeTakeover(scheduled, s.StartCommand)
	isTakeover := effects != nil
	switch {
	case isTakeover:
	case r.IsStart:
		effects = is.DescribeStart()
	case len(is.Saved) > 0:
		effects = []string{"Nothing changes: the object is already stopped"}
	default:
		var err error
		if effects, err = fieldswitch.DescribeStop(u.Object, how.Operations); err != nil {
			refusal = err.Error()
		}
	}
	unread := s.Unread
	if refusal != "" {
		unread = nil // The stop is refused anyway, so unread autoscalers do not matter.
	} else if how.IsScaled {
		refusal = fieldswitch.RefuseAutoscaled(u, listAutoscalers(s.Related))
	}
	findings := append(preflight.JudgeShared(u, r), preflight.JudgeSlumber(scheduled, r)...)
	if !r.IsStart {
		findings = append(findings, judgeSwitch(refusal, unread)...)
	}
	if how.ReadSchedule != nil {
		schedule, deadline := how.ReadSchedule(u)
		findings = append(findings, preflight.JudgeSchedule(u.GetName(), schedule, deadline, r)...)
	}
	if !r.IsStart && !isTakeover {
		effects = append(effects, r.DescribeEnd(s.StartCommand))
	}
	return preflight.Plan{Effects: effects, Findings: preflight.Join(findings)}
}

func listAutoscalers(related []Object) (all []autoscalingv2.HorizontalPodAutoscaler) {
	for _, one := range related {
		if a, isAutoscaler := one.(*autoscalingv2.HorizontalPodAutoscaler); isAutoscaler {
			all = append(all, *a)
		}
	}
	return all
}

// judgeSwitch returns a finding if the manager refuses the stop, and a finding for each kind of object that the user
// has no permission to read.
func judgeSwitch(refusal string, unread []string) (findings []preflight.Finding) {
	if refusal != "" {
		findings = append(findings, preflight.NewRemark(torporv1alpha1.StopRefusedFinding, refusal))
	}
	for _, remark := range unread {
		findings = append(findings, preflight.NewRemark(torporv1alpha1.NotCheckedFinding, remark))
	}
	return findings
}

func readSwitched(u *unstructured.Unstructured, how FieldSwitch, rest ObservedActivity, now time.Time) State {
	is := fieldswitch.ReadSwitch(u)
	isKept, isOthers := is.IsKept(u), is.IsStoppedWithoutSlumbers(u, how.Operations, now)
	scheduled := is.FindScheduled(u.GetAnnotations(), now)
	s := State{
		// An object with a controlling owner cannot be stopped. An object that a Slumber stops remains stoppable,
		// even if its status reports otherwise during the stop: the Slumber starts members that are not stoppable.
		IsStoppable:              u.GetDeletionTimestamp().IsZero() && (rest.IsStoppable || scheduled != nil) && fieldswitch.RefuseOwned(u) == "",
		IsAsleep:                 (isKept || isOthers) && rest.IsQuiet,
		IsAwake:                  len(is.Saved) == 0 && rest.IsReady && scheduled == nil,
		IsStoppedWithoutSlumbers: isOthers,
		ScheduledStops:           is.Scheduled,
		Message:                  rest.Message,
	}
	s.ResumedAt, s.ResumedBy = is.LastResume()
	if is.Refused != "" {
		s.Message = is.Refused
	}
	return s
}

func set(op torporv1alpha1.StopOperationType, path, value string) torporv1alpha1.StopOperation {
	return torporv1alpha1.StopOperation{Op: op, Path: path, Value: &torporv1alpha1.JSONValue{Raw: []byte(value)}}
}
