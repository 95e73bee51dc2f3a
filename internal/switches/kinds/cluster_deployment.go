// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stopcheck "github.com/torpor-dev/torpor/internal/stop/check"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// clusterDeployments are stopped by spec.powerState.
type clusterDeployments struct{}

// GVK implements Definition.
func (clusterDeployments) GVK() schema.GroupVersionKind { return hivev1.ClusterDeploymentKind() }

// Names implements Definition.
func (clusterDeployments) Names() []string {
	return []string{"clusterdeployment", "clusterdeployments", "cd"}
}

// AddToScheme implements Definition.
func (clusterDeployments) AddToScheme(known *runtime.Scheme) error { return hivev1.AddToScheme(known) }

// New implements Definition.
func (clusterDeployments) New() Object { return &hivev1.ClusterDeployment{} }

// NewList implements Definition.
func (clusterDeployments) NewList() List { return &hivev1.ClusterDeploymentList{} }

// Switch implements Definition.
func (clusterDeployments) Switch() *FieldSwitch { return nil }

// Notes implements Definition.
func (clusterDeployments) Notes() *Notes {
	return &Notes{Policy: "hibernation", Path: "/note-clusters", Switches: []NotedSwitch{{
		Annotations: stoprecord.AnnotationSwitch{
			RequestedBy: torporv1alpha1.RequestedByAnnotation, RequestVersion: torporv1alpha1.RequestVersionAnnotation,
			Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation,
		},
		SpecField: "powerState", StoppedValue: string(hivev1.PowerStateHibernating),
	}}}
}

// ReadState implements Definition.
func (clusterDeployments) ReadState(obj Object, now time.Time) State {
	cd, isCluster := obj.(*hivev1.ClusterDeployment)
	if !isCluster {
		return State{}
	}
	if cd.Status.Hibernation == nil { // The annotation is written whichever schema is served, and costs more to read than the rest.
		cd = restoreStatus(cd)
	}
	s := State{
		IsStoppable:              cd.Spec.Installed && cd.DeletionTimestamp.IsZero(),
		IsStoppedWithoutSlumbers: hibernation.IsStoppedWithoutSlumbers(cd, now),
		ScheduledStops:           stoprecord.ListScheduled(cd.Status.ScheduledStops, cd.Annotations),
	}
	hibernating := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition)
	isOn := cd.Status.Hibernation == nil || cd.Status.Hibernation.ResumedAt != nil
	s.IsAsleep = hibernating != nil && hibernating.Status == metav1.ConditionTrue && hibernating.Reason == hivev1.HibernatingHibernationReason
	s.IsAwake = ready != nil && ready.Status == metav1.ConditionTrue && isOn
	if hibernating != nil && !s.IsAsleep && !s.IsAwake {
		s.Message = hibernating.Reason
		if hibernating.Status == metav1.ConditionFalse && ready != nil {
			s.Message = ready.Reason
		}
	}
	if hibernating != nil && hibernating.Status == metav1.ConditionFalse && isLeftRunning(hibernating.Reason) {
		s.Message = hibernating.Reason + ": " + hibernating.Message // A Slumber would wait for this cluster without end, so it shows the reason.
	}
	// The end of a stop by torpor.dev/until does not count as a resume, because it does not request that the cluster
	// run after that.
	if stops := cd.Status.Stops; len(stops) > 0 && stops[0].EndedAt != nil && !stops[0].Requested && stops[0].StartedBy != torporv1alpha1.UntilAnnotation {
		s.ResumedAt, s.ResumedBy = *stops[0].EndedAt, stops[0].StartedBy
	}
	return s
}

// isLeftRunning reports whether this reason of the Hibernating condition means that the cluster keeps running
// although a stop is requested.
func isLeftRunning(reason string) bool {
	return reason == hivev1.UnsupportedHibernationReason || reason == hivev1.RefusedHibernationReason
}

// Parts implements Definition.
func (clusterDeployments) Parts() []Part {
	return []Part{{
		Name: "machines", Controllers: "hibernation", Annotations: sharedAnnotations(),
		Stop: of(func(cd *hivev1.ClusterDeployment, _ time.Time) {
			cd.Spec.PowerState = hivev1.PowerStateHibernating
			removeSharedAnnotations(cd)
		}),
		Start: of(resumeClusterDeployment),
	}}
}

// resumeClusterDeployment resumes a cluster that hibernates by spec.powerState or by spec.hibernateAfter.
func resumeClusterDeployment(cd *hivev1.ClusterDeployment, now time.Time) {
	if record := cd.Status.Hibernation; sleepsByItself(cd) {
		if asleep := record.SleepStartedAt.Time; !now.After(asleep) { // The local clock is behind the manager's.
			now = asleep
		}
		SetAnnotation(cd, hivev1.ResumeRequestedAtAnnotation, now.Add(time.Second).UTC().Format(time.RFC3339))
		return
	}
	cd.Spec.PowerState = hivev1.PowerStateRunning
	removeSharedAnnotations(cd)
}

