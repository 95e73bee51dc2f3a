// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

func worksOnDatabases() []string {
	return []string{mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation}
}

func readSkip(m *modelMember) time.Time {
	until, _ := stoprecord.ReadSkip(m.stored.GetAnnotations())
	return until
}

// isStopped reports whether a user's stop of a member is in effect at a time.
func (m *modelMember) isStopped(now time.Time) bool {
	return m.stoppedBy != "" && (m.until.IsZero() || now.Before(m.until))
}

// isSetOff reports whether a user has set the field to the value that a stop sets.
func (m *modelMember) isSetOff() bool { return m.value == int64(0) || m.value == true }

// act performs an action of a user and describes it.
func (f *fleet) act(m *modelMember) string {
	switch f.random.IntN(20) {
	case 0, 1:
		return f.stopBy(m, "alice")
	case 2, 3:
		return f.startBy(m)
	case 4, 5:
		if m.change == nil {
			return "nothing"
		}
		m.interventions++
		m.change(m, f.now)
		return fmt.Sprintf("a user changes the spec to %v", m.describeSpec(m))
	case 6:
		m.interventions++
		m.annotate(torporv1alpha1.SkipUntilAnnotation, f.now.Add(time.Duration(f.random.IntN(10))*time.Hour).Format(time.RFC3339))
		return "a user skips"
	case 7:
		m.interventions++
		m.annotate(torporv1alpha1.SkipUntilAnnotation, "")
		return "no user skips"
	case 8:
		m.interventions++
		m.excusedAt, m.movedAt = f.now, f.now // A settled wave does not wait for the member again.
		wave := []string{"first", "second", "third", noWave}[f.random.IntN(4)]
		labels := map[string]string{"wave": wave}
		switch draw := f.random.IntN(6); {
		case f.reach != nil && draw == 0:
			labels["own"] = "yes"
		case f.reach != nil && draw == 1:
			labels[torporv1alpha1.ExcludeLabel] = "true"
		}
		m.write(func(obj kinds.Object) { obj.SetLabels(labels) })
		return fmt.Sprint("other labels: ", labels)
	case 9, 10:
		return f.edit()
	case 11:
		return f.removeOrRestore(m)
	default:
		return f.letTimePass()
	}
}

// letTimePass advances the time and updates the caches. A manager that was not running may start again.
func (f *fleet) letTimePass() string {
	f.syncAll()
	if f.isAway || f.random.IntN(4) == 0 {
		f.isAway = !f.isAway && f.random.IntN(3) == 0
		f.startedAt, f.hasWorkloads = f.now, f.random.IntN(2) == 0
	}
	what := "time passes"
	switch f.random.IntN(6) {
	case 0:
		f.now = f.now.Add(time.Duration(f.random.IntN(30)) * time.Hour) // An outage, perhaps longer than a window.
	case 1, 2:
		f.now = f.now.Add(time.Duration(f.random.IntN(70)) * time.Minute)
	case 3:
		f.hasWorkloads = true
	default:
		f.now = f.now.Add(time.Duration(f.random.IntN(10)) * time.Second)
	}
	if f.isAway {
		return what + ", no manager runs"
	}
	return fmt.Sprint(what, ", workloads: ", f.hasWorkloads)
}

func (f *fleet) stopBy(m *modelMember, person string) string {
	if m.isStopped(f.now) || m.isChangePending && !f.areRequestersNoted {
		return "nothing" // Without a recorded requester, this stop cannot be distinguished from the user's previous stop.
	}
	m.interventions++
	if m.stoppedBy != "" {
		m.setSwitch(m, false, f.now)
	}
	m.stoppedBy, m.stoppedAt, m.until = person, f.now, time.Time{}
	m.setSwitch(m, true, f.now)
	f.noteRequester(m, person)
	if k := m.GVK().Kind; k == "MySQLCluster" || k == "CFApp" {
		return person + " stops" // A stop by the field of a MySQLCluster has no end. The end of a CFApp's stop is a start, which has a separate model.
	}
	if f.random.IntN(3) == 0 {
		m.until = f.now.Add(time.Duration(1+f.random.IntN(20)) * time.Hour).Truncate(time.Second)
		m.annotate(torporv1alpha1.UntilAnnotation, m.until.Format(time.RFC3339))
		return fmt.Sprint(person, " stops until ", m.until)
	}
	m.annotate(torporv1alpha1.UntilAnnotation, "")
	return person + " stops"
}

