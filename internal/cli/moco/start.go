// SPDX-License-Identifier: Apache-2.0

package moco

import "github.com/spf13/cobra"

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
