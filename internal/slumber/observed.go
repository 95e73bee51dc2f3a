// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Observed is everything that Decide looks at.
type Observed struct {
	Now     time.Time
	Slumber *torporv1alpha1.Slumber
	// Waves are the members of the waves of the spec, in its order. What several select belongs to the first of them.
	Waves [][]Member
	// MissingKinds are those of targets that nobody can stop here, sorted: they are not served, or no StopAdapter is about them.
	MissingKinds []string
	// KindsAwaitedUntil is until when those may still come, as the manager has just begun; zero if they are not awaited.
	KindsAwaitedUntil time.Time
	// UnreadableKinds are those whose objects could not be listed, and why. What there is of them is not known.
	UnreadableKinds map[string]string
	// Leftovers are what the Slumber has stopped and does not select any more.
	Leftovers []Member
}

// Member is an object that a Slumber selects.
type Member struct {
	// Name is for people: kind and name.
	Name string
	stoppable.State
	// SkippedUntil is until when it is left alone; zero if it is not.
	SkippedUntil time.Time
	// SkippedBy is who said so; empty if no admission noted it.
	SkippedBy string
	// IsStopped says that the Slumber's stop holds, as the object says; IsExpired that it has lasted longer than it was meant to, and keeps nothing asleep.
	IsStopped, IsExpired bool
}

// isLeftAlone reports whether a member is not to be stopped with a wave that sleeps since a time: somebody skips it, or has resumed it since.
func (m Member) isLeftAlone(now, since time.Time) bool {
	return now.Before(m.SkippedUntil) || m.ResumedAt.After(since)
}

// isAsWished reports whether a member is as it should be: what sleeps is asleep, and of what wakes everything is awake that nobody else stops.
func (m Member) isAsWished(shouldSleep bool) bool {
	if shouldSleep {
		return m.IsAsleep && (m.IsStopped && !m.IsExpired || m.IsStoppedWithoutSlumbers) // Else it is about to wake, from a stop that is over.
	}
	return !m.IsStopped && (m.IsAwake || m.IsStoppedWithoutSlumbers)
}