// sleepsByItself reports whether the cluster hibernates because of spec.hibernateAfter, which spec.powerState does not
// show.
func sleepsByItself(cd *hivev1.ClusterDeployment) bool {
	record := cd.Status.Hibernation
	return record != nil && record.PowerStateBefore != nil && *record.PowerStateBefore == cd.Spec.PowerState && record.ResumeStartedAt == nil && record.ResumedAt == nil
}

// DescribeRows implements Definition.
func (k clusterDeployments) DescribeRows(obj Object) []Row {
	statusannotation.RestoreStatus(obj)
	cd, _ := obj.(*hivev1.ClusterDeployment)
	stops := stoprecord.Records(cd.Status.Stops)
	isStopped := cd.Spec.PowerState == hivev1.PowerStateHibernating && !stops.HasExpired()
	r := newRow(k, cd, k.Parts()[0], isStopped, stops)
	r = r.withScheduled(stoprecord.ListScheduled(cd.Status.ScheduledStops, cd.Annotations))
	r.Conditions = cd.Status.Conditions
	r.State = cmp.Or(cd.Status.PowerState, "unknown")
	if ready := meta.FindStatusCondition(r.Conditions, hivev1.ClusterReadyCondition); ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.StartCommand())
	if record := cd.Status.Hibernation; !r.Stopped && sleepsByItself(cd) {
		r.Stopped, r.Since, r.By = true, &record.SleepStartedAt, record.RequestedBy
		r.Next = "resumes when the annotation " + hivev1.ResumeRequestedAtAnnotation + " has a later time, in RFC 3339"
	}
	if stalled := meta.FindStatusCondition(r.Conditions, hivev1.ClusterStalledCondition); stalled != nil && stalled.Status == metav1.ConditionTrue {
		r.Next = StuckPrefix + stalled.Message
	}
	return []Row{r}
}

// StoppedWord implements StateNamer.
func (clusterDeployments) StoppedWord() string { return "hibernating" }

// ReadSavings implements Saver.
func (clusterDeployments) ReadSavings(obj Object) Savings {
	cd, isCluster := obj.(*hivev1.ClusterDeployment)
	if !isCluster {
		return Savings{}
	}
	s := Savings{HasMachines: true, Recorded: cd.Status.Savings}
	// A repair starts machines that were switched off outside Torpor, which is not a hibernation.
	if record := cd.Status.Hibernation; record != nil && !record.Repair {
		s.Machines, s.From, s.To = len(record.Nodes), record.AsleepAt.DeepCopy(), record.ResumeStartedAt.DeepCopy()
	}
	return s
}

// DescribeAbandoned implements Abandoned. Clusters that hibernate by spec.hibernateAfter, or are still resuming, have
// another spec.
func (clusterDeployments) DescribeAbandoned(obj Object) (state, consequence string) {
	cd, isCluster := obj.(*hivev1.ClusterDeployment)
	if !isCluster {
		return "", ""
	}
	isAsked := cd.Spec.PowerState == hivev1.PowerStateHibernating && !stoprecord.Records(cd.Status.Stops).HasExpired()
	if isAsked || meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterHibernatingCondition) {
		return "left asleep", "its machines stay off until they are started"
	}
	return "", ""
}

// ListRelated implements Planner. The hibernation check in the status has everything that a plan needs.
func (clusterDeployments) ListRelated(Object) []Related { return nil }

// Plan implements Planner.
func (clusterDeployments) Plan(s PlanSubject, r stopcheck.PlanRequest) stopcheck.Plan {
	cd, _ := s.Object.(*hivev1.ClusterDeployment)
	cd = restoreStatus(cd)
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, r.Now)
	findings := stopcheck.Join(stopcheck.JudgeShared(cd, r), judgeClusterObject(cd), stopcheck.JudgeSlumber(scheduled, r), judgeSurvey(cd, r))
	return stopcheck.Plan{Effects: clusterEffects(cd, scheduled, r), WakeBy: wakeByOf(cd), Findings: findings}
}

func wakeByOf(cd *hivev1.ClusterDeployment) *metav1.Time {
	if check := cd.Status.HibernationCheck; check != nil {
		return check.WakeBy
	}
	return nil
}

