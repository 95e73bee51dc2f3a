// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	defaultTimeout = 5 * time.Minute
	// lookTimeout is how long the manager may take to check the instances, some of which may not answer.
	lookTimeout = 15 * time.Second
	// lookRequestFormat is a time format whose texts sort chronologically.
	lookRequestFormat = "2006-01-02T15:04:05.000000000Z"
)

// partCommand is the common part of stop and start: they write a request to annotations, and may wait for its
// effect.
type partCommand struct {
	*commands
	mysqlswitches.PartRequest
	selection clusterSelection
	force     bool
	wait      bool
	timeout   time.Duration
	output    string
	// lookRequest identifies a requested check of the instances, which must end before lookDeadline.
	lookRequest  string
	lookDeadline time.Time
}

// partResult is the result of the request for one cluster; -o json prints a list of results.
type partResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Part      string `json:"part"`
	// Wanted is stopped or started.
	Wanted string `json:"wanted"`
	// Changed is true if annotations were changed.
	Changed bool `json:"changed"`
	// Reached is true if the requested state was reached. It is set only with --wait.
	Reached  *bool                      `json:"reached,omitempty"`
	Reason   string                     `json:"reason,omitempty"`
	Until    string                     `json:"until,omitempty"`
	Findings []mocov1beta2.StartFinding `json:"findings,omitempty"`
	Error    string                     `json:"error,omitempty"`
	change   *mysqlswitches.AnnotationChange
	before   *mocov1beta2.MySQLCluster
	err      error
}

func (p *partCommand) addFlags(cmd *cobra.Command) {
	p.selection.addSelectorFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.wait, "wait", false, "wait until the status reports the change")
	f.DurationVar(&p.timeout, "timeout", defaultTimeout, "maximum wait for all clusters, after which the exit code is 3")
	f.StringVarP(&p.output, "output", "o", "", "json, or empty for text")
	completion.OfferValues(cmd, "output", "json")
	cmd.ValidArgsFunction = p.completeClusterNames(0)
	cmd.Args = p.selection.validateArgs
}

func (p *partCommand) validateFlags(cmd *cobra.Command) error {
	if err := validateOutput(p.output); err != nil {
		return err
	}
	switch {
	case p.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 5m, found %s", p.timeout)
	case cmd.Flags().Changed("timeout") && !p.wait:
		return exit.WrongUsage("--timeout: expected --wait as well, found none")
	default:
		return nil
	}
}

func validateOutput(format string) error {
	if format != "" && format != "json" {
		return exit.WrongUsage("--output: expected json or nothing, found %q", format)
	}
	return nil
}