// listUnknown names the kinds which a wave selects of which it is not known what there is: those that could not be listed, and those that are not
// served yet, but may be soon after the start of the manager. The wave waits for them.
func (o Observed) listUnknown(wave int) (names []string) {
	mayCome := o.Now.Before(o.KindsAwaitedUntil)
	for _, target := range o.Slumber.Spec.Waves[wave].Targets {
		name := KindOf(target).String()
		why, isUnreadable := o.UnreadableKinds[name]
		switch {
		case isUnreadable:
			names = append(names, "what there is of "+name+" ("+why+")")
		case mayCome && slices.Contains(o.MissingKinds, name):
			names = append(names, "what there is of "+name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Concerns reports whether an object may be a member of a Slumber, or has something of it: another object changes no decision.
func Concerns(s *torporv1alpha1.Slumber, kind schema.GroupKind, o metav1.Object) bool {
	if o.GetAnnotations()[torporv1alpha1.SlumberAnnotationPrefix+s.Name] != "" {
		return true
	}
	wave, err := FindWave(s, kind, o.GetLabels())
	return err != nil || wave >= 0
}

// FindWave returns the first wave of a Slumber that selects an object; -1 if none does.
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

// HasReadableSelectors reports whether it can be known what a Slumber selects.
func HasReadableSelectors(s *torporv1alpha1.Slumber) bool { return validateSelectors(s) == nil }

// validateSelectors returns what is wrong with a selector that the schema takes: an operator that nobody knows, or that lacks its values.
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
		return nil, fmt.Errorf("spec.waves[%d].targets[%d].selector: expected labels and expressions that make sense, found: %w; correct it", wave, at, err)
	}
	return selector, nil
}

// KindOf returns which kind a target selects. Those that Torpor knows need no API group.
func KindOf(target torporv1alpha1.SlumberTarget) schema.GroupKind {
	if target.APIGroup != "" {
		return schema.GroupKind{Group: target.APIGroup, Kind: target.Kind}
	}
	return schema.GroupKind{Group: stoppable.FindGroup(target.Kind), Kind: target.Kind}
}

// ReadMember reads what is known of an object that a Slumber may have stopped. A time of skipping that makes no sense skips nothing.
func ReadMember(slumber string, kind stoppable.Kind, obj stoppable.Object, now time.Time) Member {
	m := Member{Name: kind.GVK.Kind + " " + obj.GetName(), State: kind.ReadState(obj, now)}
	m.SkippedUntil, _ = stoprecord.ReadSkip(obj.GetAnnotations())
	m.SkippedBy = stoprecord.ReadAuthor(obj.GetAnnotations(), torporv1alpha1.SkipUntilAnnotation)
	stop := m.FindStops(slumber)
	m.IsStopped = stoprecord.Records(stop.Stops).Holds()
	m.IsExpired = m.IsStopped && stop.ExpiresAt != nil && !now.Before(stop.ExpiresAt.Time)
	return m
}

// FindStops returns what a Slumber wants of a member, as the member says.
func (m Member) FindStops(slumber string) torporv1alpha1.ScheduledStop {
	i := slices.IndexFunc(m.ScheduledStops, func(s torporv1alpha1.ScheduledStop) bool { return s.Slumber == slumber })
	if i < 0 {
		return torporv1alpha1.ScheduledStop{Slumber: slumber}
	}
	return m.ScheduledStops[i]
}

// NextStops returns what a Slumber wants of a member after a plan.
func (p *Plan) NextStops(s *torporv1alpha1.Slumber, m Member, wave int, wish MemberWish, now time.Time) torporv1alpha1.ScheduledStop {
	before := m.FindStops(s.Name)
	if wish.Verb == Stop {
		before.Stops = m.noteResume(before.Stops, now)
	}
	next := before
	asked := stoprecord.Request{IsStopped: wish.Verb == Stop, By: describeSlumber(s), Reason: s.Spec.Reason}
	since := metav1.NewTime(now)
	if wave >= 0 && p.Status.Waves[wave].Since != nil {
		since = *p.Status.Waves[wave].Since
	}
	switch {
	case wish.Verb == Keep || wish.Verb == Start && !stoprecord.Records(before.Stops).Holds():
		return before
	case wish.StartedBy != "":
		asked.By, asked.At = wish.StartedBy, now
	default:
		asked.At = since.Time
		if len(before.Stops) > 0 && before.Stops[0].EndedAt != nil && before.Stops[0].EndedAt.After(since.Time) {
			asked.At = now // Somebody has started it in between: it is another stop of the same window.
		}
	}
	switch asked.Version = formatTime(since.Time); {
	case !asked.IsStopped:
		asked.Version += " started"
	case stoprecord.Records(before.Stops).Holds():
		asked.Version = before.Stops[0].RequestVersion // It has never ended.
	}
	records := stoprecord.NextRecords(before.Stops, asked, now)
	next.Stops = records[:min(len(records), maxStops)]
	if next.ExpiresAt = nil; wish.Verb == Stop && !p.WindowEnd.IsZero() {
		next.Stops[0].Until = new(metav1.NewTime(p.WindowEnd))
		next.ExpiresAt = new(metav1.NewTime(p.WindowEnd.Add(time.Duration(len(s.Spec.Waves)) * waveTimeoutOf(s))))
	}
	return next
}

// noteResume ends a stop that somebody has resumed in a window that is over by now, although nobody saw that window end: what is stopped in this one
// is stopped anew.
func (m Member) noteResume(stops stoprecord.Records, now time.Time) stoprecord.Records {
	if !stops.Holds() || !m.ResumedAt.After(stops[0].Since.Time) {
		return stops
	}
	return stoprecord.NextRecords(stops, stoprecord.Request{By: m.ResumedBy, At: m.ResumedAt.Time, Version: formatTime(m.ResumedAt.Time) + " started"}, now)
}

// describeSlumber is who has stopped something: the Slumber, and who last changed it, where admission noted that.
func describeSlumber(s *torporv1alpha1.Slumber) string {
	by := "Slumber " + s.Name
	if person := s.Annotations[torporv1alpha1.RequestedByAnnotation]; person != "" {
		by += " of " + person
	}
	return by
}

// maxStops is how many stops of one Slumber an object keeps.
const maxStops = 3

// IsWakePending reports whether what a Slumber keeps asleep should wake, or is waking.
func IsWakePending(s *torporv1alpha1.Slumber, now time.Time) bool {
	next := s.Status.NextTransitions
	isOver := len(next) > 0 && !now.Before(next[0].At.Time)
	return s.Status.State == torporv1alpha1.SlumberWakingUp || isOver && (s.Status.State == torporv1alpha1.SlumberAsleep || s.Status.State == torporv1alpha1.SlumberFallingAsleep)
}
