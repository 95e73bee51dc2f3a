// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
)

const (
	// maxWarnedNames is the maximum number of objects that a warning lists.
	maxWarnedNames = 3
	// slumberControllers is the name of the group of controllers of Slumbers.
	slumberControllers = "slumber"
)

// withGap replaces the column NEXT if no controller acts on the object, or on the Slumber that would stop it next.
func (r stopRow) withGap(acting lease.Acting) stopRow {
	stop := r.nextStop()
	isScheduled := stop != nil && r.Next == stop.describe(formatUTC)
	if r.Row = r.WithGap(acting); r.NoController != "" || !isScheduled {
		return r
	}
	namespace := r.Namespace
	if strings.HasPrefix(stop.Slumber, torporv1alpha1.ClusterSlumberPrefix) {
		namespace = metav1.NamespaceNone
	}
	if gap := acting.DescribeGap(slumberControllers, namespace); gap != nil {
		r.Next = "no controller acts on its Slumbers: " + gap.Found
		r.NoController, r.Remedy = gap.String(), gap.Remedy
	}
	return r
}

// addGaps applies withGap to all rows.
func addGaps(rows []stopRow, acting lease.Acting) {
	for i := range rows {
		rows[i] = rows[i].withGap(acting)
	}
}

// nextText returns the text of the column NEXT for users. The time of a scheduled stop is in their time zone.
func (a *commands) nextText(r stopRow) string {
	if stop := r.nextStop(); stop != nil && r.Next == stop.describe(formatUTC) {
		return stop.describe(a.formatTime)
	}
	return r.Next
}

// nextInFull returns the text of the column NEXT for users, followed by the remedy for a missing controller.
func (a *commands) nextInFull(r stopRow) string {
	if r.Remedy == "" {
		return a.nextText(r)
	}
	return a.nextText(r) + "; " + r.Remedy
}

// controllers returns the name of the group of controllers that stop and start the target's part.
func (t target) controllers() string { return t.kind.FindPart(t.part).Controllers }

// warnOfGaps warns of requests that have no effect until a manager acts on them. Objects with the same reason share
// a line. For a dry run, the warning reports that no request was written.
func (a *commands) warnOfGaps(acting lease.Acting, targets []target, controllers func(target) string, dryRun string) {
	problem := "the request was written, but no controller acts on it"
	if dryRun == dryRunServer {
		problem = "nothing was written (server dry run), and no controller would act on the request"
	}
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
		fmt.Fprintf(a.Err, "warning: %s: %s: %s\n", joinNames(names[reason], maxWarnedNames), problem, reason)
	}
}

// joinNames joins at most the given number of names with commas, and appends the number of the remaining names.
func joinNames(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// warnOfResults calls warnOfGaps for the objects on which the verb succeeded.
func (v *verbCommand) warnOfResults(ctx context.Context, kube *kubeClient, results []*verbResult) {
	var asked []target
	for _, r := range results {
		if r.err == nil {
			asked = append(asked, r.target)
		}
	}
	if len(asked) > 0 {
		v.warnOfGaps(leasereader.ReadActing(ctx, kube, v.clock.Now()), asked, target.controllers, v.dryRun)
	}
}
