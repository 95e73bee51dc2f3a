// SPDX-License-Identifier: Apache-2.0

package stopcheck

import (
	"cmp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// PlanCluster says what a hibernation or a resume does to a cluster, and what it may run into.
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
	state, platform := cd.Status.PowerState, cmp.Or(cd.Spec.PlatformSettings().Name, "its platform")
	if r.IsStart {
		if state == string(hivev1.PowerStateRunning) {
			return []string{"It runs already, and nothing changes"}
		}
		return []string{
			"Its machines are started at " + platform + ", and its API server is looked at from the first one that runs",
			"Certificate requests of the nodes that were written down are approved, and it is Ready once those that were ready have reported",
			"SyncSets and MachinePools catch up once",
		}
	}
	if state == string(hivev1.PowerStateHibernating) {
		return []string{"It hibernates already", r.describeEnd("kubectl torpor resume -n " + cd.Namespace + " " + cd.Name)}
	}
	return []string{
		"Its nodes are written down, which takes half a minute at most",
		"Its machines are stopped at " + platform + ", all at once; disks and addresses stay, and Pods are not evicted before",
		"Nobody dials it meanwhile: SyncSets and MachinePools wait",
		r.describeEnd("kubectl torpor resume -n " + cd.Namespace + " " + cd.Name),
	}
}

// judgeClusterObject returns what the object itself says.
func judgeClusterObject(cd *hivev1.ClusterDeployment) []Finding {
	var findings []Finding
	for _, annotation := range []string{hivev1.ReconcilePauseAnnotation, hivev1.PowerStatePauseAnnotation} {
		if is, err := strconv.ParseBool(cd.Annotations[annotation]); err == nil && is {
			findings = append(findings, newFinding(torporv1alpha1.PausedFinding, 1, annotation))
			break
		}
	}
	if unsupported := unsupportedMessage(cd); unsupported != "" {
		findings = append(findings, newRemark(torporv1alpha1.HibernationUnsupportedFinding, unsupported))
	}
	return findings
}

// unsupportedMessage is what the manager says of that, which knows platforms and versions.
func unsupportedMessage(cd *hivev1.ClusterDeployment) string {
	if !cd.Spec.Installed {
		return "Expected spec.installed to be true, found that it is not; nothing is stopped or started before"
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

// judgeSurvey returns what was found at the cluster. What only matters to a stop is not in the way of a start.
func judgeSurvey(cd *hivev1.ClusterDeployment, r PlanRequest) []Finding {
	if cd.Status.HibernationCheck == nil {
		return []Finding{newRemark(torporv1alpha1.NotCheckedFinding,
			"Expected status.hibernationCheck, found none: no manager has looked at the cluster yet, which is done while it runs and answers")}
	}
	found := JudgeCheck(cd.Status.HibernationCheck, r.stop())
	if !r.IsStart {
		return found
	}
	matters := []string{torporv1alpha1.WebhookBlocksWakeUpFinding, torporv1alpha1.StopOutlastsCertificatesFinding, torporv1alpha1.CronJobsMissStartsFinding}
	return slices.DeleteFunc(found, func(f Finding) bool { return !slices.Contains(matters, f.Code) })
}
