// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

func (a *commands) newSwitchoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "switchover NAME",
		Short: "Make a replica the primary",
		Long:  "Make a replica the primary, by an annotation on the primary's pod that is removed when it is done.",
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
		return fmt.Errorf("%s: expected instances that run, found spec.offline; set it to false first", describeCluster(c))
	case c.Spec.Replicas < 2:
		return fmt.Errorf("%s: expected several instances to choose from, found spec.replicas %d", describeCluster(c), c.Spec.Replicas)
	}
	primary, chosen := c.Status.Primary()
	if !chosen {
		return fmt.Errorf("%s: expected a primary to switch away from, found that none is chosen yet; wait until the cluster is healthy", describeCluster(c))
	}
	pod := c.PodName(primary)
	// A merge patch of the annotation alone needs no resource version: it overwrites no change of another writer.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, mocov1beta2.DemoteAnnotation, stopValue)
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: pod}}
	if err := kube.Patch(cmd.Context(), target, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("%s: annotate the primary's pod %s: %w", describeCluster(c), pod, err)
	}
	fmt.Fprintf(a.Out, "asked for a switchover of %s away from instance %d\n", describeCluster(c), primary)
	if clusteringPart().stoppedAt(c.Annotations, a.clock.Now()) {
		fmt.Fprintf(a.Out, "Clustering is stopped: it happens when clustering is started, by %s\n", startCommandLine(c, clusteringPart()))
	}
	return nil
}
