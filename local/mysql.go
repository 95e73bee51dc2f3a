// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/debian"
	"github.com/torpor-dev/torpor/local/mysql"
)

func mysqlCommand() *cobra.Command {
	var dir string
	var optional bool
	c := &cobra.Command{
		Use:   "mysql",
		Short: "Fetch a real MySQL server into a folder; nothing is installed",
		Example: `  local mysql --dir .cache/mysql
  local mysql --dir .cache/mysql --optional`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := mysql.FetchServer(c.Context(), dir, c.OutOrStdout())
			if optional && errors.Is(err, debian.ErrUnavailable) {
				fmt.Fprintln(c.OutOrStdout(), "no MySQL, so tests with a real one are skipped:", err)
				return nil
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", ".cache/mysql", "folder for the server and its client")
	c.Flags().BoolVar(&optional, "optional", false, "only say so where Debian's packages cannot be had")
	return c
}
