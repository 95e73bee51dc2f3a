// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/demo/cf"
	"github.com/torpor-dev/torpor/local/demo/hibernation"
)

func demoFlags(cmd *cobra.Command, c *hibernation.Config) {
	f := cmd.Flags()
	f.StringVar(&c.Torpor, "torpor", "", "path of the torpor program; beside this program if empty")
	f.StringVar(&c.CRDs, "crds", "config/crd", "folder of the custom resource definitions")
	f.DurationVar(&c.Latency, "latency", 3*time.Second, "how long the cloud takes to start or to stop a machine")
}

func completeDemo(cmd *cobra.Command, c *hibernation.Config) error {
	c.Out, c.Colour = cmd.OutOrStdout(), wantsColour()
	return findPrograms(&c.Local, &c.Kubectl, &c.Torpor)
}

// findPrograms finds this program and those beside it; torpor only if it is not given.
func findPrograms(local, kubectl, torpor *string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	bin := filepath.Dir(program)
	*local, *kubectl = program, filepath.Join(bin, "kubectl")
	if *torpor == "" {
		*torpor = filepath.Join(bin, "torpor")
	}
	return nil
}

// wantsColour says whether a terminal reads along that wants it.
func wantsColour() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}

func demoCommand() *cobra.Command {
	var c hibernation.Config
	cmd := &cobra.Command{
		Use:     "demo",
		Aliases: []string{"demo-hibernate"},
		Short:   "Hibernate and wake a real cluster, and print what was observed",
		Long: `Hibernate and wake a real cluster, and print what was observed.

Exit codes: 0 if all of it was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo --dir .cache/demo`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDemo(cmd, &c); err != nil {
				return err
			}
			return hibernation.Demo(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", "demo", "folder for everything that the demo makes; emptied first")
	cmd.Flags().DurationVar(&c.Certificates, "certificates", time.Minute, "how long the nodes' certificates are valid")
	demoFlags(cmd, &c)
	return cmd
}

func demoCFCommand() *cobra.Command {
	var c cf.Config
	cmd := &cobra.Command{
		Use:   "demo-cf",
		Short: "Push, restart, roll and delete an app through the CF API, and print what was observed",
		Long: `Push, restart, roll and delete an app through the CF API, and print what was observed, with the lines of curl for it.
The cf client is used too where it is on the PATH or in CF_CLI.

Exit codes: 0 if all of it was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo-cf --dir .cache/demo-cf`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := findPrograms(&c.Local, &c.Kubectl, &c.Torpor); err != nil {
				return err
			}
			if c.CF = os.Getenv("CF_CLI"); c.CF == "" {
				c.CF, _ = exec.LookPath("cf") // Without one the story goes on without it.
			}
			c.Out, c.Colour = cmd.OutOrStdout(), wantsColour()
			return cf.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "demo-cf", "folder for everything that the demo makes; emptied first")
	f.StringVar(&c.Torpor, "torpor", "", "path of the torpor program; beside this program if empty")
	f.StringVar(&c.ConfigDir, "config", "config", "folder of the manifests")
	return cmd
}
