// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// maxTransitions is the maximum number of transitions of a Slumber that are shown for an object.
const maxTransitions = 3

// scheduledTransition is the time at which a Slumber begins to stop or to start an object.
type scheduledTransition struct {
	Slumber string `json:"slumber"`
	// To is Asleep or Awake.
	To torporv1alpha1.SlumberState `json:"to"`
	At metav1.Time                 `json:"at"`
}

// listSlumbers returns the Slumbers of the command's namespaces.
func (kube *kubeClient) listSlumbers(ctx context.Context) (all []torporv1alpha1.Slumber, err error) {
	err = eachItem(ctx, kube, &torporv1alpha1.SlumberList{}, func(s *torporv1alpha1.Slumber) { all = append(all, *s) }, client.InNamespace(kube.namespace))
	if err != nil {
		return nil, fmt.Errorf("list the Slumbers: %w", err)
	}
	return all, nil
}

func (kube *kubeClient) listClusterSlumbers(ctx context.Context) (all []torporv1alpha1.ClusterSlumber, err error) {
	err = eachItem(ctx, kube, &torporv1alpha1.ClusterSlumberList{}, func(s *torporv1alpha1.ClusterSlumber) { all = append(all, *s) })
	if err != nil {
		return nil, fmt.Errorf("list the ClusterSlumbers: %w", err)
	}
	return all, nil
}

// readSchedules returns the Slumbers of the command's namespaces, and the ClusterSlumbers that select them. It
// returns no schedules if the user may not list Slumbers, and no ClusterSlumbers if the user may not list them or
// read the namespaces.
func (kube *kubeClient) readSchedules(ctx context.Context) (slumber.Schedules, error) {
	slumbers, err := kube.listSlumbers(ctx)
	if isHidden(err) { // A Slumber takes precedence, so without the Slumbers the effect of ClusterSlumbers is unknown.
		return slumber.Schedules{}, nil
	}
	if err != nil {
		return slumber.Schedules{}, err
	}
	ofCluster, err := kube.listClusterSlumbers(ctx)
	if err != nil && !isHidden(err) {
		return slumber.Schedules{}, err
	}
	if len(ofCluster) == 0 {
		return slumber.NewSchedules(slumbers, nil, nil), nil
	}
	namespaces, err := kube.readNamespaces(ctx)
	return slumber.NewSchedules(slumbers, ofCluster, namespaces), err
}

// readNamespaces returns the metadata of the command's namespaces, or none if the user may not read them.
func (kube *kubeClient) readNamespaces(ctx context.Context) (all []metav1.PartialObjectMetadata, err error) {
	kind := namespaceKind()
	if kube.namespace != metav1.NamespaceAll {
		one := metav1.PartialObjectMetadata{}
		one.SetGroupVersionKind(kind)
		all, err = append(all, one), kube.Get(ctx, client.ObjectKey{Name: kube.namespace}, &one)
		all[0] = one
	} else {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err = eachItem(ctx, kube, list, func(one *metav1.PartialObjectMetadata) { all = append(all, *one) })
	}
	if isHidden(err) || k8serrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the labels of the namespaces: %w", err)
	}
	return all, nil
}

func namespaceKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Namespace") }

// isHidden reports whether an error means that a kind is not served, or that the user may not read it.
func isHidden(err error) bool { return connection.IsKindNotServed(err) || k8serrors.IsForbidden(err) }

// findSlumbers returns the Slumbers that select the object, or, if none selects it, the ClusterSlumbers that select it.
func (r stopRow) findSlumbers(schedules slumber.Schedules) []*torporv1alpha1.Slumber {
	return schedules.FindFor(r.GroupKind, &metav1.ObjectMeta{Namespace: r.Namespace, Labels: r.Labels})
}