func (f *fleet) startBy(m *modelMember) string {
	if m.stoppedBy == "" {
		return "nothing"
	}
	m.interventions++
	m.resumes++
	m.stoppedBy, m.stoppedAt = "", f.now
	m.setSwitch(m, false, f.now)
	m.annotate(torporv1alpha1.UntilAnnotation, "")
	f.noteRequester(m, "bob")
	return "bob starts"
}

func (f *fleet) noteRequester(m *modelMember, person string) {
	if f.areRequestersNoted {
		m.serial++
		m.annotate(torporv1alpha1.RequestedByAnnotation, person)
		m.annotate(torporv1alpha1.RequestVersionAnnotation, fmt.Sprint(m.serial))
	}
}

// edit has a user change the Slumber. Its controller may not see the change immediately.
func (f *fleet) edit() string {
	f.edits++
	s := f.slumber.DeepCopy()
	s.Generation++
	isSeen := !f.isGoing && f.random.IntN(4) > 0
	var what string
	switch f.random.IntN(7) {
	case 5:
		s.Spec.SpreadOver = []*metav1.Duration{nil, {Duration: modelSpread}}[f.random.IntN(2)]
		what = fmt.Sprint("spread over: ", s.Spec.SpreadOver)
	case 0, 1:
		s.Spec.Suspend = !s.Spec.Suspend
		what = fmt.Sprint("suspend: ", s.Spec.Suspend)
	case 2:
		s.Spec.Windows[0].Wake = fmt.Sprintf("%d %d * * *", f.random.IntN(60), f.random.IntN(12))
		what = "wake at " + s.Spec.Windows[0].Wake
	case 3:
		s.Spec.Holidays = nil
		if f.random.IntN(2) == 0 {
			s.Spec.Holidays = []torporv1alpha1.Holiday{{Name: "a holiday", First: f.now.Format(time.DateOnly)}}
		}
		what = fmt.Sprint("holidays: ", s.Spec.Holidays)
	case 4:
		s.Spec.TimeZone = []string{"UTC", "Europe/Berlin", "America/New_York"}[f.random.IntN(3)]
		what = s.Spec.TimeZone
	default:
		s.Spec.Reason = fmt.Sprint("reason ", f.edits)
		what = s.Spec.Reason
	}
	if f.slumber = s; isSeen {
		f.seen = s
	}
	return fmt.Sprint("an edit (", what, "), seen: ", isSeen)
}

// removeOrRestore deletes the Slumber, which is created again immediately, deletes and creates the StopAdapter, or
// adds or removes an autoscaler that prevents a stop.
func (f *fleet) removeOrRestore(m *modelMember) string {
	switch {
	case f.random.IntN(3) == 0 && !f.isAway:
		f.removeSlumber()
		return fmt.Sprint("the Slumber is deleted, and waits for kinds: ", f.isGoing)
	case m.GVK().Kind == "Kustomization":
		m.release(f.now)
		return "the StopAdapter is deleted and created again"
	case m.Switch() != nil && m.Switch().IsScaled:
		m.interventions++
		if m.refusal = ""; f.random.IntN(2) == 0 {
			m.refusal = "expected no autoscaler, found one"
		}
		return "an autoscaler: " + m.refusal
	default:
		return "nothing"
	}
}

