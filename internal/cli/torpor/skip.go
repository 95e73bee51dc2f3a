// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// newSkipCommand returns the command skip. It is not a verb, because it changes no switch: a manual stop remains in
// effect.
func (a *commands) newSkipCommand() *cobra.Command {
	s := &skipCommand{commands: a}
	cmd := &cobra.Command{
		Use:   "skip " + s.describeObjects() + " [--until TIME|DURATION]",
		Short: "Keep objects running even if a Slumber or ClusterSlumber would stop them",
		Long: `Keep objects running even if a Slumber or ClusterSlumber would stop them: until a time, or until the end of the current or next sleep.
Objects that a Slumber has stopped are started immediately. Manual stops stay in effect.`,
		Example: `  # This night
  kubectl torpor skip deployment/web

  # For two more hours
  kubectl torpor skip mysqlcluster/test --until 2h

  # Validate a skip of all apps of a team
  kubectl torpor skip cfapp -l team=a --dry-run=server`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return a.completeSelected(cmd, args, toComplete, &s.selection, anyKind)
		},
		RunE: s.run,
	}
	f := cmd.Flags()
	s.addFlags(f)
	f.StringVar(&s.until, "until", "", "end of the skip: a time such as 18:00, tomorrow, monday or 2026-11-20T22:00:00Z, or a duration from now such as 8h; the end of the sleep by default")
	f.StringVar(&s.dryRun, "dry-run", dryRunNone, "server: the API server validates the change and does not store it; none: the change is stored")
	f.StringVarP(&s.output, "output", "o", "", "json, yaml, name, or empty for text")
	completion.OfferValues(cmd, "dry-run", dryRunServer, dryRunNone)
	completion.OfferValues(cmd, "until", moco.UntilWords()...)
	completion.OfferValues(cmd, "output", "json", "yaml", "name")
	return cmd
}

// skipCommand prevents Slumbers from stopping objects for a time.
type skipCommand struct {
	*commands
	selection
	until, dryRun, output string
	// schedules is set only if --until is not set.
	schedules slumber.Schedules
}

// skipResult is the result for one object; -o json and -o yaml print a list of these.
type skipResult struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// DisplayName is the display name of the object. It is empty if the kind has no display names.
	DisplayName string `json:"displayName,omitempty"`
	// SkippedUntil is the end of the skip. It is empty after an error.
	SkippedUntil string `json:"skippedUntil,omitempty"`
	Error        string `json:"error,omitempty"`
	// row is the row of the part that Slumbers stop. until is the end of the skip.
	row   kinds.Row
	until metav1.Time
}

func (s *skipCommand) run(cmd *cobra.Command, args []string) error {
	if err := errors.Join(validateDryRun(s.dryRun), validateOutput(s.output, "json", "yaml", "name")); err != nil {
		return err
	}
	if cmd.Flags().Changed("until") {
		until, err := moco.ResolveUntil(s.Err, s.until, s.clock.Now())
		if err != nil {
			return err
		}
		s.until = until
	}
	kube, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	targets, err := s.findTargets(ctx, cmd, kube, args)
	if err != nil {
		return err
	}
	if s.until == "" && len(targets) > 0 {
		if s.schedules, err = kube.readSchedules(ctx); err != nil {
			return err
		}
	}
	return s.skipAll(ctx, kube, targets)
}

// skipAll skips each object, and warns if no controller acts on Slumbers.
func (s *skipCommand) skipAll(ctx context.Context, kube *kubeClient, targets []target) error {
	var errs []error
	var skipped []target
	results := []skipResult{} // Programs expect an empty list instead of null.
	for _, t := range targets {
		r := skipResult{Namespace: t.namespace, Kind: t.kind.GVK().Kind, Name: t.name}
		err := s.skip(ctx, kube, t, &r)
		if errs = append(errs, err); err == nil {
			skipped = append(skipped, t)
			s.printResult(t, r)
		} else {
			r.Error = err.Error()
		}
		results = append(results, r)
	}
	if s.output == "json" || s.output == "yaml" {
		errs = append(errs, s.writeData(s.output, results))
	}
	if len(skipped) > 0 {
		s.warnOfGaps(leasereader.ReadActing(ctx, kube, s.clock.Now()), skipped, func(target) string { return slumberControllers }, s.dryRun)
	}
	return errors.Join(errs...)
}

