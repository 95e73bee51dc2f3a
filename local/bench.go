// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/demo/hibernation"
)

func benchCommand() *cobra.Command {
	var (
		c      hibernation.Config
		rounds int
		out    string
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how one cluster hibernates and resumes",
		Long: `Measure how one cluster hibernates and resumes: the time beyond the last machine's real change, the writes to the
hub's API server and the calls to the cloud of each transition, and the manager's memory.

Exit codes: 0 if everything was measured, 1 otherwise. Figures are not judged here.`,
		Example: `  local bench --dir .cache/bench/stage --rounds 3 --out .cache/bench/hibernate-one.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDemo(cmd, &c); err != nil {
				return err
			}
			measured, err := hibernation.Bench(cmd.Context(), c, rounds)
			if err != nil {
				return err
			}
			measured.PrintTable(cmd.OutOrStdout())
			if err := measured.SaveMedians(out); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\nwritten to %s\n", out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "bench", "folder for everything that is made; emptied first")
	f.StringVar(&out, "out", "hibernate-one.json", "file for the medians, a flat JSON object")
	f.IntVar(&rounds, "rounds", 3, "how often each transition is measured")
	f.DurationVar(&c.Certificates, "certificates", 30*time.Second, "how long the nodes' certificates are valid")
	demoFlags(cmd, &c)
	return cmd
}
