// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// slumberExplanation is the output of why for a Slumber or ClusterSlumber.
type slumberExplanation struct {
	Name      string                             `json:"name"`
	Namespace string                             `json:"namespace,omitempty"`
	TimeZone  string                             `json:"timeZone"`
	Windows   []torporv1alpha1.SlumberWindow     `json:"windows,omitempty"`
	Status    torporv1alpha1.SlumberStatus       `json:"status"`
	Next      []torporv1alpha1.SlumberTransition `json:"next"`
	// since is status.since in the time zone of the schedule, or of the user if the schedule is invalid.
	since       string
	isSuspended bool
}

// The kinds of schedules, as arguments of the command why.
const (
	slumberKind        = "slumber"
	clusterSlumberKind = "clusterslumber"
)

// isSlumberKind reports whether a kind on the command line is Slumber or ClusterSlumber, and whether it is
// ClusterSlumber.
func isSlumberKind(kindName string) (isSlumber, isOfCluster bool) {
	name := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(kindName), "."+torporv1alpha1.GroupVersion().Group), "s")
	return name == slumberKind || name == clusterSlumberKind, name == clusterSlumberKind
}

// explainSlumber prints the output of why for a Slumber or ClusterSlumber.
func (a *commands) explainSlumber(cmd *cobra.Command, object namedObject, output string) error {
	kube, err := a.connect()
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	s, err := kube.readSlumber(ctx, object)
	if err != nil {
		return err
	}
	told := a.explain(s)
	if output != "" {
		return a.writeData(output, told)
	}
	return a.writeSlumber(told)
}

// explain describes a Slumber, or the view of a ClusterSlumber. An invalid schedule has no next changes.
func (a *commands) explain(s *torporv1alpha1.Slumber) slumberExplanation {
	told := slumberExplanation{
		Name: stoprecord.NameSlumber(s.Name), Namespace: s.Namespace, TimeZone: s.Spec.TimeZone, Windows: s.Spec.Windows,
		Status: s.Status, isSuspended: s.Spec.Suspend,
	}
	told.since = a.formatTime(s.Status.Since)
	if schedule, err := slumber.ParseSchedule(s.Spec); err == nil {
		if since := s.Status.Since; since != nil {
			told.since = schedule.Local(since.Time).Format(slumber.LocalTime)
		}
		told.Next = schedule.NextTransitions(a.clock.Now())
		for i := range told.Next {
			told.Next[i].At = metav1.NewTime(schedule.Local(told.Next[i].At.Time))
		}
	}
	return told
}

// readSlumber reads a Slumber, or a ClusterSlumber as a Slumber.
func (kube *kubeClient) readSlumber(ctx context.Context, object namedObject) (*torporv1alpha1.Slumber, error) {
	if _, isOfCluster := isSlumberKind(object.kindName); isOfCluster {
		var s torporv1alpha1.ClusterSlumber
		if err := kube.Get(ctx, client.ObjectKey{Name: object.name}, &s); err != nil {
			return nil, fmt.Errorf("read the ClusterSlumber: %w", err)
		}
		return slumber.ViewOf(&s), nil
	}
	var s torporv1alpha1.Slumber
	if err := kube.Get(ctx, client.ObjectKey{Namespace: kube.namespace, Name: object.name}, &s); err != nil {
		return nil, fmt.Errorf("read the Slumber: %w", err)
	}
	return &s, nil
}

func (a *commands) writeSlumber(told slumberExplanation) error {
	first := told.Name
	if told.Namespace != "" {
		first += " in namespace " + told.Namespace
	}
	state := formatCell(string(told.Status.State))
	if told.Status.Since != nil {
		state += " since " + told.since + " (" + a.formatAge(told.Status.Since) + " ago)"
	}
	lines := []string{first + ": " + state}
	for _, w := range told.Windows {
		lines = append(lines, fmt.Sprintf("  window\tsleep %s, wake %s (%s)", formatCell(w.Sleep), formatCell(w.Wake), formatCell(told.TimeZone)))
	}
	lines = append(lines, fmt.Sprintf("  members\t%d, of which %d are asleep", told.Status.Members, told.Status.Asleep))
	for _, w := range told.Status.Waves {
		lines = append(lines, "  wave "+formatCell(w.Name)+"\t"+describeWave(w))
	}
	if told.isSuspended {
		lines = append(lines, "  next\tnothing: the schedule is suspended")
	} else {
		for _, t := range told.Next {
			lines = append(lines, fmt.Sprintf("  next\t%s at %s", t.To, t.At.Format(slumber.LocalTime)))
		}
	}
	if err := a.writeAligned(append(lines, "")); err != nil || len(told.Status.Conditions) == 0 {
		return err
	}
	return a.writeConditions(told.Status.Conditions)
}

// describeWave returns the counts of a wave, and the objects that it waits for.
func describeWave(w torporv1alpha1.SlumberWaveStatus) string {
	parts := []string{fmt.Sprintf("%d of %d are asleep", w.Asleep, w.Members)}
	if w.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", w.Skipped))
	}
	if w.WaitsFor != "" {
		parts = append(parts, "waits for "+formatCell(w.WaitsFor))
	}
	if w.IsTimedOut {
		parts = append(parts, "the timeout of the wave has expired")
	}
	return strings.Join(parts, "; ")
}
