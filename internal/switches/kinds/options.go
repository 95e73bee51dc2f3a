// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// Planner is a kind whose stops and starts can be planned.
type Planner interface {
	// ListRelated returns the other objects that a plan needs.
	ListRelated(obj Object) []Related
	// Plan describes the effects of a stop or a start of a part, and the problems that may prevent or affect it.
	Plan(s PlanSubject, r preflight.PlanRequest) preflight.Plan
}

// Related is an object, or all objects of a kind, in the namespace of a planned object.
type Related struct {
	// To read one object, Object is an empty object of its type, and Name its name. To read all objects, List is an
	// empty list, and Name is empty.
	Object Object
	Name   string
	List   List
	// IsOptional is true if a plan can be made even if the API server does not serve the kind.
	IsOptional bool
	// Unread is the remark in the plan if the user has no permission to read the objects. If Unread is empty, a missing
	// permission makes the plan fail.
	Unread string
}

// PlanSubject is the object of a plan.
type PlanSubject struct {
	Object Object
	Part   string
	// StartCommand is the command that starts the object again.
	StartCommand string
	// Related are the related objects that were found, and Unread the remarks about those that could not be read.
	Related []Object
	Unread  []string
}

// JudgeRead returns the error with which the plan fails after related objects could not be read. A missing object and
// an optional kind that is not served are no errors. If the user has no permission to read the objects, JudgeRead adds
// needed.Unread to the plan; if needed.Unread is empty, the plan fails.
func (s *PlanSubject) JudgeRead(needed Related, err error) error {
	isServed := !IsKindNotServed(err)
	switch {
	case err == nil, k8serrors.IsNotFound(err) && isServed, needed.IsOptional && !isServed:
		return nil
	case needed.Unread != "" && k8serrors.IsForbidden(err):
		s.Unread = append(s.Unread, needed.Unread)
		return nil
	default:
		return err
	}
}

// IsKindNotServed distinguishes a kind that the API server does not serve from an object that does not exist.
func IsKindNotServed(err error) bool {
	return k8serrors.IsNotFound(err) && k8serrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// PartlyStopped is a kind whose objects cannot be stopped as a whole: users stop their parts.
type PartlyStopped interface {
	// DescribeWholeStop returns how a user stops a whole object.
	DescribeWholeStop() string
}

// DisplayNamer is a kind whose objects have a display name.
type DisplayNamer interface {
	// ReadDisplayName returns the display name of an object; empty if it has none.
	ReadDisplayName(obj Object) string
}

// Restarter is a kind that can be restarted. The restart command can wait until the requested revision has settled.
type Restarter interface {
	// Restart requests a restart.
	Restart(obj Object, now time.Time)
	// ReadRevisions returns the requested revision of an object, and the newest one that the whole object has reached.
	ReadRevisions(obj Object) (wanted, settled int64)
}

// Late is a kind whose objects may be used by objects of other kinds, which are stopped first.
type Late interface {
	// StopWave returns the number of the wave in which the objects are stopped. It is from 0 to MaxWaves-1.
	StopWave() int
}

// StateNamer is a kind that has its own word for the state stopped, such as hibernating.
type StateNamer interface {
	// StoppedWord returns the word, which replaces stopped in messages such as "is already stopped".
	StoppedWord() string
}

// Saver is a kind for which Torpor counts the machine-hours or resources that stops save.
type Saver interface {
	// ReadSavings returns what the stops of an object save.
	ReadSavings(obj Object) Savings
}

// Savings describes what the stops of an object save. Only figures that the object confirms are counted.
type Savings struct {
	// HasMachines is false for kinds without machines of their own.
	HasMachines bool
	// Machines is the number of machines recorded when the stop began; 0 if unknown.
	Machines int
	// From is when all machines were observed stopped, and To is when they were started again; nil if this is
	// unknown or has not happened.
	From, To *metav1.Time
	// Recorded is what all stops of the object have saved.
	Recorded *torporv1alpha1.Savings
}

// WeekMachineHours returns the machine-hours saved since Monday, 00:00 UTC. A start of the object does not reduce
// them.
func (s Savings) WeekMachineHours(now time.Time) float64 {
	return savings.TotalsOfWeek(s.Recorded, savings.WeekOf(now), now).MachineSeconds / time.Hour.Seconds()
}

// MachineHours returns the number of machines times the hours of the last hibernation. A hibernation that continues
// is counted until now. isKnown is false if the status lacks the number of machines or the time of the stop.
func (s Savings) MachineHours(now time.Time) (hours float64, isKnown bool) {
	if s.Machines == 0 || s.From == nil {
		return 0, false
	}
	end := now
	if s.To != nil {
		end = s.To.Time
	}
	return float64(s.Machines) * max(0, end.Sub(s.From.Time).Hours()), true
}

// IsOngoing reports whether the machines are off now.
func (s Savings) IsOngoing() bool { return s.From != nil && s.To == nil }

// Finalized is a kind whose objects have a finalizer of Torpor.
type Finalized interface {
	// ListFinalizers returns the finalizers of objects of this kind, and of the other kinds of its feature.
	ListFinalizers() []Finalizer
}

// Finalizer is a finalizer that Torpor adds to a kind.
type Finalizer struct {
	Kind schema.GroupVersionKind
	Name string
	// Upstream is the other project with controllers for the kind. It may be zero if the project does not share the
	// finalizer.
	Upstream otherwriter.Upstream
}

// Abandoned is a kind whose objects remain stopped if no manager runs any more.
type Abandoned interface {
	// DescribeAbandoned returns the state in which an object remains, and the consequence of this state. It returns
	// empty strings for an object that is not stopped.
	DescribeAbandoned(obj Object) (state, consequence string)
}
