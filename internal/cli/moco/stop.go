// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
)

func (a *commands) newStopCommand() *cobra.Command {
	clustering := a.newStopPartCommand(mysqlswitches.ClusteringPart(), "Stop failover, switchover and the repair of replication",
		`Stop failover, switchover and the repair of replication; no controller changes the instances any more.
An operation in progress is first brought to a safe point; --wait returns after that.
Changes to the spec are still applied to other objects, but no Pod is replaced; see stop reconciliation.`)
	reconciliation := a.newStopPartCommand(mysqlswitches.ReconciliationPart(), "Stop applying changes to the spec to other objects",
		`Stop applying changes to the spec to other objects, such as the StatefulSet. Clustering continues.`)
	return newGroupCommand("stop", "Stop clustering or reconciliation", clustering, reconciliation)
}

func (a *commands) newStopPartCommand(of mysqlswitches.Part, short, long string) *cobra.Command {
	p := &partCommand{commands: a, PartRequest: mysqlswitches.PartRequest{Part: of, IsStop: true}}
	var reason, until string
	cmd := &cobra.Command{
		Use: of.PartName + " (NAME... | -l SELECTOR)", Short: short, Long: long,
		Example: `  # One cluster, and wait until it has stopped
  kubectl moco stop ` + of.PartName + ` test --reason "compare replicas" --wait

  # Every cluster of a team, for forty minutes
  kubectl moco stop ` + of.PartName + ` -l team=a --until 40m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("reason") {
				p.Reason = &reason
			}
			if cmd.Flags().Changed("until") {
				now := a.clock.Now()
				resolved, err := ResolveUntil(a.Err, until, now)
				if err != nil {
					return err
				}
				parsed, err := ParseUntil(resolved, now)
				if err != nil {
					return err
				}
				p.Until = new(parsed.UTC().Format(time.RFC3339))
			}
			return p.runForClusters(cmd, args)
		},
	}
	p.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason for the stop, as one sentence")
	cmd.Flags().StringVar(&until, "until", "", "end of the stop: a time such as 18:00, tomorrow, monday or 2026-11-20T22:00:00Z, or a duration from now such as 40m")
	completion.OfferValues(cmd, "until", UntilWords()...)
	return cmd
}

func (a *commands) newStartCommand() *cobra.Command {
	clustering := &partCommand{commands: a, PartRequest: mysqlswitches.PartRequest{Part: mysqlswitches.ClusteringPart()}}
	cmd := clustering.newStartPartCommand("Resume failover, switchover and the repair of replication",
		`Resume failover, switchover and the repair of replication.
The manager checks the instances first. The start is refused, with exit code 4, if it would isolate instances, lose
transactions or change the primary. Reasons are transactions that the primary lacks or has purged, a second writable
instance, and a primary that lacks data or does not answer.`)
	cmd.Flags().BoolVar(&clustering.force, "force", false, "start in spite of the findings of the check, or without a check")
	reconciliation := &partCommand{commands: a, PartRequest: mysqlswitches.PartRequest{Part: mysqlswitches.ReconciliationPart()}}
	return newGroupCommand("start", "Start clustering or reconciliation", cmd,
		reconciliation.newStartPartCommand("Apply changes to the spec to other objects again", "Apply changes to the spec to other objects again, including changes made during the stop."))
}

func (p *partCommand) newStartPartCommand(short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: p.Part.PartName + " (NAME... | -l SELECTOR)", Short: short, Long: long,
		Example: `  # One cluster, and wait until it has started
  kubectl moco start ` + p.Part.PartName + ` test --wait

  # Every cluster of a team, as JSON
  kubectl moco start ` + p.Part.PartName + ` -l team=a -o json`,
		RunE: p.runForClusters,
	}
	p.addFlags(cmd)
	return cmd
}

func (a *commands) newSwitchoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "switchover NAME",
		Short: "Make a replica the primary",
		Long:  "Make a replica the primary, by an annotation on the primary's pod that is removed after the switchover.",
		Example: `  # Before the node of the primary is taken down
  kubectl moco switchover test`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE:              a.requestSwitchover,
	}
}

func (a *commands) requestSwitchover(cmd *cobra.Command, args []string) error {
	kube, c, err := a.openCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	switch {
	case c.Spec.Offline:
		return fmt.Errorf("%s: expected running instances, found spec.offline: true; set spec.offline to false first", describeCluster(c))
	case c.Spec.Replicas < 2:
		return fmt.Errorf("%s: expected several instances to choose from, found spec.replicas %d", describeCluster(c), c.Spec.Replicas)
	}
	primary, chosen := c.Status.Primary()
	if !chosen {
		return fmt.Errorf("%s: expected a primary to switch away from, found none chosen yet; wait until the cluster is healthy", describeCluster(c))
	}
	if err := kube.annotatePod(cmd.Context(), c, primary, mocov1beta2.DemoteAnnotation); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "requested a switchover of %s away from instance %d\n", describeCluster(c), primary)
	a.sayThatClusteringIsStopped(c)
	return nil
}

// annotatePod requests an operation by an annotation of an instance's Pod.
func (kube *kubeClient) annotatePod(ctx context.Context, c *mocov1beta2.MySQLCluster, index int, annotation string) error {
	// A merge patch of a single annotation needs no resource version, because it changes no other field.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, mysqlswitches.StopValue)
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.PodName(index)}}
	if err := kube.Patch(ctx, target, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("%s: annotate the pod %s: %w", describeCluster(c), c.PodName(index), err)
	}
	return nil
}

// sayThatClusteringIsStopped prints, if clustering is stopped, that the request takes effect when clustering is
// started.
func (a *commands) sayThatClusteringIsStopped(c *mocov1beta2.MySQLCluster) {
	if mysqlswitches.ClusteringPart().IsStopped(c.Annotations) {
		fmt.Fprintf(a.Out, "Clustering is stopped: the request takes effect when clustering is started, by %s\n", mysqlswitches.ClusteringPart().StartCommand(c))
	}
}