// previewSchedules adds the next scheduled stops and starts to the rows, marks overdue stops, and removes expired
// skips. If no controller acts on an object, NEXT reports that instead of the schedule.
func (a *commands) previewSchedules(ctx context.Context, kube *kubeClient, rows []stopRow) error {
	schedules, err := kube.readSchedules(ctx)
	a.addSchedules(rows, schedules)
	addGaps(rows, leasereader.ReadActing(ctx, kube, a.clock.Now()))
	return err
}

// addSchedules adds the next transitions of each object, and marks overdue stops. The rows of one object must be
// adjacent.
func (a *commands) addSchedules(rows []stopRow, schedules slumber.Schedules) {
	for i := range rows {
		rows[i] = rows[i].withOverdue(a.clock.Now())
		r := &rows[i]
		// The last row of an object represents the whole object.
		isPart := i+1 < len(rows) && rows[i+1].GroupKind == r.GroupKind && rows[i+1].Name == r.Name && rows[i+1].Namespace == r.Namespace
		if isPart || r.SkippedUntil != nil && !a.clock.Now().Before(r.SkippedUntil.Time) {
			r.SkippedUntil, r.SkippedBy = nil, ""
		}
		if isPart {
			continue
		}
		for _, s := range r.findSlumbers(schedules) {
			r.Schedule = append(r.Schedule, r.listTransitions(s, a.clock.Now())...)
		}
		if next := r.nextStop(); r.Next == "" && next != nil {
			r.Next = next.describe(formatUTC)
		}
	}
}

// nextStop returns the earliest scheduled stop, or nil if none exists. It ignores scheduled starts, because they do
// not change a running object.
func (r stopRow) nextStop() *scheduledTransition {
	var next *scheduledTransition
	for i, t := range r.Schedule {
		if t.To == torporv1alpha1.SlumberAsleep && (next == nil || t.At.Before(&next.At)) {
			next = &r.Schedule[i]
		}
	}
	return next
}

// listTransitions returns the next times at which a Slumber that selects the object stops or starts it. During a
// manual stop, the Slumber does not change the object, so the list begins at the end of the manual stop. If a skip
// ends during a window of the Slumber, the list begins with a stop at the end of the skip.
func (r stopRow) listTransitions(s *torporv1alpha1.Slumber, now time.Time) []scheduledTransition {
	from := now
	if r.IsAsked {
		if r.Until == nil {
			return nil
		}
		if r.Until.After(now) {
			from = r.Until.Time
		}
	}
	turn := slumber.SpreadOffset(r.UID, slumber.SpreadOf(s))
	if r.SkippedUntil == nil || !r.SkippedUntil.After(from) {
		return listTransitions(s, turn, from)
	}
	next := listTransitions(s, turn, r.SkippedUntil.Time)
	if len(next) > 0 && next[0].To == torporv1alpha1.SlumberAwake {
		next = slices.Insert(next, 0, scheduledTransition{s.Name, torporv1alpha1.SlumberAsleep, *r.SkippedUntil})
	}
	return next
}

// listTransitions returns the next times at which a Slumber stops or starts an object. turn is the offset of the
// object from the start of its wave: a Slumber with spec.spreadOver does not stop or start all objects of a wave at
// the same time.
func listTransitions(s *torporv1alpha1.Slumber, turn time.Duration, now time.Time) (all []scheduledTransition) {
	schedule, err := slumber.ParseSchedule(s.Spec)
	if err != nil {
		return nil // The Slumber's own status reports the error.
	}
	next := schedule.NextTransitions(now.Add(-turn))
	for _, one := range next[:min(len(next), maxTransitions)] {
		all = append(all, scheduledTransition{s.Name, one.To, metav1.NewTime(one.At.Add(turn))})
	}
	return all
}

// describe describes the transition, with the time in the given format.
func (t scheduledTransition) describe(format func(*metav1.Time) string) string {
	if t.To == torporv1alpha1.SlumberAsleep {
		return fmt.Sprintf("is stopped at %s by %s", format(&t.At), stoprecord.NameSlumber(t.Slumber))
	}
	return fmt.Sprintf("is started at %s by %s", format(&t.At), stoprecord.NameSlumber(t.Slumber))
}