// release restores an object whose StopAdapter is deleted.
func (m *modelMember) release(now time.Time) {
	m.interventions++
	u, _ := m.stored.(*unstructured.Unstructured)
	plan := fieldswitch.Release(fieldswitch.ObservedSwitch{Now: now, Object: u}, "the StopAdapter is deleted")
	m.write(func(obj kinds.Object) {
		u, _ := obj.(*unstructured.Unstructured)
		u.Object = plan.Next.DeepCopy().Object
	})
	isKept := len(fieldswitch.ReadSwitch(m.stored).Saved) > 0
	if isKept != (m.isStopped(now) && !m.isChangePending && len(fieldswitch.ReadSwitch(u).Saved) > 0) {
		m.t.Fatalf("%s: expected to be kept if a user has stopped it, found %v", m, m.stored.GetAnnotations())
	}
	m.isChangePending = false
}

// removeSlumber runs the finalizer, which starts every member and waits for kinds that are about to be announced.
// Then it creates another Slumber.
func (f *fleet) removeSlumber() {
	for _, m := range f.members {
		m.sync()
		if member := slumber.ReadMember(f.slumber.Name, m.Kind, m.cached, f.now); f.isManaged(m) && len(member.FindStops(f.slumber.Name).Stops) > 0 {
			m.store(f.slumber.Name, torporv1alpha1.ScheduledStop{})
		}
	}
	if f.isGoing = !f.hasWorkloads && f.now.Before(f.startedAt.Add(slumber.KindsGrace)); f.isGoing {
		return
	}
	anew := f.slumber.DeepCopy()
	anew.Status = torporv1alpha1.SlumberStatus{}
	f.slumber, f.seen = anew, anew
	for _, m := range f.members {
		m.interventions++
	}
}

// expectPeopleFirst expects every member to be stopped that a user has stopped, once its controller has seen this.
func (f *fleet) expectPeopleFirst() {
	f.t.Helper()
	for _, m := range f.members {
		isKnown := m.Switch() == nil || len(fieldswitch.ReadSwitch(m.stored).Saved) > 0 && !m.isChangePending && fieldswitch.IsAsked(m.stored)
		if m.isStopped(f.now) && isKnown && !m.isOff(m, f.now) {
			f.fail("expected what %s has stopped to be stopped, found %s started: %v", m.stoppedBy, m, m.stored.GetAnnotations())
		}
		if m.Switch() == nil && m.describeSpec(m) != (m.stoppedBy != "") {
			f.fail("expected a spec of %s that only users have written, found %v", m, m.describeSpec(m))
		}
	}
}

// expectAll expects every member to be stopped or started as users and the schedule request, and the field of every
// started member to have the user's value.
func (f *fleet) expectAll(shouldSleep bool) {
	f.t.Helper()
	for _, m := range f.members {
		want := m.isStopped(f.now) || m.Switch() != nil && m.isSetOff() || shouldSleep && f.mayStop(m)
		if isOff := m.isOff(m, f.now); isOff != want {
			f.fail("expected %s to be stopped: %t, found %t: %+v %v", m, want, isOff, m.read(f.now), m.stored.GetAnnotations())
		}
		if m.Switch() != nil && !want && m.describeSpec(m) != m.value {
			f.fail("expected %s to be as people left it: %v, found %v", m, m.value, m.describeSpec(m))
		}
	}
}

// mayStop reports whether the Slumber should stop a member: the Slumber selects it, and no user skips it or has
// resumed it since its wave began to sleep.
func (f *fleet) mayStop(m *modelMember) bool {
	labels := m.stored.GetLabels()
	isTaken := f.reach != nil && (labels["own"] != "" || labels[torporv1alpha1.ExcludeLabel] != "")
	wave, _ := slumber.FindWave(f.slumber, m.GVK().GroupKind(), labels)
	if wave < 0 || isTaken || f.now.Before(readSkip(m)) {
		return false
	}
	is, since := m.read(f.now), f.slumber.Status.Waves[wave].Since
	isResumed := since != nil && is.ResumedAt.After(since.Time)
	if isResumed && m.resumes == 0 {
		f.fail("expected no user to have resumed %s, found %s", m, is.ResumedBy)
	}
	return !isResumed
}
