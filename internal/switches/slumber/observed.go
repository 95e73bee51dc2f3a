// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// Observed is everything that Decide uses.
type Observed struct {
	Now     time.Time
	Slumber *torporv1alpha1.Slumber
	// Waves are the members of each wave, in the order of the spec. An object that several waves select belongs to
	// the first of these waves.
	Waves [][]Member
	// MissingKinds lists, sorted, the kinds of targets that cannot be stopped here, for example because they are not
	// served or no StopAdapter describes them.
	MissingKinds []string
	// KindsAwaitedUntil is the time until which missing kinds may still be announced, because the manager has just
	// started; zero if none are awaited.
	KindsAwaitedUntil time.Time
	// UnreadableKinds maps each kind whose objects could not be listed to the reason. It is unknown how many objects
	// such a kind has, and in which state.
	UnreadableKinds map[string]string
	// InvalidReach is the reason why the namespaces of a ClusterSlumber cannot be selected; nil if they can.
	InvalidReach error
	// Leftovers are objects that the Slumber has stopped but no longer selects.
	Leftovers []Member
}

// Member is an object that a Slumber selects or has stopped.
type Member struct {
	// Name is shown to users: kind and name.
	Name string
	// UID identifies the object. It also determines the member's offset within a wave that is spread over time.
	UID types.UID
	kinds.State
	// SkippedUntil is the time until which the Slumber does not stop the object; zero if it is not skipped.
	SkippedUntil time.Time
	// SkippedBy is the user who requested the skip; empty if no admission policy recorded the user.
	SkippedBy string
	// IsStopped is true while the object records a stop of the Slumber that has not ended. IsExpired is true if this
	// stop is past its expiry, so that it no longer keeps the object asleep.
	IsStopped, IsExpired bool
}

// isLeftAlone reports whether a member must not be stopped with its wave: a user skips the member, or has resumed it
// since the time at which the wave was stopped.
func (m Member) isLeftAlone(now, since time.Time) bool {
	return now.Before(m.SkippedUntil) || m.ResumedAt.After(since)
}

// isAsWished reports whether a member is in the state that its wave requests: asleep for a wave that should sleep,
// and otherwise awake, unless the member has another stop.
func (m Member) isAsWished(shouldSleep bool) bool {
	if shouldSleep {
		// An asleep member without such a stop is about to wake.
		return m.IsAsleep && (m.IsStopped && !m.IsExpired || m.IsStoppedWithoutSlumbers)
	}
	return !m.IsStopped && (m.IsAwake || m.IsStoppedWithoutSlumbers)
}

