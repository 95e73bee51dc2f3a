// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

const powerAction = "SetPowerState"

// report writes the plan into the status and says what to emit once that is saved.
func (c Controller) report(cd *hivev1.ClusterDeployment, seen *clusterObservation, p hibernation.Plan) reconcile.Outcome {
	out := reconcile.Outcome{After: p.After, Why: p.Rule}
	events := hibernation.TransitionEvents(cd.Status.Conditions, p)
	approved := approvedVerdicts(seen, p)
	if note := approvalNote(approved); note != "" {
		events = append(events, hibernation.Event{Reason: hibernation.CertificatesApproved, Note: note})
	}
	for _, e := range events {
		out.Events = append(out.Events, reconcile.Event{Warning: e.Warning, Reason: e.Reason, Action: powerAction, Note: e.Note})
	}
	out.Saved = func() { c.Metrics.countTransitions(events, approved) }
	c.setConditions(cd, p)
	cd.Status.PowerState = hibernation.DisplayedPowerState(p.Hibernating)
	cd.Status.Hibernation = p.Record
	return out
}

// approvedVerdicts are the verdicts that the plan carried out; none if the effect was refused.
func approvedVerdicts(seen *clusterObservation, p hibernation.Plan) []csr.Verdict {
	do, ok := p.Do.(hibernation.ApproveRequests)
	if !ok || p.Ready.Reason == hivev1.FailedToApproveReason {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(seen.verdicts), func(v csr.Verdict) bool { return !slices.Contains(do.Requests, v.Name) })
}

func approvalNote(approved []csr.Verdict) string {
	var list []string
	for _, v := range approved {
		list = append(list, fmt.Sprintf("%s of %s (%s)", v.Kind, v.NodeName, v.Name))
	}
	if len(list) == 0 {
		return ""
	}
	return "Approved certificate requests: " + strings.Join(list, ", ")
}
