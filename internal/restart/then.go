// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

func deleted(Observed) Plan {
	return Plan{Ready: notReady(korifiv1alpha1.DeletedReason, "the process is being deleted")}
}

func unreadable(o Observed) Plan {
	return Plan{Ready: notReady(korifiv1alpha1.RevisionUnreadableReason, o.App.Unreadable), After: staleInterval}
}

func newerRevision(o Observed) Plan {
	message := fmt.Sprintf("expected no LRP above the app's revision %d, found %s of revision %d; nothing is done until the app's revision is at least that",
		o.App.Revision, o.newer().Name, o.newer().Revision)
	return Plan{Ready: notReady(korifiv1alpha1.NewerRevisionReason, message), After: staleInterval}
}

func deleteDoomed(o Observed) Plan {
	p := Plan{Do: DeleteLRPs{o.toDelete()}, Ready: progress(o)}
	if !o.App.Started {
		p.Ready = stopping(o).Ready
	}
	return p
}

func stopping(o Observed) Plan {
	return Plan{Ready: notReady(korifiv1alpha1.StoppingReason, fmt.Sprintf("%d instances are left", o.leftover().pods))}
}

func stopped(Observed) Plan {
	return Plan{Ready: Condition{metav1.ConditionTrue, korifiv1alpha1.StoppedReason, "the app is stopped and no instance is left"}}
}

func held(o Observed) Plan {
	message := fmt.Sprintf("revision %d starts when %d instances of older revisions are gone", o.App.Revision, o.leftover().pods)
	return Plan{Ready: notReady(korifiv1alpha1.WaitingForDrainReason, message)}
}

func waitName(o Observed) Plan {
	message := "the LRP " + Name(o.ProcessGUID, o.Target()) + " is being deleted or is another's; waiting until it is gone"
	return Plan{Ready: notReady(korifiv1alpha1.NameTakenReason, message), After: staleInterval}
}

func noDroplet(o Observed) Plan {
	return Plan{Ready: notReady(korifiv1alpha1.DropletMissingReason, o.NoDroplet)}
}

func create(o Observed) Plan {
	return Plan{Do: CreateLRP{Name: Name(o.ProcessGUID, o.Target()), Revision: o.Target(), Instances: o.wanted()}, Ready: progress(o)}
}

func scale(o Observed) Plan {
	return Plan{Do: ScaleLRP{Name: o.current().Name, Instances: o.wanted()}, Ready: progress(o)}
}

func retire(o Observed) Plan {
	lrp, keep, _ := o.retire()
	if keep == 0 {
		return Plan{Do: DeleteLRPs{[]string{lrp.Name}}, Ready: progress(o)}
	}
	return Plan{Do: ScaleLRP{Name: lrp.Name, Instances: keep}, Ready: progress(o)}
}

func canaryWaits(o Observed) Plan {
	message := fmt.Sprintf("%d of %d instances run revision %d; continue or cancel the deployment", o.pods(o.Target()).Ready, o.Desired, o.Target())
	return Plan{Ready: notReady(korifiv1alpha1.DeploymentPausedReason, message)}
}

func deploying(o Observed) Plan {
	return Plan{Ready: notReady(korifiv1alpha1.DeployingReason, readiness(o))}
}

func starting(o Observed) Plan {
	message := readiness(o)
	if crashed := o.pods(o.Target()).Crashed; crashed > 0 {
		message += fmt.Sprintf(", %d have crashed", crashed)
	}
	return Plan{Ready: notReady(korifiv1alpha1.StartingReason, message)}
}

func yielding(o Observed) Plan {
	message := fmt.Sprintf("%s; %d of other revisions are on their way out", readiness(o), o.replaced().pods)
	return Plan{Ready: notReady(korifiv1alpha1.DeployingReason, message)}
}

func running(o Observed) Plan {
	return Plan{Ready: Condition{metav1.ConditionTrue, korifiv1alpha1.RunningReason, readiness(o)}}
}

// progress is the condition while something is being done.
func progress(o Observed) Condition {
	switch {
	case len(o.older()) > 0:
		return deploying(o).Ready
	case o.pods(o.Target()).Ready < o.Desired:
		return starting(o).Ready
	case o.yielding():
		return yielding(o).Ready
	default:
		return running(o).Ready
	}
}

func readiness(o Observed) string {
	return fmt.Sprintf("%d of %d instances of revision %d are ready", o.pods(o.Target()).Ready, o.Desired, o.Target())
}

func notReady(reason, message string) Condition {
	return Condition{metav1.ConditionFalse, reason, message}
}

func drainCondition(o Observed) Condition {
	n := o.Draining()
	switch {
	case n == 0 && o.leftover().none():
		return Condition{metav1.ConditionFalse, korifiv1alpha1.DrainedReason, "no instance of an older revision is left"}
	case o.timedOut():
		message := fmt.Sprintf("%d instances are left although they had %s to end; look at their Pods", n, o.App.DrainTimeout)
		return Condition{metav1.ConditionTrue, korifiv1alpha1.DrainTimeoutReason, message}
	default:
		return Condition{metav1.ConditionTrue, korifiv1alpha1.DrainingReason, fmt.Sprintf("%d instances are on their way out", n)}
	}
}
