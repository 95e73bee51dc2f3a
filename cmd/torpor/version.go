// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/buildinfo"
)

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, its date and the version of Go",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildinfo.ReadVersion()
			switch output {
			case "":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "torpor %s, commit %s of %s, %s\n", v.Version, v.Commit, v.Date, v.Go)
				return err
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			return fmt.Errorf("--output: expected json or nothing, found %q", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; empty prints one line")
	return cmd
}