func clusterEffects(cd *hivev1.ClusterDeployment, scheduled *torporv1alpha1.ScheduledStop, r stopcheck.PlanRequest) []string {
	if cd.HasTrueAnnotation(hivev1.InfraDisabledAnnotation) {
		return []string{"Its machines do not change, because the annotation " + hivev1.InfraDisabledAnnotation + " disables their management by Torpor"}
	}
	state, platform := cd.Status.PowerState, cmp.Or(cd.Spec.PlatformSettings().Name, "its platform")
	if r.IsStart {
		if state == string(hivev1.PowerStateRunning) {
			return []string{"It runs already, and nothing changes"}
		}
		return []string{
			"Its machines are started at " + platform + ", and its API server is polled once the first one runs",
			"Certificate requests of the recorded nodes are approved, and it is Ready once those that were ready have reported",
			"SyncSets and MachinePools catch up once",
		}
	}
	startCommand := "kubectl torpor resume -n " + cd.Namespace + " " + cd.Name
	if takeover := r.DescribeTakeover(scheduled, startCommand); takeover != nil {
		return takeover
	}
	if state == string(hivev1.PowerStateHibernating) {
		return []string{"It hibernates already", r.DescribeEnd(startCommand)}
	}
	return []string{
		"Its nodes are recorded, which takes half a minute at most",
		"Its machines are stopped at " + platform + ", all at once; disks and addresses stay, and Pods are not evicted before",
		"No controller connects to it during the stop: SyncSets and MachinePools wait",
		r.DescribeEnd(startCommand),
	}
}

// judgeClusterObject returns the findings that follow from the object alone.
func judgeClusterObject(cd *hivev1.ClusterDeployment) []stopcheck.Finding {
	var findings []stopcheck.Finding
	for _, annotation := range []string{hivev1.ReconcilePauseAnnotation, hivev1.PowerStatePauseAnnotation, hivev1.InfraDisabledAnnotation} {
		if cd.HasTrueAnnotation(annotation) {
			findings = append(findings, stopcheck.NewFinding(torporv1alpha1.PausedFinding, 1, annotation))
			break
		}
	}
	if unsupported := unsupportedMessage(cd); unsupported != "" {
		findings = append(findings, stopcheck.NewRemark(torporv1alpha1.HibernationUnsupportedFinding, unsupported))
	}
	return findings
}

// unsupportedMessage returns why the manager cannot hibernate the cluster; empty if it can. For an installed
// cluster, the conditions hold the reason, because only the manager checks platforms and versions.
func unsupportedMessage(cd *hivev1.ClusterDeployment) string {
	if !cd.Spec.Installed {
		return "Expected spec.installed to be true, found false; nothing is stopped or started before that"
	}
	for _, says := range []struct {
		condition string
		reasons   []string
	}{
		{hivev1.ClusterHibernatingCondition, []string{hivev1.UnsupportedHibernationReason, hivev1.InvalidSpecReason}},
		{hivev1.ClusterHibernationPossibleCondition, []string{torporv1alpha1.HibernationUnsupportedFinding}},
	} {
		if c := meta.FindStatusCondition(cd.Status.Conditions, says.condition); c != nil && slices.Contains(says.reasons, c.Reason) {
			return c.Message
		}
	}
	return ""
}

// judgeRequired returns a finding that a stop will be refused, if HibernationPossible is required and there are
// blocking findings. The annotation requires it, or a flag of the manager, which the manager reports once a stop is
// requested.
func judgeRequired(cd *hivev1.ClusterDeployment, found []stopcheck.Finding) []stopcheck.Finding {
	c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	isRefused := c != nil && c.Reason == hivev1.RefusedHibernationReason
	if !stopcheck.HasBlocking(found) || !isRefused && cd.Annotations[hivev1.RequireAnnotation] != hivev1.RequireHibernationPossible {
		return nil
	}
	return []stopcheck.Finding{stopcheck.NewRemark(torporv1alpha1.StopRefusedFinding,
		"HibernationPossible is required, but the other blocking findings make it False; correct these, or remove the annotation "+hivev1.RequireAnnotation)}
}

// judgeSurvey returns the findings of the last hibernation check in the status. For a start, it omits the findings
// that only concern a stop.
func judgeSurvey(cd *hivev1.ClusterDeployment, r stopcheck.PlanRequest) []stopcheck.Finding {
	if cd.Status.HibernationCheck == nil {
		return []stopcheck.Finding{stopcheck.NewRemark(torporv1alpha1.NotCheckedFinding,
			"Expected status.hibernationCheck, found none: no manager has surveyed the cluster yet; it is surveyed while it runs and answers")}
	}
	found := stopcheck.JudgeCheck(cd.Status.HibernationCheck, r.Stop())
	if !r.IsStart {
		return append(found, judgeRequired(cd, found)...)
	}
	matters := []string{torporv1alpha1.WebhookBlocksWakeUpFinding, torporv1alpha1.StopOutlastsCertificatesFinding, torporv1alpha1.CronJobsMissStartsFinding}
	return slices.DeleteFunc(found, func(f stopcheck.Finding) bool { return !slices.Contains(matters, f.Code) })
}
