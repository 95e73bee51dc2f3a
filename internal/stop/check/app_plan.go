// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// PlannedApp is a CFApp that is to be stopped or started.
type PlannedApp struct {
	*korifiv1alpha1.CFApp
	// Deployments are those of its space.
	Deployments []torporv1alpha1.CFDeployment
	// StartCommand is the command that starts it again.
	StartCommand string
}

// PlanApp describes the effects of a stop or a start of an app, and the problems that it may meet.
func PlanApp(a PlannedApp, r PlanRequest) Plan {
	findings := append(judgeShared(a, r), judgeSlumbers(a.Status.ScheduledStops, a.Annotations, r)...)
	if r.IsStart {
		findings = append(findings, a.judgeStart()...)
	} else {
		findings = append(findings, a.judgeStop()...)
	}
	return Plan{Effects: a.effects(r), Findings: sortFindings(findings)}
}

func (a PlannedApp) effects(r PlanRequest) []string {
	if r.IsStart {
		return []string{"Its newest revision is started, which runs the current droplet, and its routes lead there"}
	}
	count := ""
	if a.Status.Instances != nil {
		count = fmt.Sprintf(", of which %d are ready", a.Status.Instances.Ready)
	}
	return []string{
		"Its instances end" + count + ": each keeps serving for a moment, gets SIGTERM, and has ten seconds after that",
		"Its routes stay, but no instance answers", r.describeEnd(a.StartCommand),
	}
}

// judgeStart returns a finding if there is nothing to run.
func (a PlannedApp) judgeStart() []Finding {
	if a.Spec.CurrentDropletRef != nil {
		return nil
	}
	return []Finding{newFinding(torporv1alpha1.StartRefusedFinding, 1, "found no droplet to run; push the app")}
}

func (a PlannedApp) judgeStop() []Finding {
	var findings []Finding
	for _, d := range a.Deployments {
		if d.Spec.AppRef.Name == a.Name && d.Status.Value == torporv1alpha1.ActiveDeployment {
			findings = append(findings, newFinding(torporv1alpha1.DeploymentUnderwayFinding, 1, fmt.Sprintf("the %s deployment %s", d.Spec.Strategy, d.Name)))
			break // At most one deployment is in progress.
		}
	}
	if ready := meta.FindStatusCondition(a.Status.Conditions, korifiv1alpha1.ReadyCondition); ready != nil && ready.Reason == korifiv1alpha1.BlockedReason {
		findings = append(findings, newFinding(torporv1alpha1.NotHealthyFinding, 1, ready.Message))
	}
	return findings
}