// runForClusters writes the requests of all clusters before it waits for their effects, so that a slow cluster does not
// delay other clusters.
func (p *partCommand) runForClusters(cmd *cobra.Command, args []string) error {
	if err := p.validateFlags(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	kube, err := p.connect()
	if err != nil {
		return err
	}
	names, err := p.selection.clusterNames(ctx, kube, cmd, args)
	if err != nil {
		return err
	}
	results := make([]*partResult, len(names))
	p.warnOfGap(ctx, kube)
	p.requestLooks(ctx, kube, names)
	for i, name := range names {
		results[i] = p.writeRequest(ctx, kube, name)
		if !p.wait {
			p.printResult(results[i], len(names) > 1)
		}
	}
	if p.wait {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		for _, r := range results {
			p.waitForStatus(ctx, kube, r)
			p.printResult(r, len(names) > 1)
		}
	}
	return p.joinErrors(results)
}

// warnOfGap warns that the request will have no effect until a manager acts on the part. It also warns if MOCO acts
// on the cluster instead, because then no Torpor manager holds the Lease.
func (p *partCommand) warnOfGap(ctx context.Context, kube *kubeClient) {
	reason := leasereader.ReadActing(ctx, kube, p.clock.Now()).DescribeInaction(p.Part.Controllers, kube.namespace)
	if reason != "" {
		fmt.Fprintf(p.Err, "warning: no controller acts on the %s of MySQLClusters in namespace %q: %s\n", p.Part.PartName, kube.namespace, reason)
	}
}

func (p *partCommand) joinErrors(results []*partResult) error {
	var errs []error
	for _, r := range results {
		if r.err != nil {
			r.Error = r.err.Error()
		}
		errs = append(errs, r.err)
	}
	if p.output == "json" {
		errs = append(errs, writeJSON(p.Out, results))
	}
	return errors.Join(errs...)
}

// writeRequest writes the annotations, and retries after a conflict with another writer.
func (p *partCommand) writeRequest(ctx context.Context, kube *kubeClient, name string) *partResult {
	r := &partResult{Namespace: kube.namespace, Name: name, Part: p.Part.PartName, Wanted: p.pastParticiple()}
	// The retries take at most about five seconds.
	backoff := wait.Backoff{Steps: 12, Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.5}
	r.err = retry.OnError(backoff, k8serrors.IsConflict, func() error { return p.tryWriteRequest(ctx, kube, r) })
	return r
}

func (p *partCommand) tryWriteRequest(ctx context.Context, kube *kubeClient, r *partResult) error {
	before, err := p.awaitLook(ctx, kube, r.Name)
	if err != nil {
		return err
	}
	c := p.ChangeAnnotations(before.Annotations, p.clock.Now())
	// If the manager refused the start, nothing has started although the annotation is already removed.
	c.AlreadyDone = c.AlreadyDone && (p.IsStop || !p.Part.IsStartRefused(before))
	if p.force && !c.AlreadyDone {
		c.Annotations[mocov1beta2.ForceStartAnnotation] = mysqlswitches.StopValue
	}
	r.before, r.change, r.Findings = before, &c, nil
	if p.IsStop {
		r.Reason, r.Until = c.Annotations[p.Part.ReasonAnnotation(c.Annotations)], c.Annotations[p.Part.UntilAnnotation(c.Annotations)]
	}
	if err := p.refuseHarmfulStart(before, r); err != nil {
		return err
	}
	r.Changed = !maps.Equal(before.Annotations, c.Annotations)
	if !r.Changed {
		return nil
	}
	after := before.DeepCopy()
	after.Annotations = c.Annotations
	patch := client.MergeFrom(before)
	if !p.IsStop { // A start must apply to exactly the checked version. A stop has no checks, and must not fail with a conflict.
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := kube.Patch(ctx, after, patch); err != nil {
		r.Changed = false
		return fmt.Errorf("write the annotations of %s: %w", describeCluster(before), err)
	}
	return nil
}

// needsLook reports whether a start needs a check of the instances that begins after the request, because the status
// may be older than the last change to the instances.
func (p *partCommand) needsLook(c *mocov1beta2.MySQLCluster) bool {
	isStopped := c.Annotations[p.Part.Name] == mysqlswitches.StopValue || p.Part.IsStartRefused(c)
	return !p.IsStop && p.Part == mysqlswitches.ClusteringPart() && !p.force && isStopped && c.Status.Pause != nil && c.Status.Pause.ObservedAt != nil
}

// requestLooks requests a check of each cluster that needs one, so that the checks run concurrently. A cluster that
// cannot be read is skipped, and causes an error later.
func (p *partCommand) requestLooks(ctx context.Context, kube *kubeClient, names []string) {
	if p.IsStop || p.Part != mysqlswitches.ClusteringPart() || p.force {
		return
	}
	now := p.clock.Now().UTC()
	p.lookRequest, p.lookDeadline = now.Format(lookRequestFormat), now.Add(lookTimeout)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, mocov1beta2.LookRequestedAnnotation, p.lookRequest)
	for _, name := range names {
		c, err := kube.getCluster(ctx, name)
		if err == nil && p.needsLook(c) {
			_ = kube.Patch(ctx, c, client.RawPatch("application/merge-patch+json", patch))
		}
	}
}

// awaitLook returns a cluster. If the start needs a check of the instances, awaitLook first waits for a check that began
// after the request.
func (p *partCommand) awaitLook(ctx context.Context, kube *kubeClient, name string) (*mocov1beta2.MySQLCluster, error) {
	tick := p.clock.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		c, err := kube.getCluster(ctx, name)
		switch {
		case err != nil || !p.needsLook(c) || c.Status.Pause.LookRequest >= p.lookRequest: // The texts of these times sort chronologically.
			return c, err
		case p.clock.Now().After(p.lookDeadline):
			return nil, exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected the manager to check the instances within %s, found the last check %s ago; check whether the manager runs; --force starts clustering without a check",
				describeCluster(c), lookTimeout, duration.HumanDuration(p.clock.Since(c.Status.Pause.ObservedAt.Time)))}
		}
		select {
		case <-tick.C():
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a check of MySQLCluster %q: %w", kube.namespace+"/"+name, context.Cause(ctx))
		}
	}
}

