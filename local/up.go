// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/background"
	"github.com/torpor-dev/torpor/local/demo/hibernation"
)

const standingFile = "standing"

func upCommand() *cobra.Command {
	var c hibernation.Config
	var foreground bool
	cmd := demoCommand(&cobra.Command{
		Use:   "up",
		Short: "Build the stage of the demo and keep it",
		Long: `Build the stage of the demo, a hub, a cloud, a cluster and torpor manager, and keep it in the background.

Exit codes: 0 when everything stands, 1 otherwise.`,
		Example: "  local up --dir .cache/up\n  local down --dir .cache/up",
	}, &c.Config, "up", func(cmd *cobra.Command) error {
		c.Certificates = time.Hour
		if !foreground {
			return keepInBackground(cmd.Context(), c)
		}
		return hibernation.KeepEnvironment(cmd.Context(), c, func() {
			_ = os.WriteFile(filepath.Join(c.Dir, standingFile), nil, 0o600)
		})
	})
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground until told to stop")
	return addClusterFlags(cmd, &c)
}

func keepInBackground(ctx context.Context, c hibernation.Config) error {
	b, err := background.NewProgram(c.Dir, standingFile)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "building the stage: hub, cloud, cluster, manager (about 20 seconds)")
	argv := []string{c.Local, "up", "--foreground", "--dir", b.Dir, "--torpor", c.Torpor, "--crds", c.CRDs, "--latency", c.Latency.String()}
	if err := b.Start(ctx, argv...); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, `everything stands. Try:

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
			return stopBackground(cmd, dir, standingFile)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "up", "folder that up was given")
	return cmd
}

func stopBackground(cmd *cobra.Command, dir, readyFile string) error {
	b, err := background.NewProgram(dir, readyFile)
	if err != nil {
		return err
	}
	return b.Stop(cmd.Context(), cmd.OutOrStdout())
}
