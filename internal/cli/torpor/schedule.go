// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"slices"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/slumber"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// maxTransitions is how many of each Slumber are told of an object.
const maxTransitions = 3

// scheduledTransition is when a Slumber begins to stop or to start an object.
type scheduledTransition struct {
	Slumber string `json:"slumber"`
	// To is Asleep or Awake.
	To torporv1alpha1.SlumberState `json:"to"`
	At metav1.Time                 `json:"at"`
}

// withScheduled has the stop of a Slumber in the row of what nobody else stops.
func (r stopRow) withScheduled(stops []torporv1alpha1.ScheduledStop) stopRow {
	for _, one := range stops {
		r.pastScheduled = append(r.pastScheduled, one.Stops...)
	}
	at := slices.IndexFunc(stops, func(s torporv1alpha1.ScheduledStop) bool { return stoprecord.Records(s.Stops).Holds() })
	if at < 0 || r.Stopped {
		return r
	}
	newest := stops[at].Stops[0]
	r.Stopped, r.Since, r.By, r.Reason, r.Until, r.slumber = true, &newest.Since, newest.By, newest.Reason, newest.Until, stops[at].Slumber
	return r
}

// skipCommand works as it is printed, whatever the current namespace is.
func (r stopRow) skipCommand() string {
	return fmt.Sprintf("kubectl torpor skip -n %s %s", r.Namespace, r.displayName())
}

// readSlumbers returns those of a namespace, or of all. Nothing is said of those that the user may not read.
func (kube *kubeClient) readSlumbers(ctx context.Context, namespace string) (all []torporv1alpha1.Slumber, err error) {
	err = eachItem(ctx, kube, &torporv1alpha1.SlumberList{}, func(s *torporv1alpha1.Slumber) { all = append(all, *s) }, client.InNamespace(namespace))
	if connection.IsKindNotServed(err) || k8serrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the Slumbers: %w", err)
	}
	return all, nil
}

// findSlumbers returns those that select the object of a row and are not suspended.
func (r stopRow) findSlumbers(all []torporv1alpha1.Slumber) (found []*torporv1alpha1.Slumber) {
	for i := range all {
		s := &all[i]
		if wave, err := slumber.FindWave(s, r.groupKind, r.labels); s.Namespace == r.Namespace && err == nil && wave >= 0 && !s.Spec.Suspend {
			found = append(found, s)
		}
	}
	return found
}

// previewSchedules adds to the rows of objects when Slumbers stop and start them next, and takes away skips that are over.
func (a *commands) previewSchedules(ctx context.Context, kube *kubeClient, rows []stopRow) error {
	slumbers, err := kube.readSlumbers(ctx, kube.namespace)
	a.addSchedules(rows, slumbers)
	return err
}

// addSchedules does so with the Slumbers that there are. The rows of one object stand beside each other.
func (a *commands) addSchedules(rows []stopRow, slumbers []torporv1alpha1.Slumber) {
	for i := range rows {
		r := &rows[i]
		// Of the parts of one object the last one is the whole of it.
		isPart := i+1 < len(rows) && rows[i+1].groupKind == r.groupKind && rows[i+1].Name == r.Name && rows[i+1].Namespace == r.Namespace
		if isPart || r.SkippedUntil != nil && !a.clock.Now().Before(r.SkippedUntil.Time) {
			r.SkippedUntil, r.SkippedBy = nil, ""
		}
		if isPart {
			continue
		}
		for _, s := range r.findSlumbers(slumbers) {
			r.Schedule = append(r.Schedule, r.listTransitions(s, a.clock.Now())...)
		}
		if r.Next == "" && len(r.Schedule) > 0 {
			r.Next = r.Schedule[0].describe()
		}
	}
}

// listTransitions returns the next ones of a Slumber that selects the object: what is skipped falls asleep at the end of that, if a window goes on then.
func (r stopRow) listTransitions(s *torporv1alpha1.Slumber, now time.Time) []scheduledTransition {
	if r.SkippedUntil == nil {
		return listTransitions(s, now)
	}
	next := listTransitions(s, r.SkippedUntil.Time)
	if len(next) > 0 && next[0].To == torporv1alpha1.SlumberAwake {
		next = slices.Insert(next, 0, scheduledTransition{s.Name, torporv1alpha1.SlumberAsleep, *r.SkippedUntil})
	}
	return next
}

func listTransitions(s *torporv1alpha1.Slumber, now time.Time) (all []scheduledTransition) {
	schedule, err := slumber.ParseSchedule(s.Spec)
	if err != nil {
		return nil // The Slumber's own status says so.
	}
	next := schedule.NextTransitions(now)
	for _, one := range next[:min(len(next), maxTransitions)] {
		all = append(all, scheduledTransition{s.Name, one.To, one.At})
	}
	return all
}

func (t scheduledTransition) describe() string {
	if t.To == torporv1alpha1.SlumberAsleep {
		return fmt.Sprintf("sleeps from %s by Slumber %s", formatTime(&t.At), t.Slumber)
	}
	return fmt.Sprintf("wakes at %s by Slumber %s", formatTime(&t.At), t.Slumber)
}

// endOfSleep returns when the sleep ends that goes on, or the next one; zero if none does.
func endOfSleep(s *torporv1alpha1.Slumber, now time.Time) time.Time {
	for _, one := range listTransitions(s, now) {
		if one.To == torporv1alpha1.SlumberAwake {
			return one.At.Time
		}
	}
	return time.Time{}
}
