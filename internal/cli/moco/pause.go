// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
)

const defaultTimeout = 5 * time.Minute

// pause is what stop and start have in common: they write a wish into annotations, and may wait for it.
type pause struct {
	*app
	wish
	pick    pick
	force   bool
	wait    bool
	timeout time.Duration
	output  string
}

// pauseResult is what became of the wish for one cluster; -o json prints a list of it.
type pauseResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Part      string `json:"part"`
	// Wanted is stopped or started.
	Wanted string `json:"wanted"`
	// Changed is whether an annotation was written.
	Changed bool `json:"changed"`
	// Reached is only there with --wait.
	Reached  *bool          `json:"reached,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Until    string         `json:"until,omitempty"`
	Findings []pauseFinding `json:"findings,omitempty"`
	Error    string         `json:"error,omitempty"`
	asked    *change
	before   *mocov1beta2.MySQLCluster
	err      error
}

type pauseFinding struct {
	Severity clustering.Severity `json:"severity"`
	Message  string              `json:"message"`
	Remedy   string              `json:"remedy"`
}

func (p *pause) flags(cmd *cobra.Command) {
	p.pick.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&p.wait, "wait", false, "return when the status reports it")
	f.DurationVar(&p.timeout, "timeout", defaultTimeout, "how long to wait for all of them; then the exit code is 3")
	f.StringVarP(&p.output, "output", "o", "", "json, or empty for text")
	cmd.ValidArgsFunction = p.complete(0)
	cmd.Args = p.pick.args
}

func (p *pause) validate(cmd *cobra.Command) error {
	switch {
	case p.output != "" && p.output != "json":
		return exit.WrongUsage("--output: expected json or nothing, found %q", p.output)
	case p.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 5m, found %s", p.timeout)
	case cmd.Flags().Changed("timeout") && !p.wait:
		return exit.WrongUsage("--timeout: expected --wait with it, found none")
	default:
		return nil
	}
}

// run asks for the wish everywhere first and waits then, so that one slow cluster holds up no other.
func (p *pause) run(cmd *cobra.Command, args []string) error {
	if err := p.validate(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	h, err := p.connect()
	if err != nil {
		return err
	}
	names, err := p.pick.names(ctx, h, cmd, args)
	if err != nil {
		return err
	}
	results := make([]*pauseResult, len(names))
	for i, name := range names {
		results[i] = p.ask(ctx, h, name)
		if !p.wait {
			p.say(results[i], len(names) > 1)
		}
	}
	if p.wait {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		for _, r := range results {
			p.await(ctx, h, r)
			p.say(r, len(names) > 1)
		}
	}
	return p.finish(results)
}

func (p *pause) finish(results []*pauseResult) error {
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

// ask writes the annotations. It reads again if somebody else wrote in between.
func (p *pause) ask(ctx context.Context, h *hub, name string) *pauseResult {
	r := &pauseResult{Namespace: h.namespace, Name: name, Part: p.part.name, Wanted: p.verb()}
	backoff := wait.Backoff{Steps: 12, Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.5} // Five seconds in all.
	r.err = retry.OnError(backoff, k8serrors.IsConflict, func() error { return p.askOnce(ctx, h, r) })
	return r
}

func (p *pause) askOnce(ctx context.Context, h *hub, r *pauseResult) error {
	before, err := h.cluster(ctx, r.Name)
	if err != nil {
		return err
	}
	c := p.on(before.Annotations, p.clock.Now())
	r.before, r.asked, r.Findings = before, &c, nil
	if p.stop {
		r.Reason, r.Until = c.annotations[torporv1alpha1.ReasonAnnotation], c.annotations[torporv1alpha1.UntilAnnotation]
	}
	if err := p.judge(before, r); err != nil {
		return err
	}
	r.Changed = !maps.Equal(before.Annotations, c.annotations)
	if !r.Changed {
		return nil
	}
	after := before.DeepCopy()
	after.Annotations = c.annotations
	patch := client.MergeFrom(before)
	if !p.stop { // What was judged is what is changed. A stop judges nothing, and no writer may keep it from coming.
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := h.Patch(ctx, after, patch); err != nil {
		r.Changed = false
		return fmt.Errorf("write the annotations of %s: %w", shown(before), err)
	}
	return nil
}

// judge refuses a start of clustering that would do harm.
func (p *pause) judge(c *mocov1beta2.MySQLCluster, r *pauseResult) error {
	if p.stop || p.part != clusteringPart() || r.asked.already {
		return nil
	}
	found, err := check(c)
	if err != nil && !p.force {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: %w; with --force clustering starts unchecked", shown(c), err)}
	}
	harmful := false
	for _, f := range found {
		r.Findings = append(r.Findings, pauseFinding(f))
		harmful = harmful || f.Severity == clustering.Refuse
	}
	if harmful && !p.force {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("refused to start clustering of %s: it would do the harm that is listed; with --force it starts nevertheless", shown(c))}
	}
	return nil
}

func (p *pause) verb() string {
	if p.stop {
		return "stopped"
	}
	return "started"
}

// say tells people what became of the wish, in upstream's words.
func (p *pause) say(r *pauseResult, many bool) {
	if p.output == "json" {
		return
	}
	for _, f := range r.Findings {
		fmt.Fprintf(p.Err, "%s: %s: %s\n", f.Severity, f.Message, f.Remedy)
	}
	if r.err != nil {
		return
	}
	state := map[bool]string{true: "stopped", false: "running"}[p.stop]
	switch {
	case !r.asked.already:
		fmt.Fprintf(p.Out, "%s %s of %s\n", p.verb(), p.part.name, shown(r.before))
	case many:
		fmt.Fprintf(p.Out, "The %s of %s is already %s.\n", p.part.name, shown(r.before), state)
	default:
		fmt.Fprintf(p.Out, "The %s is already %s.\n", p.part.name, state)
	}
	switch {
	case !r.asked.already || !r.Changed:
	case p.stop:
		fmt.Fprintf(p.Out, "changed reason and until of %s\n", shown(r.before))
	default:
		fmt.Fprintf(p.Out, "removed %s=%q from %s; it did not stop anything\n", p.part.annotation, r.asked.removed, shown(r.before))
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
