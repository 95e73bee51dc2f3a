// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

type clusterRow struct {
	Namespace      string  `json:"namespace"`
	Name           string  `json:"name"`
	Clustering     partRow `json:"clustering"`
	Reconciliation partRow `json:"reconciliation"`
	Primary        int     `json:"primary"`
	Healthy        string  `json:"healthy"`
	// ObservedAt is the time at which the instances were checked while clustering is stopped.
	ObservedAt *metav1.Time               `json:"observedAt,omitempty"`
	Findings   []mocov1beta2.StartFinding `json:"findings,omitempty"`
	// NotRestored lists the parts of the backup that the restore of the cluster omitted.
	NotRestored string `json:"notRestored,omitempty"`
	Next        string `json:"next,omitempty"`
}

type partRow struct {
	// State is running, stopping, stopped, starting or unknown.
	State  string       `json:"state"`
	Since  *metav1.Time `json:"since,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Until  *metav1.Time `json:"until,omitempty"`
	// Overdue is true if the stop continues although it should have ended.
	Overdue bool `json:"overdue,omitempty"`
}

func (a *commands) newStatusCommand() *cobra.Command {
	var output string
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "status [NAME | -A]",
		Short: "Show stopped parts with the time, the reason and the next step; for one cluster, also show its instances",
		Example: `  # All clusters of the namespace, and of all namespaces
  kubectl moco status
  kubectl moco status -A

  # One cluster, with its instances
  kubectl moco status test

  # For a program
  kubectl moco status test -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateOutput(output); err != nil {
				return err
			}
			if everywhere && len(args) > 0 {
				return exit.WrongUsage("--all-namespaces: expected no NAME with it, found %q", args[0])
			}
			found, err := a.fetchClusters(cmd, args, everywhere)
			if err != nil {
				return err
			}
			rows := []clusterRow{}
			for i := range found {
				rows = append(rows, newClusterRow(&found[i]).withOverdue(a.clock.Now()))
			}
			if output == "json" {
				return writeJSON(a.Out, rows)
			}
			if err := a.writeTable(rows, everywhere); err != nil || len(args) == 0 {
				return err
			}
			if err := a.writeInstances(found[0].Status.Instances, rows[0].ObservedAt); err != nil || rows[0].NotRestored == "" {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "\nThe restore left out parts of the backup: %s.\n", rows[0].NotRestored)
			return err
		},
	}
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "the clusters of all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or empty for text")
	completion.OfferValues(cmd, "output", "json")
	return cmd
}

func (a *commands) fetchClusters(cmd *cobra.Command, args []string, everywhere bool) ([]mocov1beta2.MySQLCluster, error) {
	kube, err := a.connect()
	if err != nil {
		return nil, err
	}
	if everywhere {
		kube.namespace = metav1.NamespaceAll
	}
	if len(args) == 0 {
		found, err := kube.listClusters(cmd.Context())
		switch {
		case err != nil || len(found) > 0:
		case everywhere:
			fmt.Fprintln(a.Err, "No MySQLClusters found.")
		default:
			fmt.Fprintf(a.Err, "No MySQLClusters found in namespace %q.\n", kube.namespace)
		}
		return found, err
	}
	c, err := kube.getCluster(cmd.Context(), args[0])
	if err != nil {
		return nil, err
	}
	return []mocov1beta2.MySQLCluster{*c}, nil
}

func newClusterRow(c *mocov1beta2.MySQLCluster) clusterRow {
	var noted mocov1beta2.Pause
	if c.Status.Pause != nil {
		noted = *c.Status.Pause
	}
	clustering, reconciliation := mysqlswitches.DescribeParts(c)
	r := clusterRow{
		Namespace: c.Namespace, Name: c.Name, Primary: c.Status.CurrentPrimaryIndex, Healthy: string(metav1.ConditionUnknown),
		Clustering: newPartRow(clustering), Reconciliation: newPartRow(reconciliation),
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == mocov1beta2.HealthyCondition {
			r.Healthy = string(condition.Status)
		}
		if condition.Type == mocov1beta2.RestoreCompleteCondition && condition.Status == metav1.ConditionFalse {
			r.NotRestored = condition.Message
		}
	}
	r.ObservedAt, r.Findings = noted.ObservedAt, noted.StartFindings
	r.Next = cmp.Or(clustering.Next, reconciliation.Next)
	return r
}

