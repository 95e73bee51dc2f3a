// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
)

// newSkipCommand is no verb of a switch: what people stopped stays stopped.
func (a *commands) newSkipCommand() *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "skip KIND/NAME... [--until TIME|DURATION]",
		Short: "Keep objects awake although a Slumber would stop them",
		Long: `Keep objects awake although a Slumber would stop them: until a time, or until the end of the sleep that goes on or comes next.
What sleeps wakes at once. What somebody has stopped stays stopped.`,
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
			for _, arg := range args { // Wrong usage is told before any call.
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
			var errs []error
			for _, t := range targets {
				errs = append(errs, a.skip(ctx, kube, t, until))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "until when: a time such as 2026-11-20T22:00:00Z, or a duration from now such as 8h; the end of the sleep if it is left out")
	return cmd
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
	setAnnotation(obj, torporv1alpha1.SkipUntilAnnotation, end)
	if err := kube.Patch(ctx, obj, client.MergeFrom(before), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("skip %s: %w", t, err)
	}
	fmt.Fprintf(a.Out, "%s stays awake until %s\n", t.displayName(), end)
	return nil
}

// findSkipEnd returns the time that was given, or when the last Slumber that selects an object ends its sleep.
func (a *commands) findSkipEnd(ctx context.Context, kube *kubeClient, t target, obj client.Object, text string) (until time.Time, err error) {
	now := a.clock.Now()
	if text != "" {
		return moco.ParseUntil(text, now)
	}
	slumbers, err := kube.readSlumbers(ctx, t.namespace)
	if err != nil {
		return until, err
	}
	row := stopRow{Namespace: t.namespace, Kind: t.kind.gvk.Kind, Name: t.name, labels: obj.GetLabels(), groupKind: t.kind.gvk.GroupKind()}
	for _, s := range row.findSlumbers(slumbers) {
		if end := endOfSleep(s, now); end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return until, exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected a Slumber that you may read, and that stops it, found none; say until when with --until", t.displayName())}
	}
	return until, nil
}

func (t target) displayName() string { return t.kind.names[0] + "/" + t.name }
