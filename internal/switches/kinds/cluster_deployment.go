// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"fmt"
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
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// clusterDeployments is the kind ClusterDeployment. Its objects are stopped by spec.powerState.
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

// StopWave implements Late. Clusters are stopped last.
func (clusterDeployments) StopWave() int { return MaxWaves - 1 }

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
	if cd.Status.Hibernation == nil { // Annotations are slow to read, so they are only a fallback.
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
		s.Message = hibernating.Reason + ": " + hibernating.Message // The cluster never falls asleep, so the Slumber that waits for it must show the reason.
	}
	// An automatic start at the time in torpor.dev/until does not count as a resume, because it is not a request to
	// keep the cluster running.
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

// sleepsByItself reports whether the cluster hibernates because of spec.hibernateAfter. In that case, spec.powerState
// is unchanged.
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

// DescribeAbandoned implements Abandoned. It also checks the condition Hibernating, because spec.powerState is not
// Hibernating if the cluster hibernates because of spec.hibernateAfter, or is still resuming.
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

// ListRelated implements Planner. A plan needs no other objects, because status.hibernationCheck contains the
// findings.
func (clusterDeployments) ListRelated(Object) []Related { return nil }

// Plan implements Planner.
func (clusterDeployments) Plan(s PlanSubject, r preflight.PlanRequest) preflight.Plan {
	cd, _ := s.Object.(*hivev1.ClusterDeployment)
	cd = restoreStatus(cd)
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, r.Now)
	findings := preflight.Join(preflight.JudgeShared(cd, r), judgeClusterObject(cd), preflight.JudgeSlumber(scheduled, r), judgeSurvey(cd, r))
	return preflight.Plan{Effects: clusterEffects(cd, scheduled, r), WakeBy: wakeByOf(cd), Findings: findings}
}

func wakeByOf(cd *hivev1.ClusterDeployment) *metav1.Time {
	if check := cd.Status.HibernationCheck; check != nil {
		return check.WakeBy
	}
	return nil
}

func clusterEffects(cd *hivev1.ClusterDeployment, scheduled *torporv1alpha1.ScheduledStop, r preflight.PlanRequest) []string {
	if cd.HasTrueAnnotation(hivev1.InfraDisabledAnnotation) {
		return []string{"Its machines do not change, because the annotation " + hivev1.InfraDisabledAnnotation + " disables their management by Torpor"}
	}
	state, platform := cd.Status.PowerState, cmp.Or(cd.Spec.PlatformSettings().Name, "its platform")
	if r.IsStart {
		if state == string(hivev1.PowerStateRunning) {
			return []string{"The cluster already runs, so nothing changes"}
		}
		return []string{
			"Its machines on " + platform + " are started, and its API server is polled once the first machine runs",
			"Certificate requests of the recorded nodes are checked and approved, and the cluster is Ready once the nodes that were ready have reported",
			"SyncSets and MachinePools are applied again",
		}
	}
	startCommand := "kubectl torpor resume -n " + cd.Namespace + " " + cd.Name
	if takeover := r.DescribeTakeover(scheduled, startCommand); takeover != nil {
		return takeover
	}
	if state == string(hivev1.PowerStateHibernating) {
		return []string{"The cluster already hibernates", r.DescribeEnd(startCommand)}
	}
	effects := []string{"Its nodes are recorded, which takes half a minute at most"}
	effects = append(effects, stopEffects(hibernation.ReadStopOptions(cd.Annotations), platform)...)
	return append(effects, "No controller connects to the cluster during the stop: SyncSets and MachinePools wait", r.DescribeEnd(startCommand))
}

// stopEffects describes what a stop with these options does to the machines of a cluster.
func stopEffects(o hibernation.StopOptions, platform string) []string {
	stop, drain := "All its machines on "+platform+" are stopped together", ", and no Pod is evicted first"
	if o.WorkersFirst {
		stop = "Its workers on " + platform + " are stopped before its control plane"
	}
	if o.DrainBudget > 0 {
		drain = fmt.Sprintf(", after the Pods of its workers have been evicted for at most %s", o.DrainBudget)
	}
	kept := "Disks are kept, except temporary ones and those of spot machines that can only be terminated"
	switch o.MachineGroups {
	case hivev1.MachineGroupsSuspend:
		return []string{"Its machine groups replace no machine until the start", stop + drain, kept}
	case hivev1.MachineGroupsScaleToZero:
		return []string{"Its machine groups are scaled to zero, which terminates their machines", stop + drain, kept + ", and those of machine groups"}
	default:
		return []string{stop + drain, kept}
	}
}

// judgeClusterObject returns the findings that follow from the object alone.
func judgeClusterObject(cd *hivev1.ClusterDeployment) []preflight.Finding {
	var findings []preflight.Finding
	for _, annotation := range []string{hivev1.ReconcilePauseAnnotation, hivev1.PowerStatePauseAnnotation, hivev1.InfraDisabledAnnotation} {
		if cd.HasTrueAnnotation(annotation) {
			findings = append(findings, preflight.NewFinding(torporv1alpha1.PausedFinding, 1, annotation))
			break
		}
	}
	if unsupported := unsupportedMessage(cd); unsupported != "" {
		findings = append(findings, preflight.NewRemark(torporv1alpha1.HibernationUnsupportedFinding, unsupported))
	}
	return findings
}

// unsupportedMessage returns why the manager cannot hibernate the cluster, or "" if it can. For an installed cluster,
// the conditions hold the reason, because only the manager checks platforms and versions.
func unsupportedMessage(cd *hivev1.ClusterDeployment) string {
	if !cd.Spec.Installed {
		return "Expected spec.installed to be true, found false; until it is true, nothing is stopped or started"
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

// requiresPossible reports whether a stop requires HibernationPossible: by the annotation, or by a flag of the manager.
// The flag is known only if the manager has refused a requested stop.
func requiresPossible(cd *hivev1.ClusterDeployment) bool {
	c := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	return c != nil && c.Reason == hivev1.RefusedHibernationReason || cd.Annotations[hivev1.RequireAnnotation] == hivev1.RequireHibernationPossible
}

// judgeSurvey returns the findings of the last hibernation check in the status. For a start, it omits the findings
// that only concern a stop.
func judgeSurvey(cd *hivev1.ClusterDeployment, r preflight.PlanRequest) []preflight.Finding {
	if cd.Status.HibernationCheck == nil {
		return []preflight.Finding{preflight.NewRemark(torporv1alpha1.NotCheckedFinding,
			"Expected status.hibernationCheck, found none: no manager has surveyed the cluster yet; a survey requires that the cluster runs and its API server responds")}
	}
	stop := r.Stop()
	stop.RequiresPossible = !r.IsStart && requiresPossible(cd)
	found := preflight.JudgeCheck(cd.Status.HibernationCheck, stop)
	if stop.RequiresPossible && preflight.HasBlocking(found) {
		return append(found, preflight.NewRemark(torporv1alpha1.StopRefusedFinding,
			"The condition HibernationPossible is required, but the other blocking findings make it False; correct these findings, or remove the annotation "+hivev1.RequireAnnotation))
	}
	if !r.IsStart {
		return found
	}
	matters := []string{torporv1alpha1.WebhookBlocksWakeUpFinding, torporv1alpha1.StopOutlastsCertificatesFinding, torporv1alpha1.CronJobsMissStartsFinding}
	return slices.DeleteFunc(found, func(f preflight.Finding) bool { return !slices.Contains(matters, f.Code) })
}
