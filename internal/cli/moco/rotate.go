// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

type rotation struct {
	*commands
	discard, wait bool
	timeout       time.Duration
}

func (a *commands) newRotateCommand() *cobra.Command {
	r := &rotation{commands: a}
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give all accounts new passwords, in two steps without an outage",
		Long: `Give all eight accounts new passwords. The old passwords stay valid too, so that applications can read the new ones
from the Secret at any time. Then --discard invalidates the old passwords.
Both steps wait for a healthy cluster, and continue after an interruption of the manager. --discard takes at least three
minutes, after which the files in every Pod have the new passwords. A second rotation before --discard is refused with
exit code 4, because it would invalidate passwords that may be in use.`,
		Example: `  # New passwords
  kubectl moco rotate test --wait

  # After the applications have been restarted with the new passwords
  kubectl moco rotate test --discard --wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE:              r.run,
	}
	cmd.Flags().BoolVar(&r.discard, "discard", false, "invalidate the old passwords")
	cmd.Flags().BoolVar(&r.wait, "wait", false, "wait until the step is done")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 2*defaultTimeout, "maximum wait, after which the exit code is 3")
	return cmd
}

func (r *rotation) run(cmd *cobra.Command, args []string) error {
	switch {
	case r.timeout <= 0:
		return exit.WrongUsage("--timeout: expected a duration above zero such as 10m, found %s", r.timeout)
	case cmd.Flags().Changed("timeout") && !r.wait:
		return exit.WrongUsage("--timeout: expected --wait as well, found none")
	}
	kube, c, err := r.openCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	var secret corev1.Secret
	if err := kube.Get(cmd.Context(), client.ObjectKey{Namespace: c.Namespace, Name: c.ChildName()}, &secret); err != nil {
		return fmt.Errorf("%s: read its Secret %s: %w", describeCluster(c), c.ChildName(), err)
	}
	asked, value := c.Annotations[mocov1beta2.RotationAnnotation], mocov1beta2.RotateRequest
	if r.discard {
		value = mocov1beta2.DiscardRequest
	}
	switch hasTwo := secret.Annotations[mocov1beta2.RotationIDAnnotation] != ""; {
	case asked != "" && asked != value:
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected no other step of a rotation in progress, found %q; wait until it is done", describeCluster(c), asked)}
	case !r.discard && hasTwo && asked == "":
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected one password for each account, found that the previous passwords are still valid; "+
			"when no client uses them, run: kubectl moco rotate -n %s %s --discard", describeCluster(c), c.Namespace, c.Name)}
	case r.discard && !hasTwo:
		fmt.Fprintf(r.Out, "Every account of %s has one password.\n", describeCluster(c))
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, mocov1beta2.RotationAnnotation, value)
	target := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	if err := kube.Patch(cmd.Context(), target, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("annotate %s: %w", describeCluster(c), err)
	}
	if !r.wait {
		fmt.Fprintf(r.Out, "requested the step %s of the password rotation of %s\n", value, describeCluster(c))
		return nil
	}
	return r.await(cmd.Context(), kube, c, value)
}

func (r *rotation) await(ctx context.Context, kube *kubeClient, c *mocov1beta2.MySQLCluster, value string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var now mocov1beta2.MySQLCluster
		err := kube.Get(ctx, client.ObjectKeyFromObject(c), &now)
		return err == nil && now.Annotations[mocov1beta2.RotationAnnotation] == "", err
	})
	// Only the deadline of the wait counts here, because a single request can also exceed its own timeout.
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("%s: expected the step %s of the password rotation to end within %s, found the step unfinished; it waits for a healthy cluster: see kubectl moco status", describeCluster(c), value, r.timeout)}
	}
	if err != nil {
		return fmt.Errorf("%s: wait: %w", describeCluster(c), err)
	}
	// The manager removes the annotation when the step is done, but a user may have removed it earlier.
	var secret corev1.Secret
	if err := kube.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.ChildName()}, &secret); err != nil {
		return fmt.Errorf("%s: read its Secret %s: %w", describeCluster(c), c.ChildName(), err)
	}
	hasTwo := secret.Annotations[mocov1beta2.RotationIDAnnotation] != ""
	if hasTwo == (value == mocov1beta2.DiscardRequest) || mysqlusers.HasNextPasswords(secret.Data) {
		return fmt.Errorf("%s: the annotation %s was removed too early, before the step %s was done; run the command again", describeCluster(c), mocov1beta2.RotationAnnotation, value)
	}
	if value == mocov1beta2.DiscardRequest {
		fmt.Fprintf(r.Out, "discarded the old passwords of %s\n", describeCluster(c))
		return nil
	}
	fmt.Fprintf(r.Out, "rotated the passwords of %s: the Secret %s has the new ones, and the old ones stay valid until you run: kubectl moco rotate -n %s %s --discard\n",
		describeCluster(c), c.ChildName(), c.Namespace, c.Name)
	return nil
}