func (s *skipCommand) skip(ctx context.Context, kube *kubeClient, t target, r *skipResult) error {
	obj, err := kube.getObject(ctx, t)
	if err != nil {
		return err
	}
	if namer, isNamed := t.kind.Definition.(kinds.DisplayNamer); isNamed {
		r.DisplayName = namer.ReadDisplayName(obj)
	}
	r.row = t.findSlumberRow(obj)
	until, err := s.findSkipEnd(t, obj)
	if err != nil {
		return err
	}
	before := obj.DeepCopyObject().(client.Object)
	end := until.UTC().Format(time.RFC3339)
	kinds.SetAnnotation(obj, torporv1alpha1.SkipUntilAnnotation, end)
	options := []client.PatchOption{client.FieldOwner(fieldManager)}
	if s.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	if err := kube.Patch(ctx, obj, client.MergeFrom(before), options...); err != nil {
		return fmt.Errorf("skip %s: %w", t, err)
	}
	r.SkippedUntil, r.until = end, metav1.NewTime(until)
	return nil
}

func (s *skipCommand) printResult(t target, r skipResult) {
	switch {
	case s.output == "name":
		fmt.Fprintln(unfitted(s.Out), t.kind.ObjectName(t.name))
	case s.output != "":
	case s.dryRun == dryRunServer:
		fmt.Fprintf(s.Out, "%s %s (server dry run)\n", t.displayName(), s.describe(r))
	default:
		fmt.Fprintf(s.Out, "%s %s\n", t.displayName(), s.describe(r))
	}
}

// describe describes the effect of the skip on an object, whose manual stop remains in effect.
func (s *skipCommand) describe(r skipResult) string {
	until := s.formatTime(&r.until)
	if !r.row.IsAsked {
		return "keeps running until " + until
	}
	stop := "stays stopped"
	if r.row.By != "" {
		stop += " by " + formatCell(r.row.By)
	}
	end := " until a manual start"
	switch {
	case r.row.Since == nil: // The stop is not recorded yet.
		end = ""
	case r.row.Until != nil:
		end = " until " + s.formatTime(r.row.Until)
	}
	return stop + end + "; Slumbers skip the object until " + until
}

// findSlumberRow returns the row of the part that Slumbers stop, or a zero Row if this part has no row.
func (t target) findSlumberRow(obj client.Object) kinds.Row {
	unchanged, _ := obj.DeepCopyObject().(client.Object)
	rows := t.kind.DescribeRows(unchanged)
	if len(rows) == 0 || len(t.kind.PartNames()) > 1 && slices.Contains(t.kind.PartNames(), rows[len(rows)-1].Part) {
		return kinds.Row{}
	}
	return rows[len(rows)-1]
}

// findSkipEnd returns the requested time, or the latest end of a sleep among the Slumbers that select the object.
func (s *skipCommand) findSkipEnd(t target, obj client.Object) (until time.Time, err error) {
	now := s.clock.Now()
	if s.until != "" {
		return moco.ParseUntil(s.until, now)
	}
	if until = s.schedules.EndOfSleep(t.kind.GVK().GroupKind(), obj, now); until.IsZero() {
		return until, exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a Slumber or ClusterSlumber that stops the object and that you may read, found none; set the end with --until", t.displayName())}
	}
	return until, nil
}

func (t target) displayName() string {
	return t.kind.Names()[0] + "/" + cmp.Or(t.shownName, t.name)
}