// refuseHarmfulStart stores the findings of the check in r, and returns an error if a start of clustering without
// --force would do harm.
func (p *partCommand) refuseHarmfulStart(c *mocov1beta2.MySQLCluster, r *partResult) error {
	if p.IsStop || p.Part != mysqlswitches.ClusteringPart() || r.change.AlreadyDone || c.Status.Pause == nil {
		return nil
	}
	r.Findings = c.Status.Pause.StartFindings
	isHarmful := slices.ContainsFunc(r.Findings, mysqlswitches.IsRefusal)
	if isHarmful && !p.force {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("refused to start clustering of %s: the start would cause the problems listed above; --force starts clustering nevertheless", describeCluster(c))}
	}
	return nil
}

func (p *partCommand) pastParticiple() string {
	if p.IsStop {
		return "stopped"
	}
	return "started"
}

// printResult prints the result of the request, in the words of MOCO's plugin.
func (p *partCommand) printResult(r *partResult, many bool) {
	if p.output == "json" {
		return
	}
	for _, f := range r.Findings {
		fmt.Fprintf(p.Err, "%s: %s: %s\n", f.Severity, f.Message, f.Remedy)
	}
	if r.err != nil {
		return
	}
	state := map[bool]string{true: "stopped", false: "running"}[p.IsStop]
	switch {
	case !r.change.AlreadyDone:
		fmt.Fprintf(p.Out, "%s %s of %s\n", p.pastParticiple(), p.Part.PartName, describeCluster(r.before))
	case many:
		fmt.Fprintf(p.Out, "The %s of %s is already %s.\n", p.Part.PartName, describeCluster(r.before), state)
	default:
		fmt.Fprintf(p.Out, "The %s is already %s.\n", p.Part.PartName, state)
	}
	switch {
	case !r.change.AlreadyDone || !r.Changed:
	case p.IsStop:
		fmt.Fprintf(p.Out, "changed the reason and the end of the stop of %s\n", describeCluster(r.before))
	default:
		fmt.Fprintf(p.Out, "removed %s=%q from %s; this value did not stop anything\n", p.Part.Name, r.change.RemovedValue, describeCluster(r.before))
	}
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// ParseUntil parses the flag --until: a future time, or a duration from now.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	until, err := stoprecord.ParseNewUntil(text, now)
	if err != nil {
		return time.Time{}, exit.WrongUsage("--until: %w", err)
	}
	return until, nil
}

// UntilWords returns the values that a shell offers for the flag --until.
func UntilWords() []string {
	return []string{"tonight", "tomorrow", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "18:00", "8h", "3d", "2w"}
}

// ResolveUntil replaces a word of the flag --until, such as tomorrow, with its time, and prints that time before any
// request is sent. A time with a zone and a duration are returned as typed.
func ResolveUntil(w io.Writer, text string, now time.Time) (string, error) {
	until, err := ParseUntil(text, now)
	if err != nil || stoprecord.IsAnnotationTime(text) {
		return text, err
	}
	fmt.Fprintf(w, "--until %s: %s\n", text, until.In(now.Location()).Format("Mon 2006-01-02 15:04 MST"))
	return until.UTC().Format(time.RFC3339), nil
}

// isReportedIn reports whether the status matches the request. A part that is quiescing is neither stopped nor
// started.
func isReportedIn(w mysqlswitches.PartRequest, c *mocov1beta2.MySQLCluster) bool {
	found := w.Part.ReadCondition(c)
	if w.IsStop {
		return found.Status == metav1.ConditionFalse
	}
	return found.Status == metav1.ConditionTrue && found.Reason != mocov1beta2.QuiescingReason
}
