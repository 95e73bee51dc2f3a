// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

func (a *commands) newRecloneCommand() *cobra.Command {
	index, force := -1, false
	cmd := &cobra.Command{
		Use:   "reclone NAME --index N",
		Short: "Replace a replica with a new copy of the primary",
		Long: `Replace a replica with a new copy of the primary, by an annotation on its pod that is removed when the replica is empty.
The copy waits until the primary is in service and enough other replicas acknowledge. It discards transactions that only
the replica has. Without --force such a copy is refused with exit code 4, and the transactions are printed. The primary
may have acknowledged and lost those with its own UUID; no primary acknowledged the others. Afterwards status.instances
lists them as discardedGTIDs.`,
		Example: `  # After a failover, when instance 2 has transactions that the primary does not have
  kubectl moco reclone test --index 2 --force`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.requestReclone(cmd, args[0], index, force) },
	}
	cmd.Flags().IntVar(&index, "index", -1, "ordinal of the replica")
	cmd.Flags().BoolVar(&force, "force", false, "discard transactions that the primary does not have")
	return cmd
}

func (a *commands) requestReclone(cmd *cobra.Command, name string, index int, force bool) error {
	kube, c, err := a.openCluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	primary, chosen := c.Status.Primary()
	switch {
	case index < 0 || index >= int(c.Spec.Replicas):
		return exit.WrongUsage("--index: expected an instance of %s, which are 0 to %d, found %d", describeCluster(c), c.Spec.Replicas-1, index)
	case !chosen:
		return fmt.Errorf("%s: expected a primary to copy, found none chosen yet; wait until the cluster is healthy", describeCluster(c))
	case index == primary:
		return fmt.Errorf("%s: expected a replica, found that instance %d is the primary; switch over first", describeCluster(c), index)
	}
	if lost := describeDiscarded(c, index); lost != "" && !force {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: instance %d has transactions that the primary does not have, and a copy of the primary discards them: %s; use --force if these transactions are not needed", describeCluster(c), index, lost)}
	}
	if err := kube.annotatePod(cmd.Context(), c, index, mocov1beta2.RecloneAnnotation); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "requested a copy of instance %d into instance %d of %s\n", primary, index, describeCluster(c))
	a.sayThatClusteringIsStopped(c)
	return nil
}

// describeDiscarded returns the transactions that only an instance has according to the status, or "" if there are none.
func describeDiscarded(c *mocov1beta2.MySQLCluster, index int) string {
	var sets []string
	for _, i := range c.Status.Instances {
		for _, set := range []string{i.AheadGTIDs, i.ErrantGTIDs} {
			if i.Ordinal == index && set != "" {
				sets = append(sets, set)
			}
		}
	}
	if len(sets) == 0 && slices.Contains(c.Status.ErrantReplicaList, index) {
		return "unknown while the instance or the primary does not answer"
	}
	return strings.Join(sets, ",")
}
