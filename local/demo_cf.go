// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/cfstory"
)

func demoCFCommand() *cobra.Command {
	var c cfstory.Config
	cmd := &cobra.Command{
		Use:   "demo-cf",
		Short: "Push, restart, roll and delete an app through the CF API, and print what was observed",
		Long: `Push, restart, roll and delete an app through the CF API, and print what was observed, with the lines of curl for it.
The cf client is used too where it is on the PATH or in CF_CLI.

Exit codes: 0 if all of it was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo-cf --dir .cache/demo-cf`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			bin := filepath.Dir(program)
			c.Local, c.Kubectl = program, filepath.Join(bin, "kubectl")
			if c.Torpor == "" {
				c.Torpor = filepath.Join(bin, "torpor")
			}
			if c.CF = os.Getenv("CF_CLI"); c.CF == "" {
				c.CF, _ = exec.LookPath("cf") // Without one the story goes on without it.
			}
			c.Out = cmd.OutOrStdout()
			info, err := os.Stdout.Stat()
			c.Colour = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
			return cfstory.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "demo-cf", "folder for everything that the demo makes; emptied first")
	f.StringVar(&c.Torpor, "torpor", "", "path of the torpor program; beside this program if empty")
	f.StringVar(&c.ConfigDir, "config", "config", "folder of the manifests")
	return cmd
}
