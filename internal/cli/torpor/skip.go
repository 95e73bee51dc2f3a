// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// newSkipCommand returns the command skip. It is not a verb, because it changes no switch: a manual stop stays in
// effect.
func (a *commands) newSkipCommand() *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "skip KIND/NAME... [--until TIME|DURATION]",
		Short: "Keep objects running although a Slumber would stop them",
		Long: `Keep objects running although a Slumber would stop them: until a time, or until the end of the current or next sleep.
Objects that a Slumber has stopped are started at once. Manual stops stay in effect.`,
		Example: `  # This night
  kubectl torpor skip cfapp/shop

  # For two more hours
  kubectl torpor skip mysqlcluster/test --until 2h`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeNames(0, anyKind, stopRow.displayName),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("until") {
				if _, err := moco.ParseUntil(until, a.clock.Now()); err != nil {
					return err
				}
			}
			for _, arg := range args { // Report wrong usage before any call.
				if err := validateTarget(arg); err != nil {
					return err
				}
			}
			kube, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := limitCommand(cmd)
			defer cancel()
			var targets []target
			for _, arg := range args {
				t, err := kube.findTarget(ctx, arg)
				if err != nil {
					return err
				}
				targets = append(targets, t)
			}
			return a.skipAll(ctx, kube, targets, until)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "end of the skip: a time such as 2026-11-20T22:00:00Z, or a duration from now such as 8h; the end of the sleep by default")
	return cmd
}

// skipAll skips each object, and warns if no controller acts on Slumbers.
func (a *commands) skipAll(ctx context.Context, kube *kubeClient, targets []target, until string) error {
	var errs []error
	var skipped []target
	for _, t := range targets {
		err := a.skip(ctx, kube, t, until)
		if errs = append(errs, err); err == nil {
			skipped = append(skipped, t)
		}
	}
	if len(skipped) > 0 {
		a.warnOfGaps(connection.ReadActing(ctx, kube, a.clock.Now()), skipped, func(target) string { return slumberControllers })
	}
	return errors.Join(errs...)
}

func (a *commands) skip(ctx context.Context, kube *kubeClient, t target, text string) error {
	obj, err := kube.getObject(ctx, t)
	if err != nil {
		return err
	}
	until, err := a.findSkipEnd(ctx, kube, t, obj, text)
	if err != nil {
		return err
	}
	before := obj.DeepCopyObject().(client.Object)
	end := until.UTC().Format(time.RFC3339)
	kinds.SetAnnotation(obj, torporv1alpha1.SkipUntilAnnotation, end)
	if err := kube.Patch(ctx, obj, client.MergeFrom(before), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("skip %s: %w", t, err)
	}
	fmt.Fprintf(a.Out, "%s keeps running until %s\n", t.displayName(), end)
	return nil
}

// findSkipEnd returns the requested time, or the latest end of a sleep among the Slumbers that select the object.
func (a *commands) findSkipEnd(ctx context.Context, kube *kubeClient, t target, obj client.Object, text string) (until time.Time, err error) {
	now := a.clock.Now()
	if text != "" {
		return moco.ParseUntil(text, now)
	}
	slumbers, err := kube.readSlumbers(ctx, t.namespace)
	if err != nil {
		return until, err
	}
	row := stopRow{Row: kinds.Row{Namespace: t.namespace, Labels: obj.GetLabels(), GroupKind: t.kind.GVK().GroupKind()}}
	for _, s := range row.findSlumbers(slumbers) {
		if end := endOfSleep(s, now); end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return until, exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a Slumber that you may read, and that stops it, found none; set the end with --until", t.displayName())}
	}
	return until, nil
}

func (t target) displayName() string {
	return t.kind.Names()[0] + "/" + cmp.Or(t.shownName, t.name)
}
