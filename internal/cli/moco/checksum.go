// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco/checksum"
)

// checksumTimeout bounds all tables together.
const checksumTimeout = 10 * time.Minute

func (a *commands) newChecksumCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "checksum NAME",
		Short: "Compare the rows of all instances at one GTID set",
		Long: `Compare the rows of all instances at one GTID set, since equal GTIDs do not prove equal rows.
It only reads, as moco-readonly: it opens a snapshot in every instance, and if all of them have executed the same
transactions it runs CHECKSUM TABLE on every InnoDB table of users, one after the other. Meanwhile the instances have
to read all rows, and changes of those tables' definitions wait. If it is interrupted, a server ends the table that it
has begun.
It cannot compare instances that do not answer, instances that never are at one GTID set, different versions of MySQL,
and tables of other engines; it says so, and the exit code is 1 then, as it is if rows differ.`,
		Example: `  # After GTIDs were moved by hand, before clustering starts again
  kubectl moco checksum test`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return exit.WrongUsage("--timeout: expected a duration above zero such as 10m, found %s", timeout)
			}
			kube, c, err := a.openCluster(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			p := checksum.TableComparison{Out: a.Out, Clock: a.clock, RunMysql: func(ctx context.Context, i int, args []string, in io.Reader, out io.Writer) error {
				return a.runClient(ctx, kube, c.PodName(i), args, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: a.Err})
			}}
			return p.CompareInstances(ctx, int(c.Spec.Replicas))
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", checksumTimeout, "how long it may take")
	return cmd
}

// runClient runs the program mysql in a pod.
func (a *commands) runClient(ctx context.Context, kube *kubeClient, pod string, args []string, o remotecommand.StreamOptions) error {
	command := (&mysqlSession{commands: a, user: defaultUser}).commandLine(args)
	executor, err := kube.newExecutor(pod, &corev1.PodExecOptions{Container: mocov1beta2.MysqldContainer, Command: command, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	if err := executor.StreamWithContext(ctx, o); err != nil {
		return fmt.Errorf("run mysql in pod %s: %w", pod, err)
	}
	return nil
}
