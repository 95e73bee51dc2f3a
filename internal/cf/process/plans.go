// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
)

func planDeleted(Observed) Plan {
	return Plan{Ready: decision.False(korifiv1alpha1.DeletedReason, "the process is being deleted")}
}

func planUnreadable(o Observed) Plan {
	return Plan{Ready: decision.False(korifiv1alpha1.RevisionUnreadableReason, o.App.Unreadable), After: staleInterval}
}

func planNewerRevision(o Observed) Plan {
	message := fmt.Sprintf("expected no LRP above the app's revision %d, found %s of revision %d; waiting until the app has at least that revision",
		o.App.Revision, o.newerLRP().Name, o.newerLRP().Revision)
	return Plan{Ready: decision.False(korifiv1alpha1.NewerRevisionReason, message), After: staleInterval}
}

func planDeletion(o Observed) Plan {
	p := Plan{Do: DeleteLRPs{o.lrpsToDelete()}, Ready: progressCondition(o)}
	if !o.App.Started {
		p.Ready = planStopping(o).Ready
	}
	return p
}

func planWaitForUpstream(o Observed) Plan {
	message := fmt.Sprintf("expected no Pods of Korifi's runner, found %d; delete the AppWorkloads of the process, or the StatefulSets if Korifi no longer runs: "+
		"kubectl delete statefulsets -l %s=%s", o.UpstreamPods, korifiv1alpha1.GUIDLabel, o.ProcessGUID)
	return Plan{Ready: decision.False(torporv1alpha1.AnotherWriterReason, message), After: staleInterval}
}

func planStopping(o Observed) Plan {
	return Plan{Ready: decision.False(korifiv1alpha1.StoppingReason, fmt.Sprintf("%d instances have not ended yet", o.obsoleteRemains().pods))}
}

func planStopped(Observed) Plan {
	return Plan{Ready: decision.True(korifiv1alpha1.StoppedReason, "the app is stopped and no instance is left")}
}

func planWaitForDrain(o Observed) Plan {
	message := fmt.Sprintf("revision %d starts when %s of older revisions are gone", o.App.Revision, o.obsoleteRemains())
	return Plan{Ready: decision.False(korifiv1alpha1.WaitingForDrainReason, message)}
}

func planWaitForName(o Observed) Plan {
	message := "the LRP " + revision.LRPName(o.ProcessGUID, o.TargetRevision()) + " is being deleted or belongs to another owner; waiting for its deletion"
	return Plan{Ready: decision.False(korifiv1alpha1.NameTakenReason, message), After: staleInterval}
}

func planNoDroplet(o Observed) Plan {
	return Plan{Ready: decision.False(korifiv1alpha1.DropletMissingReason, o.NoDroplet)}
}

func planCreate(o Observed) Plan {
	return Plan{Do: CreateLRP{Name: revision.LRPName(o.ProcessGUID, o.TargetRevision()), Revision: o.TargetRevision(), Instances: o.wantedInstances()}, Ready: progressCondition(o)}
}

func planScale(o Observed) Plan {
	return Plan{Do: ScaleLRP{Name: o.targetLRP().Name, Instances: o.wantedInstances()}, Ready: progressCondition(o)}
}

func planRetire(o Observed) Plan {
	lrp, keep, _ := o.nextToRetire()
	if keep == 0 && !o.isRestoredByCancel(lrp) {
		return Plan{Do: DeleteLRPs{[]string{lrp.Name}}, Ready: progressCondition(o)}
	}
	return Plan{Do: ScaleLRP{Name: lrp.Name, Instances: keep}, Ready: progressCondition(o)}
}

func planCanaryWaits(o Observed) Plan {
	message := fmt.Sprintf("%d of %d instances run revision %d; continue or cancel the deployment", o.podsOf(o.TargetRevision()).Ready, o.Desired, o.TargetRevision())
	return Plan{Ready: decision.False(korifiv1alpha1.DeploymentPausedReason, message)}
}

func planDeploying(o Observed) Plan {
	if why := o.obstacle(); why != "" {
		return Plan{Ready: decision.False(korifiv1alpha1.BlockedReason, readinessMessage(o)+": "+why)}
	}
	return Plan{Ready: decision.False(korifiv1alpha1.DeployingReason, readinessMessage(o))}
}

