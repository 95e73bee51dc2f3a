// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/coexist/lease"
	stopcheck "github.com/torpor-dev/torpor/internal/stop/check"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

const (
	// maxWarnedNames is the most objects that a warning lists.
	maxWarnedNames = 3
	// slumberControllers is the group of the controllers of Slumbers.
	slumberControllers = "slumber"
)

// controllersFor returns the group of controllers that stops and starts a part of an object.
func controllersFor(kind schema.GroupKind, part string) string {
	switch {
	case kind == hivev1.ClusterDeploymentKind().GroupKind():
		return "hibernation"
	case kind == mocov1beta2.MySQLClusterKind().GroupKind() && (part == reconciliationPart || part == serversPart):
		return "provisioning"
	case kind == mocov1beta2.MySQLClusterKind().GroupKind():
		return "clustering"
	case kind == korifiv1alpha1.CFAppKind().GroupKind():
		return "restart"
	case stoppable.FindGroup(kind.Kind) == kind.Group:
		return "workloads"
	default:
		return "adapters"
	}
}

// Controllers returns the groups of controllers that stop and start the objects of the kind.
func (k Kind) Controllers() []string {
	var names []string
	for _, part := range k.parts {
		names = append(names, controllersFor(k.gvk.GroupKind(), part))
	}
	return names
}

// WithGap returns the switch, with the reason in NEXT if the active manager runs no controller for it.
func (s Switch) WithGap(acting lease.Acting) Switch { return Switch{s.withGap(acting)} }

// withGap reports in NEXT that no controller acts on the object, or on the Slumbers that would stop it. Without a
// controller, a stop stays in effect and a change in progress stays unfinished.
func (r stopRow) withGap(acting lease.Acting) stopRow {
	isScheduled := len(r.Schedule) > 0 && r.Next == r.Schedule[0].describe()
	if gap := acting.DescribeGap(controllersFor(r.groupKind, r.Part), r.Namespace); gap != nil {
		r.Next = "no controller acts on it: " + gap.Found
		if isAtRest := slices.Contains([]string{"running", "unknown"}, strings.ToLower(r.State)); r.Stopped || !isAtRest {
			r.Next = stuckPrefix + r.Next
		}
		r.NoController, r.remedy = gap.String(), gap.Remedy
	} else if gap := acting.DescribeGap(slumberControllers, r.Namespace); gap != nil && isScheduled {
		r.Next = "no controller acts on its Slumbers: " + gap.Found
		r.NoController, r.remedy = gap.String(), gap.Remedy
	}
	return r
}

// addGaps adds the gaps of all rows.
func addGaps(rows []stopRow, acting lease.Acting) {
	for i := range rows {
		rows[i] = rows[i].withGap(acting)
	}
}

// nextInFull returns NEXT, followed by the remedy for a missing controller.
func (r stopRow) nextInFull() string {
	if r.remedy == "" {
		return r.Next
	}
	return r.Next + "; " + r.remedy
}

// judgeController returns the findings of a plan about the controller of the object.
func (t target) judgeController(acting lease.Acting) []stopcheck.Finding {
	gap := acting.DescribeGap(controllersFor(t.kind.gvk.GroupKind(), t.part), t.namespace)
	switch {
	case gap != nil:
		return stopcheck.JudgeController(gap.String())
	case !acting.EndedAt.IsZero():
		return stopcheck.JudgeMissingManager(fmt.Sprintf("%s/%s", lease.Namespace, lease.Name))
	default:
		return nil
	}
}

// warnOfGaps warns of requests that have no effect until a manager acts on them. Objects with the same reason share a
// line.
func (a *commands) warnOfGaps(acting lease.Acting, targets []target, controllers func(target) string) {
	var reasons []string
	names := map[string][]string{}
	for _, t := range targets {
		reason := acting.DescribeInaction(controllers(t), t.namespace)
		if reason == "" {
			continue
		}
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], t.String())
	}
	for _, reason := range reasons {
		all := names[reason]
		text := strings.Join(all[:min(len(all), maxWarnedNames)], ", ")
		if more := len(all) - maxWarnedNames; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(a.Err, "warning: %s: the request was written, but no controller acts on it: %s\n", text, reason)
	}
}

// warnOfResults warns of gaps for the objects that a verb has changed.
func (v *verbCommand) warnOfResults(ctx context.Context, kube *kubeClient, results []*verbResult) {
	var asked []target
	for _, r := range results {
		if r.err == nil {
			asked = append(asked, r.target)
		}
	}
	if len(asked) > 0 {
		v.warnOfGaps(connection.ReadActing(ctx, kube, v.clock.Now()), asked, func(t target) string {
			return controllersFor(t.kind.gvk.GroupKind(), t.part)
		})
	}
}
