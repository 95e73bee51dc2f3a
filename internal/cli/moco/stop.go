// SPDX-License-Identifier: Apache-2.0

package moco

import "github.com/spf13/cobra"

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