func planStarting(o Observed) Plan {
	message, why := readinessMessage(o), o.obstacle()
	if crashed := o.podsOf(o.TargetRevision()).Crashed; crashed > 0 && o.TargetRefusal() == "" {
		return Plan{Ready: decision.False(korifiv1alpha1.StartingReason, fmt.Sprintf("%s, %d have crashed", message, crashed))}
	}
	if why != "" {
		return Plan{Ready: decision.False(korifiv1alpha1.BlockedReason, message+": "+why)}
	}
	return Plan{Ready: decision.False(korifiv1alpha1.StartingReason, message)}
}

// obstacle returns the reason why instances of the target revision do not run, if a user must act. Otherwise it returns
// "".
func (o Observed) obstacle() string {
	pods := o.podsOf(o.TargetRevision())
	if pods.Ready >= o.Desired {
		return ""
	}
	if refusal := o.TargetRefusal(); refusal != "" {
		return refusal
	}
	if o.timeUntilLate() == 0 && !pods.EndsBy.IsZero() {
		return fmt.Sprintf("an old instance must terminate first, but its node %[1]q does not confirm the termination; if the node is permanently gone, delete the node, or run: "+
			"kubectl taint nodes %[1]s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", pods.NodeOfEnd)
	}
	return pods.Trouble
}

// TargetRefusal returns the reason why Pods of the target revision are not created or cannot pull their image, or "".
func (o Observed) TargetRefusal() string {
	if target := o.targetLRP(); target != nil {
		return target.Refusal
	}
	return ""
}

// timeUntilLate returns the time until the node of a terminating instance is reported as unresponsive. It returns 0 if
// that time has passed, no instance of the target revision is terminating, or enough of its instances are ready.
// Kubernetes does not create a second Pod with the same index before the first is confirmed to be deleted.
func (o Observed) timeUntilLate() time.Duration {
	pods := o.podsOf(o.TargetRevision())
	if pods.EndsBy.IsZero() || pods.Ready >= o.Desired {
		return 0
	}
	return max(0, pods.EndsBy.Add(endSlack).Sub(o.Now))
}

func planWaitForReplaced(o Observed) Plan {
	message := fmt.Sprintf("%s; %d instances of other revisions are terminating", readinessMessage(o), o.replacedRemains().pods)
	return Plan{Ready: decision.False(korifiv1alpha1.DeployingReason, message)}
}

func planRunning(o Observed) Plan {
	return Plan{Ready: decision.True(korifiv1alpha1.RunningReason, readinessMessage(o))}
}

// progressCondition returns the Ready condition while an action is in progress.
func progressCondition(o Observed) decision.Condition {
	switch {
	case len(o.olderLRPs()) > 0:
		return planDeploying(o).Ready
	case o.podsOf(o.TargetRevision()).Ready < o.Desired:
		return planStarting(o).Ready
	case o.waitsForReplaced():
		return planWaitForReplaced(o).Ready
	default:
		return planRunning(o).Ready
	}
}

func readinessMessage(o Observed) string {
	return fmt.Sprintf("%d of %d instances of revision %d are ready", o.podsOf(o.TargetRevision()).Ready, o.Desired, o.TargetRevision())
}

func drainingCondition(o Observed) decision.Condition {
	n := o.CountDraining()
	switch {
	case n == 0 && o.obsoleteRemains().isEmpty():
		return decision.False(korifiv1alpha1.DrainedReason, "no instance is terminating")
	case o.hasDrainTimedOut():
		message := fmt.Sprintf("%s are left after the drain timeout of %s; check their Pods", o.obsoleteRemains(), o.App.DrainTimeout)
		return decision.True(korifiv1alpha1.DrainTimeoutReason, message)
	default:
		return decision.True(korifiv1alpha1.DrainingReason, fmt.Sprintf("%d instances are terminating", n))
	}
}

// IsProgressReason reports whether a reason of the Ready condition describes progress that needs no user action.
func IsProgressReason(reason string) bool {
	switch reason {
	case korifiv1alpha1.StartingReason, korifiv1alpha1.StoppingReason, korifiv1alpha1.WaitingForDrainReason, korifiv1alpha1.DeployingReason:
		return true
	default:
		return false
	}
}
