// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/background"
	"github.com/torpor-dev/torpor/local/demo/hibernation"
)

const stageFile = "standing"

func upCommand() *cobra.Command {
	var c hibernation.Config
	var foreground bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build the stage of the demo and keep it",
		Long: `Build the stage of the demo, a hub, a cloud, a cluster and torpor manager, and keep it in the background.

Exit codes: 0 when everything stands, 1 otherwise.`,
		Example: "  local up --dir .cache/up\n  local down --dir .cache/up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDemo(cmd, &c); err != nil {
				return err
			}
			c.Certificates = time.Hour
			if !foreground {
				return detachStage(cmd, c)
			}
			return hibernation.Up(cmd.Context(), c, func() {
				_ = os.WriteFile(filepath.Join(c.Dir, stageFile), nil, 0o600)
			})
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", "up", "folder for everything that is made; emptied first")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground until told to stop")
	demoFlags(cmd, &c)
	return cmd
}

// detachStage keeps the stage in the background.
func detachStage(cmd *cobra.Command, c hibernation.Config) error {
	b, err := background.NewProgram(c.Dir, stageFile)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "building the stage: hub, cloud, cluster, manager (about 20 seconds)")
	if err := b.Start(cmd.Context(), c.Local, "up", "--foreground", "--dir", b.Dir, "--torpor", c.Torpor, "--crds", c.CRDs, "--latency", c.Latency.String()); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), `everything stands. Try:

  export KUBECONFIG=%[1]s/hub/admin.kubeconfig PATH=%[2]s:$PATH
  kubectl get cd
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Hibernating}'
  kubectl wait cd mycluster --for=jsonpath='{.status.powerState}'=Hibernating
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Running}'
  kubectl get events

kubectl is bundled in %[2]s. Stop everything with: make down
`, b.Dir, filepath.Dir(c.Local))
	return nil
}

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop what up has built",
		Example: "  local down --dir .cache/up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := background.NewProgram(dir, stageFile)
			if err != nil {
				return err
			}
			return b.Stop(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "up", "folder that up was given")
	return cmd
}