// withOverdue marks the stops that should have ended, and replaces the announced start in their next step.
func (r clusterRow) withOverdue(now time.Time) clusterRow {
	for _, p := range []*partRow{&r.Clustering, &r.Reconciliation} {
		p.Overdue = p.State == "stopped" && stoprecord.IsOverdue(p.Until, now)
		if p.Overdue && r.Next == stoprecord.StartsByItself {
			r.Next = stoprecord.ShouldHaveStartedItself
		}
	}
	return r
}

func newPartRow(s mysqlswitches.PartState) partRow {
	r := partRow{State: s.State}
	if s.Stop != nil {
		r.Since, r.By, r.Reason, r.Until = &s.Stop.Since, s.Stop.By, s.Stop.Reason, s.Stop.Until
	}
	return r
}

func (a *commands) writeTable(rows []clusterRow, everywhere bool) error {
	if len(rows) == 0 {
		return nil
	}
	namespaced := func(namespace string) string {
		if !everywhere {
			return ""
		}
		return namespace + "\t"
	}
	table := []string{
		namespaced("NAMESPACE") + strings.Join([]string{"NAME", "CLUSTERING", "RECONCILIATION", "SINCE", "BY", "REASON", "UNTIL", "PRIMARY", "HEALTHY", "NEXT"}, "\t"),
	}
	for _, r := range rows {
		var since, by, reason, until []string
		for _, p := range []partRow{r.Clustering, r.Reconciliation} {
			if p.Since != nil {
				since = append(since, duration.HumanDuration(a.clock.Since(p.Since.Time)))
			}
			by, reason = append(by, p.By), append(reason, p.Reason)
			if p.Until != nil {
				until = append(until, stoprecord.FormatEnd(p.Until, a.clock.Now()))
			}
		}
		table = append(table, namespaced(r.Namespace)+strings.Join([]string{
			r.Name, r.Clustering.State, r.Reconciliation.State, formatCell(since), formatCell(by), formatCell(reason), formatCell(until),
			fmt.Sprint(r.Primary), r.Healthy, formatCell([]string{r.Next}),
		}, "\t"))
	}
	return a.writeAligned(table)
}

// formatCell joins the texts of the two parts. It returns one text if they are equal, and a dash if both are empty.
func formatCell(texts []string) string {
	var said []string
	for _, text := range texts {
		text = strings.Join(strings.Fields(text), " ")
		if text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "-"
	}
	return strings.Join(said, ", ")
}

// writeInstances prints the servers of a cluster as last observed, and the age of the observation if it may be old.
func (a *commands) writeInstances(list []mocov1beta2.InstanceStatus, observedAt *metav1.Time) error {
	if observedAt != nil {
		fmt.Fprintf(a.Out, "\nThe instances as they were %s ago:", duration.HumanDuration(a.clock.Since(observedAt.Time)))
	}
	table := []string{"\n" + strings.Join([]string{"INSTANCE", "ROLE", "WRITABLE", "LAG", "RECEIVES", "APPLIES", "GTIDS", "MESSAGE"}, "\t")}
	for _, s := range list {
		message := strings.TrimPrefix(s.Message, fmt.Sprintf("instance %d ", s.Ordinal))
		table = append(table, strings.Join([]string{
			fmt.Sprint(s.Ordinal), formatRole(s), formatWritable(s.Writable), formatLag(s.LagSeconds),
			formatCell([]string{s.IOThread}), formatCell([]string{s.SQLThread}), formatCell(unusualGTIDs(s)), formatCell([]string{message}),
		}, "\t"))
	}
	return a.writeAligned(table)
}

// writeAligned prints lines whose cells are separated by tabs.
func (a *commands) writeAligned(lines []string) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func formatRole(s mocov1beta2.InstanceStatus) string {
	said := []string{string(s.Role)}
	if s.Stopped {
		said = append(said, "clustering stopped")
	}
	return formatCell(said)
}

// formatWritable returns yes, no, or unknown for an instance that did not answer.
func formatWritable(writable *bool) string {
	switch {
	case writable == nil:
		return "unknown"
	case *writable:
		return "yes"
	default:
		return "no"
	}
}

func formatLag(seconds *int64) string {
	if seconds == nil {
		return "-"
	}
	return (time.Duration(*seconds) * time.Second).String()
}

