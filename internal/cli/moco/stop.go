// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

func (a *commands) newStopCommand() *cobra.Command {
	clustering := a.newStopPartCommand(clusteringPart(), "Stop failover, switchover and the repair of replication",
		`Stop failover, switchover and the repair of replication; nothing changes an instance any more.
An operation that is under way is brought to a safe point first: --wait returns after that.
Spec changes still reach the pods; see stop reconciliation.`)
	reconciliation := a.newStopPartCommand(reconciliationPart(), "Keep changes of the spec from reaching other objects",
		`Keep changes of the spec from reaching other objects, such as the StatefulSet. Clustering goes on.`)
	return newGroupCommand("stop", "Stop clustering or reconciliation", clustering, reconciliation)
}

func (a *commands) newStopPartCommand(of clusterPart, short, long string) *cobra.Command {
	p := &partCommand{commands: a, partRequest: partRequest{part: of, stop: true}}
	var reason, until string
	cmd := &cobra.Command{
		Use: of.name + " (NAME... | -l SELECTOR)", Short: short, Long: long,
		Example: `  # One cluster, and return when it has stopped
  kubectl moco stop ` + of.name + ` test --reason "compare replicas" --wait

  # Every cluster of a team, for forty minutes
  kubectl moco stop ` + of.name + ` -l team=a --until 40m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("reason") {
				p.reason = &reason
			}
			if cmd.Flags().Changed("until") {
				parsed, err := parseUntil(until, a.clock.Now())
				if err != nil {
					return err
				}
				p.until = &parsed
			}
			return p.runForClusters(cmd, args)
		},
	}
	p.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a sentence for people; both parts share one")
	cmd.Flags().StringVar(&until, "until", "", "when the stop ends by itself: a time such as 2026-11-20T22:00:00Z, or a duration from now such as 40m; both parts share one")
	return cmd
}

func (a *commands) newStartCommand() *cobra.Command {
	clustering := &partCommand{commands: a, partRequest: partRequest{part: clusteringPart()}}
	cmd := clustering.newStartPartCommand("Let failover, switchover and the repair of replication go on",
		`Let failover, switchover and the repair of replication go on.
It is refused, with exit code 4, if the status shows that a start would isolate instances, lose transactions or
change the primary: transactions that the primary does not know, transactions ahead of the primary or deleted there, a second instance
that can be written to, a primary that lacks data or does not answer.`)
	cmd.Flags().BoolVar(&clustering.force, "force", false, "start in spite of what the status shows")
	reconciliation := &partCommand{commands: a, partRequest: partRequest{part: reconciliationPart()}}
	return newGroupCommand("start", "Start clustering or reconciliation", cmd,
		reconciliation.newStartPartCommand("Let changes of the spec reach other objects", "Let changes of the spec reach other objects, also those made meanwhile."))
}

func (p *partCommand) newStartPartCommand(short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: p.part.name + " (NAME... | -l SELECTOR)", Short: short, Long: long,
		Example: `  # One cluster, and return when it goes on
  kubectl moco start ` + p.part.name + ` test --wait

  # Every cluster of a team, as JSON
  kubectl moco start ` + p.part.name + ` -l team=a -o json`,
		RunE: p.runForClusters,
	}
	p.addFlags(cmd)
	return cmd
}

// findStartRisks returns what a start of clustering would meet, as far as the status shows it.
func findStartRisks(c *mocov1beta2.MySQLCluster) ([]clustering.Finding, error) {
	if len(c.Status.Instances) == 0 {
		return []clustering.Finding{{
			Severity: clustering.Warn, Message: "the status has no instances, so nothing could be checked", Remedy: "look at the replication yourself",
		}}, nil
	}
	o, err := observedFromStatus(c)
	if err != nil {
		return nil, err
	}
	found := clustering.CheckStart(o)
	for _, s := range c.Status.Instances {
		judged := s.Writable == nil || *s.Writable || s.ErrantGTIDs != "" || s.AheadGTIDs != "" || s.MissingGTIDs != ""
		if s.Message != "" && !judged {
			found = append(found, clustering.Finding{
				Severity: clustering.Warn, Message: fmt.Sprintf("instance %d: %s", s.Ordinal, s.Message), Remedy: "do what its message says",
			})
		}
	}
	return found, nil
}

// observedFromStatus turns a status back into what the decisions look at. What the status says of transactions is kept.
func observedFromStatus(c *mocov1beta2.MySQLCluster) (clustering.Observed, error) {
	n, p := int(c.Spec.Replicas), clustering.NoInstance
	if i, chosen := c.Status.Primary(); chosen {
		p = i
	}
	o := clustering.Observed{
		Replicas: n, Primary: p, Instances: make([]clustering.Instance, n),
		Source: clustering.OneTimeOperation{Wanted: c.Spec.ReplicationSourceSecretName != nil, Done: c.Status.Cloned},
	}
	var uuid string
	var executed gtid.Set
	missing := make([]gtid.Set, n)
	for _, s := range c.Status.Instances {
		if s.Ordinal < 0 || s.Ordinal >= n {
			continue
		}
		j, err := parseJudgedGTIDs(s)
		if err != nil {
			return o, fmt.Errorf("read the status of instance %d: %w", s.Ordinal, err)
		}
		missing[s.Ordinal] = j.missing
		if s.Ordinal == p {
			if executed, err = gtid.Parse(s.ExecutedGTIDs); err != nil {
				return o, fmt.Errorf("read the status of instance %d: %w", s.Ordinal, err)
			}
		}
		// Ahead are only transactions under the primary's UUID, which the status does not name.
		if first, _, ok := strings.Cut(j.ahead.String(), ":"); ok {
			uuid = first
		}
		o.Instances[s.Ordinal] = instanceFromStatus(s, j)
	}
	for i := range o.Instances {
		o.Instances[i].Executed = o.Instances[i].Executed.Union(executed.Subtract(missing[i]))
	}
	if p == clustering.NoInstance || p >= n {
		return o, nil
	}
	for _, deleted := range missing {
		o.Instances[p].Purged = o.Instances[p].Purged.Union(deleted)
	}
	o.Instances[p].UUID = uuid
	if executed.IsEmpty() {
		return o, addExecutedGTIDs(o.Instances, c.Status.Instances)
	}
	return o, nil
}

// addExecutedGTIDs is for an empty primary, with which nothing was compared: what the others have is what it lost.
func addExecutedGTIDs(into []clustering.Instance, from []mocov1beta2.InstanceStatus) error {
	for _, s := range from {
		if s.Ordinal < 0 || s.Ordinal >= len(into) {
			continue
		}
		held, err := gtid.Parse(s.ExecutedGTIDs)
		if err != nil {
			return fmt.Errorf("read the status of instance %d: executedGTIDs: %w", s.Ordinal, err)
		}
		into[s.Ordinal].Executed = into[s.Ordinal].Executed.Union(held)
	}
	return nil
}

// judgedGTIDs are the transactions of an instance that the status sorts into kinds.
type judgedGTIDs struct{ errant, ahead, missing gtid.Set }

func parseJudgedGTIDs(s mocov1beta2.InstanceStatus) (judgedGTIDs, error) {
	var j judgedGTIDs
	for _, set := range []struct {
		field, text string
		into        *gtid.Set
	}{
		{"errantGTIDs", s.ErrantGTIDs, &j.errant}, {"aheadGTIDs", s.AheadGTIDs, &j.ahead}, {"missingGTIDs", s.MissingGTIDs, &j.missing},
	} {
		var err error
		if *set.into, err = gtid.Parse(set.text); err != nil {
			return j, fmt.Errorf("%s: %w", set.field, err)
		}
	}
	return j, nil
}

// instanceFromStatus returns one instance with what it executed and the primary did not.
func instanceFromStatus(s mocov1beta2.InstanceStatus, j judgedGTIDs) clustering.Instance {
	readOnly := s.Writable != nil && !*s.Writable
	return clustering.Instance{
		Reachable: s.Writable != nil, ReadOnly: readOnly, SuperReadOnly: readOnly, Stopped: s.Stopped,
		KnownErrant: !j.errant.IsEmpty(), Executed: j.errant.Union(j.ahead),
		Channel: clustering.ReplicationChannel{Present: s.SQLThread != "", IO: parseThread(s.IOThread), SQL: parseThread(s.SQLThread)},
	}
}

func parseThread(state string) clustering.ThreadState {
	switch state {
	case "Yes":
		return clustering.Running
	case "Connecting":
		return clustering.Connecting
	default:
		return clustering.Stopped
	}
}

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
