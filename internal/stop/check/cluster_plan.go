// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// PlanCluster describes the effects of a hibernation or a resume of a cluster, and the problems that it may
// meet.
func PlanCluster(cd *hivev1.ClusterDeployment, r PlanRequest) Plan {
	findings := Join(judgeShared(cd, r), judgeClusterObject(cd), judgeSlumbers(cd.Status.ScheduledStops, cd.Annotations, r), judgeSurvey(cd, r))
	return Plan{Effects: clusterEffects(cd, r), WakeBy: wakeByOf(cd), Findings: findings}
}

func wakeByOf(cd *hivev1.ClusterDeployment) *metav1.Time {
	if check := cd.Status.HibernationCheck; check != nil {
		return check.WakeBy
	}
	return nil
}

func clusterEffects(cd *hivev1.ClusterDeployment, r PlanRequest) []string {
	if cd.HasTrueAnnotation(hivev1.InfraDisabledAnnotation) {
		return []string{"Nothing changes at its platform: the annotation " + hivev1.InfraDisabledAnnotation + " leaves its machines to their owner"}
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
	if state == string(hivev1.PowerStateHibernating) {
		return []string{"It hibernates already", r.describeEnd("kubectl torpor resume -n " + cd.Namespace + " " + cd.Name)}
	}
	return []string{
		"Its nodes are recorded, which takes half a minute at most",
		"Its machines are stopped at " + platform + ", all at once; disks and addresses stay, and Pods are not evicted before",
		"No controller connects to it during the stop: SyncSets and MachinePools wait",
		r.describeEnd("kubectl torpor resume -n " + cd.Namespace + " " + cd.Name),
	}
}

// judgeClusterObject returns the findings that follow from the object alone.
func judgeClusterObject(cd *hivev1.ClusterDeployment) []Finding {
	var findings []Finding
	for _, annotation := range []string{hivev1.ReconcilePauseAnnotation, hivev1.PowerStatePauseAnnotation, hivev1.InfraDisabledAnnotation} {
		if cd.HasTrueAnnotation(annotation) {
			findings = append(findings, newFinding(torporv1alpha1.PausedFinding, 1, annotation))
			break
		}
	}
	if unsupported := unsupportedMessage(cd); unsupported != "" {
		findings = append(findings, newRemark(torporv1alpha1.HibernationUnsupportedFinding, unsupported))
	}
	return findings
}

// unsupportedMessage returns the manager's message about that; the manager knows platforms and versions.
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

// judgeSurvey returns the findings at the cluster. Findings that only matter to a stop are left out for a
// start.
func judgeSurvey(cd *hivev1.ClusterDeployment, r PlanRequest) []Finding {
	if cd.Status.HibernationCheck == nil {
		return []Finding{newRemark(torporv1alpha1.NotCheckedFinding,
			"Expected status.hibernationCheck, found none: no manager has surveyed the cluster yet; it is surveyed while it runs and answers")}
	}
	found := JudgeCheck(cd.Status.HibernationCheck, r.stop())
	if !r.IsStart {
		return found
	}
	matters := []string{torporv1alpha1.WebhookBlocksWakeUpFinding, torporv1alpha1.StopOutlastsCertificatesFinding, torporv1alpha1.CronJobsMissStartsFinding}
	return slices.DeleteFunc(found, func(f Finding) bool { return !slices.Contains(matters, f.Code) })
}