// unusualGTIDs describes the transactions of an instance that make a start of clustering risky.
func unusualGTIDs(s mocov1beta2.InstanceStatus) []string {
	var said []string
	for _, odd := range []struct{ what, set string }{{"errant", s.ErrantGTIDs}, {"ahead", s.AheadGTIDs}, {"lacks", s.MissingGTIDs}} {
		if odd.set != "" {
			said = append(said, odd.what+" "+odd.set)
		}
	}
	return said
}

const (
	pollInterval = 200 * time.Millisecond
	// progressDelay is how long a command waits before it prints progress.
	progressDelay = 2 * time.Second
	// settleTime is how long the status must keep the requested state if it already had it before the request. Such
	// a status may belong to an earlier request, and the controller may have no change to report.
	settleTime = 3 * time.Second
)

type statusWait struct {
	*partCommand
	// isFresh is true if a matching status cannot belong to an earlier request, for example because the status has
	// differed from the requested state.
	isFresh bool
	// startedAt is the time at which the wait began, and reachedAt the time at which the status first matched the
	// request.
	startedAt, reachedAt time.Time
	// lastPrinted is the last printed progress.
	lastPrinted string
}

// waitForStatus waits until the status reports the effect of this request, not of an earlier one.
func (p *partCommand) waitForStatus(ctx context.Context, kube *kubeClient, r *partResult) {
	if r.err != nil {
		return
	}
	now := p.clock.Now()
	w := &statusWait{partCommand: p, isFresh: !r.Changed || r.change.AlreadyDone || !isReportedIn(p.PartRequest, r.before), startedAt: now}
	reached, err := w.pollUntilReached(ctx, kube, r.Name)
	r.Reached, r.err = &reached, err
}

func (w *statusWait) pollUntilReached(ctx context.Context, kube *kubeClient, name string) (bool, error) {
	tick := w.clock.NewTicker(pollInterval)
	defer tick.Stop()
	last := "no status was read in time"
	for {
		c, err := kube.getCluster(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return false, err
		case !w.IsStop && !w.force && w.Part.IsStartRefused(c):
			return false, exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: %s; --force starts it nevertheless", describeCluster(c), w.Part.ReadCondition(c).Message)}
		case w.Part.IsStopped(c.Annotations) != w.IsStop:
			return false, fmt.Errorf("%s: the request changed during the wait: %s should no longer be %s", describeCluster(c), w.Part.PartName, w.pastParticiple())
		case w.isSettled(c):
			return true, nil
		default:
			last = w.describeStatus(c)
			w.printProgress(c, last)
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				err := fmt.Errorf("timed out: expected %s to be %s in MySQLCluster %q, found %s; the request stays in effect", w.Part.PartName, w.pastParticiple(), kube.namespace+"/"+name, last)
				return false, exit.Error{Code: exit.TimedOut, Err: err}
			}
			return false, fmt.Errorf("wait for MySQLCluster %q: %w; the request stays in effect", kube.namespace+"/"+name, context.Cause(ctx))
		}
	}
}

// isSettled reports whether the status matches the request and does not belong to an earlier one.
func (w *statusWait) isSettled(c *mocov1beta2.MySQLCluster) bool {
	if !isReportedIn(w.PartRequest, c) {
		w.isFresh, w.reachedAt = true, time.Time{}
		return false
	}
	if w.reachedAt.IsZero() {
		w.reachedAt = w.clock.Now()
	}
	return w.isFresh || w.clock.Since(w.reachedAt) >= settleTime
}

func (w *statusWait) describeStatus(c *mocov1beta2.MySQLCluster) string {
	found := w.Part.ReadCondition(c)
	text := fmt.Sprintf("%s %s", found.Type, found.Status)
	if found.Reason != "" {
		text += " (" + found.Reason + ")"
	}
	if found.Message != "" {
		text += ": " + found.Message
	}
	if found.Status == metav1.ConditionTrue && c.Status.Pause != nil && c.Status.Pause.Quiescing != "" {
		text += "; finishing: " + c.Status.Pause.Quiescing
	}
	return text
}

func (w *statusWait) printProgress(c *mocov1beta2.MySQLCluster, seen string) {
	if w.clock.Since(w.startedAt) < progressDelay || w.lastPrinted == seen {
		return
	}
	w.lastPrinted = seen
	fmt.Fprintf(w.Err, "waiting for %s: %s\n", describeCluster(c), seen)
}