// listUnknown describes the kinds that a wave selects and whose objects are unknown, so that the wave waits: kinds
// that could not be listed, and kinds that may still be announced after the start of the manager.
func (o Observed) listUnknown(wave int) (names []string) {
	mayCome := o.Now.Before(o.KindsAwaitedUntil)
	for _, target := range o.Slumber.Spec.Waves[wave].Targets {
		name := KindOf(target).String()
		why, isUnreadable := o.UnreadableKinds[name]
		switch {
		case isUnreadable:
			names = append(names, "the objects of "+name+" ("+why+")")
		case mayCome && slices.Contains(o.MissingKinds, name):
			names = append(names, "the objects of "+name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Concerns reports whether an object may be a member of a Slumber, or records a stop by the Slumber. Other objects do
// not affect a decision.
func Concerns(s *torporv1alpha1.Slumber, reach *Reach, kind schema.GroupKind, o metav1.Object) bool {
	if o.GetAnnotations()[torporv1alpha1.SlumberAnnotationPrefix+s.Name] != "" {
		return true
	}
	wave, err := reach.FindWave(s, kind, o)
	return err != nil || wave >= 0
}

// FindWave returns the index of the first wave of a Slumber that selects an object, or -1 if no wave does.
func FindWave(s *torporv1alpha1.Slumber, kind schema.GroupKind, of map[string]string) (int, error) {
	for i, wave := range s.Spec.Waves {
		for j, target := range wave.Targets {
			if KindOf(target) != kind {
				continue
			}
			selector, err := readSelector(i, j, target)
			if err != nil {
				return -1, err
			}
			if selector.Matches(labels.Set(of)) {
				return i, nil
			}
		}
	}
	return -1, nil
}

// HasReadableSelectors reports whether every selector of a Slumber can be parsed.
func HasReadableSelectors(s *torporv1alpha1.Slumber) bool { return validateSelectors(s) == nil }

// validateSelectors returns an error for a selector that the schema accepts but that cannot be parsed, for example
// because its operator is unknown or has no values.
func validateSelectors(s *torporv1alpha1.Slumber) error {
	for i, wave := range s.Spec.Waves {
		for j, target := range wave.Targets {
			if _, err := readSelector(i, j, target); err != nil {
				return err
			}
		}
	}
	return nil
}

func readSelector(wave, at int, target torporv1alpha1.SlumberTarget) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&target.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.waves[%d].targets[%d].selector: expected valid labels and expressions, found: %w; correct it", wave, at, err)
	}
	return selector, nil
}

// KindOf returns the kind that a target selects. Kinds with built-in support need no API group.
func KindOf(target torporv1alpha1.SlumberTarget) schema.GroupKind {
	if target.APIGroup != "" {
		return schema.GroupKind{Group: target.APIGroup, Kind: target.Kind}
	}
	return kinds.GroupKindOf(target.Kind)
}

// ReadMember reads the state of an object that a Slumber may have stopped. An invalid time in the skip annotation
// skips nothing.
func ReadMember(slumber string, kind kinds.Kind, obj kinds.Object, now time.Time) Member {
	m := Member{Name: kind.GVK().Kind + " " + nameWithin(slumber, obj), UID: obj.GetUID(), State: kind.ReadState(obj, now)}
	m.SkippedUntil, _ = stoprecord.ReadSkip(obj.GetAnnotations())
	m.SkippedBy = stoprecord.ReadAuthor(obj.GetAnnotations(), torporv1alpha1.SkipUntilAnnotation)
	stop := m.FindStops(slumber)
	m.IsStopped = stoprecord.Records(stop.Stops).Holds()
	m.IsExpired = m.IsStopped && stop.ExpiresAt != nil && !now.Before(stop.ExpiresAt.Time)
	return m
}

// nameWithin returns the name of an object for users of a Slumber, with its namespace if that is not the Slumber's own.
func nameWithin(slumber string, o metav1.Object) string {
	if strings.HasPrefix(slumber, torporv1alpha1.ClusterSlumberPrefix) {
		return o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetName()
}

// FindStops returns the stops by a Slumber that a member records. It returns a ScheduledStop without stops if the
// member records no stop.
func (m Member) FindStops(slumber string) torporv1alpha1.ScheduledStop {
	i := slices.IndexFunc(m.ScheduledStops, func(s torporv1alpha1.ScheduledStop) bool { return s.Slumber == slumber })
	if i < 0 {
		return torporv1alpha1.ScheduledStop{Slumber: slumber}
	}
	return m.ScheduledStops[i]
}

// NextStops returns the stops by the Slumber that the member must record to carry out a plan.
func (p *Plan) NextStops(s *torporv1alpha1.Slumber, m Member, wave int, wish MemberWish, now time.Time) torporv1alpha1.ScheduledStop {
	before := m.FindStops(s.Name)
	if wish.Verb == Stop {
		before.Stops = m.noteResume(before.Stops, now)
	}
	next := before
	asked := stoprecord.Request{IsStopped: wish.Verb == Stop, By: describeSlumber(s), Reason: s.Spec.Reason}
	since, turn := now, now
	if wave >= 0 && p.Status.Waves[wave].Since != nil {
		since = p.Status.Waves[wave].Since.Time
		turn = since.Add(SpreadOffset(m.UID, SpreadOf(s)))
	}
	if turn.After(now) {
		turn = since // The stop has expired, or a user's skip or resume takes effect before the member is due.
	}
	switch {
	case wish.Verb == Keep || wish.Verb == Start && !stoprecord.Records(before.Stops).Holds():
		return before
	case wish.StartedBy != "":
		asked.By, asked.At = wish.StartedBy, now
	default:
		asked.At = turn
		if len(before.Stops) > 0 && before.Stops[0].EndedAt != nil && before.Stops[0].EndedAt.After(turn) {
			asked.At = now // The member was started after turn, so this is another stop in the same window.
		}
	}
	switch asked.Version = formatTime(since); {
	case !asked.IsStopped:
		asked.Version += " started"
	case stoprecord.Records(before.Stops).Holds():
		asked.Version = before.Stops[0].RequestVersion // The stop in effect is continued.
	}
	records := stoprecord.NextRecords(before.Stops, asked, now)
	next.Stops = records[:min(len(records), stoprecord.MaxScheduled)]
	if next.ExpiresAt = nil; wish.Verb == Stop && !p.WindowEnd.IsZero() {
		next.Stops[0].Until = new(metav1.NewTime(p.WindowEnd.Add(SpreadOffset(m.UID, SpreadOf(s)))))
		next.ExpiresAt = new(metav1.NewTime(p.WindowEnd.Add(time.Duration(len(s.Spec.Waves)) * (waveTimeoutOf(s) + SpreadOf(s)))))
	}
	return next
}

// noteResume records the end of a stop that a user ended in an earlier window, if no reconciliation ran after the end
// of that window. The member is then stopped again in the current window.
func (m Member) noteResume(stops stoprecord.Records, now time.Time) stoprecord.Records {
	if !stops.Holds() || !m.ResumedAt.After(stops[0].Since.Time) {
		return stops
	}
	return stoprecord.NextRecords(stops, stoprecord.Request{By: m.ResumedBy, At: m.ResumedAt.Time, Version: formatTime(m.ResumedAt.Time) + " started"}, now)
}

// describeSlumber returns the requester of a stop: the Slumber, and the user who last changed its spec, if an
// admission policy recorded the user.
func describeSlumber(s *torporv1alpha1.Slumber) string {
	by := stoprecord.NameSlumber(s.Name)
	if person := s.Annotations[torporv1alpha1.RequestedByAnnotation]; person != "" {
		by += " of " + person
	}
	return by
}

// IsWakePending reports whether the members of a Slumber are waking, or should begin to wake.
func IsWakePending(s *torporv1alpha1.Slumber, now time.Time) bool {
	next := s.Status.NextTransitions
	isOver := len(next) > 0 && !now.Before(next[0].At.Time)
	return s.Status.State == torporv1alpha1.SlumberWakingUp || isOver && (s.Status.State == torporv1alpha1.SlumberAsleep || s.Status.State == torporv1alpha1.SlumberFallingAsleep)
}
