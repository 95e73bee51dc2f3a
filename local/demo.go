// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/background"
	"github.com/torpor-dev/torpor/local/demo/cf"
	"github.com/torpor-dev/torpor/local/demo/hibernation"
	"github.com/torpor-dev/torpor/local/demo/runner"
	"github.com/torpor-dev/torpor/local/figures"
)

// demoCommand adds the common flags of all demos to a command, which sets up the configuration and calls run.
func demoCommand(cmd *cobra.Command, c *runner.Config, dir string, run func(*cobra.Command) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		bin := filepath.Dir(program)
		c.Local, c.Kubectl = program, filepath.Join(bin, "kubectl")
		if c.Torpor == "" {
			c.Torpor = filepath.Join(bin, "torpor")
		}
		c.Out, c.Colour = cmd.OutOrStdout(), wantsColour()
		return run(cmd)
	}
	cmd.Flags().StringVar(&c.Dir, "dir", dir, "folder for all files of the demo; emptied first")
	cmd.Flags().StringVar(&c.Torpor, "torpor", "", "path of the torpor program; if empty, torpor in the folder of this program")
	return cmd
}

// wantsColour reports whether the output goes to a terminal whose user has not declined colour (https://no-color.org).
func wantsColour() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}

func addClusterFlags(cmd *cobra.Command, c *hibernation.Config) *cobra.Command {
	cmd.Flags().StringVar(&c.CRDs, "crds", "config/crd", "folder of the custom resource definitions")
	cmd.Flags().DurationVar(&c.Latency, "latency", 3*time.Second, "how long the cloud takes to start or to stop a machine")
	return cmd
}

func hibernationDemoCommand() *cobra.Command {
	var c hibernation.Config
	cmd := demoCommand(&cobra.Command{
		Use:     "demo",
		Aliases: []string{"demo-hibernate"},
		Short:   "Hibernate and resume a real cluster, and print what was observed",
		Long: `Hibernate and resume a real cluster, and print what was observed.

Exit codes: 0 if every expected result was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo --dir .cache/demo`,
	}, &c.Config, "demo", func(cmd *cobra.Command) error { return hibernation.RunDemo(cmd.Context(), c) })
	cmd.Flags().DurationVar(&c.Certificates, "certificates", time.Minute, "how long the nodes' certificates are valid")
	return addClusterFlags(cmd, &c)
}

func recordDemoCommand() *cobra.Command {
	var c hibernation.Config
	cmd := demoCommand(&cobra.Command{
		Use:   "demo-record",
		Short: "Stop a real cluster as one person, ask why as another, extend the stop as a third, and wait for the automatic start",
		Long: `Stop a real cluster as one person, ask why as another, extend the stop as a third, and wait for the automatic start. It needs
kubectl-torpor next to this program.

Exit codes: 0 if every expected result was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo-record --dir .cache/demo-record`,
	}, &c.Config, "demo-record", func(cmd *cobra.Command) error { return hibernation.RunRecordDemo(cmd.Context(), c) })
	c.Certificates = time.Hour
	return addClusterFlags(cmd, &c)
}

func benchCommand() *cobra.Command {
	var (
		c      hibernation.Config
		rounds hibernation.Rounds
		out    string
	)
	cmd := demoCommand(&cobra.Command{
		Use:     "bench",
		Aliases: []string{"bench-hibernate"},
		Short:   "Measure the time, the requests and the memory that a hibernation and a resume of one cluster take",
		Long: `Measure the hibernation and the resume of one cluster: the time beyond the last machine's real change, the writes to
the hub's API server and the calls to the cloud of each transition, and the manager's memory.

Exit codes: 0 if everything was measured, 1 otherwise, regardless of the measured values.`,
		Example: `  local bench --dir .cache/bench/stage --bare-rounds 20 --out .cache/bench/hibernate-one.json`,
	}, &c.Config, "bench", func(cmd *cobra.Command) error {
		measured, err := hibernation.RunBenchmarks(cmd.Context(), c, rounds)
		if err != nil {
			return err
		}
		return saveFigures(cmd, measured, out)
	})
	f := cmd.Flags()
	f.StringVar(&out, "out", "hibernate-one.json", "file for the medians, as a flat JSON object")
	f.IntVar(&rounds.Real, "rounds", 3, "number of measurements of a real cluster whose certificates expire")
	f.IntVar(&rounds.Bare, "bare-rounds", 3, "number of measurements of a cluster with idle machines, 45 s each; a 95th percentile needs 20")
	f.DurationVar(&c.Certificates, "certificates", 30*time.Second, "how long the nodes' certificates are valid")
	return addClusterFlags(cmd, &c)
}

func fleetBenchCommand() *cobra.Command {
	var (
		c        hibernation.Config
		clusters []int
		accounts []int
		options  hibernation.FleetOptions
		out      string
	)
	cmd := demoCommand(&cobra.Command{
		Use:   "bench-fleet",
		Short: "Measure the time and the requests that concurrent hibernations and resumes of many clusters take",
		Long: `Measure concurrent hibernations and resumes of many clusters. Machines take 20 s. Calls take as long as EC2's and have
its limits. One server answers for the API servers of all clusters.

With --grouped-every and --pooled-every, some clusters have Auto Scaling groups, or controllers that replace machines.
The names of their figures end with "_mixed". A suspended group that terminates a machine is an error.

Exit codes: 0 if everything was measured, 1 otherwise. The figures up to an error are kept. The measured values do not affect the exit code.`,
		Example: `  local bench-fleet --dir .cache/bench/stage --clusters 100,1000 --accounts 1,10 --out .cache/bench/fleet.json

  # Every tenth cluster with an Auto Scaling group, and every tenth with a MachineHealthCheck and a NodePool
  local bench-fleet --dir .cache/bench/stage --clusters 1000 --accounts 1 --grouped-every 10 --pooled-every 10 --out .cache/bench/fleet-mixed.json

  # Ten thousand clusters, with what the manager costs while they hibernate
  local bench-fleet --dir .cache/bench/stage --clusters 10000 --accounts 1 --limit 90m --idle 10m --out .cache/bench/fleet-10000.json`,
	}, &c.Config, "bench", func(cmd *cobra.Command) error {
		var sizes []hibernation.FleetSize
		for _, n := range clusters {
			for _, a := range accounts {
				sizes = append(sizes, hibernation.FleetSize{Clusters: n, Accounts: a})
			}
		}
		measured, err := hibernation.RunFleet(cmd.Context(), c, sizes, options)
		return errors.Join(err, saveFigures(cmd, measured, out))
	})
	f := cmd.Flags()
	f.IntSliceVar(&clusters, "clusters", []int{100, 1000}, "numbers of clusters; each combination with --accounts is measured")
	f.IntSliceVar(&accounts, "accounts", []int{1, 10}, "numbers of accounts; each combination with --clusters is measured")
	f.DurationVar(&options.Limit, "limit", 20*time.Minute, "how long all clusters may take to reach a power state")
	f.DurationVar(&options.Idle, "idle", 0, "how long all clusters hibernate before they resume; the manager's CPU time in the second half is measured")
	f.IntVar(&options.TargetAddresses, "target-addresses", 1, "number of addresses of the clusters' API servers, each with a separate certificate")
	f.StringVar(&options.Pprof, "pprof-address", "0", "host:port of the manager's profiles; 0 serves none")
	f.IntVar(&options.GroupedEvery, "grouped-every", 0, "in every Nth cluster, half of the machines are in an Auto Scaling group; groups are alternately suspended and scaled to zero; 0 creates no groups")
	f.IntVar(&options.PooledEvery, "pooled-every", 0, "every Nth cluster has a MachineHealthCheck of Cluster API, which is paused, and a NodePool of Karpenter; 0 creates none")
	f.StringVar(&out, "out", "fleet.json", "file for the medians, as a flat JSON object")
	f.StringVar(&c.CRDs, "crds", "config/crd", "folder of the custom resource definitions")
	return cmd
}

func saveFigures(cmd *cobra.Command, measured figures.Figures, out string) error {
	measured.PrintTable(cmd.OutOrStdout())
	if err := measured.SaveMedians(out); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nwritten to %s\n", out)
	return nil
}

func cfDemoCommand() *cobra.Command {
	var c cf.Config
	cmd := demoCommand(&cobra.Command{
		Use:   "demo-cf",
		Short: "Push, restart, roll and delete an app through the CF API, and print what was observed",
		Long: `Push an app with a route, restart it, roll it, cancel, roll back and delete it through the CF API, and print what was
observed, with the lines of curl for it. Meanwhile clients send requests to its address, and failed requests are counted.
The cf client is used, too, if it is on the PATH or in CF_CLI.

Exit codes: 0 if every expected result was observed, 1 otherwise. Everything that was started is stopped in any case.`,
		Example: `  local demo-cf --dir .cache/demo-cf`,
	}, &c.Config, "demo-cf", func(cmd *cobra.Command) error {
		if c.CF = os.Getenv("CF_CLI"); c.CF == "" {
			c.CF, _ = exec.LookPath("cf") // Without the cf client, the demo skips the step that uses it.
		}
		var err error
		if c.GatewayAPI, err = findGatewayAPI(cmd.Context()); err != nil {
			return err
		}
		return cf.RunDemo(cmd.Context(), c)
	})
	cmd.Flags().StringVar(&c.ConfigDir, "config", "config", "folder of the manifests")
	return cmd
}

// findGatewayAPI returns the folder of the Go module of the Gateway API.
func findGatewayAPI(ctx context.Context) (string, error) {
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return "", fmt.Errorf("find the CustomResourceDefinitions of the Gateway API among torpor's modules: %w", err)
	}
	return strings.TrimSpace(string(module)), nil
}

const standingFile = "standing"

func upCommand() *cobra.Command {
	var c hibernation.Config
	var foreground, apps bool
	cmd := demoCommand(&cobra.Command{
		Use:   "up",
		Short: "Start the environment of a demo and keep it running",
		Long: `Start the environment of the hibernation demo (a hub, a cloud, a cluster and torpor manager) and keep it running in the background, or
with --apps the environment of the app demo, with an app in it.

Exit codes: 0 when the environment is ready, 1 otherwise.`,
		Example: "  local up --dir .cache/up\n  local down --dir .cache/up",
	}, &c.Config, "up", func(cmd *cobra.Command) error {
		c.Certificates = time.Hour
		stands := func() { _ = os.WriteFile(filepath.Join(c.Dir, standingFile), nil, 0o600) }
		switch {
		case !foreground:
			return keepInBackground(cmd.Context(), c, apps)
		case apps:
			gatewayAPI, err := findGatewayAPI(cmd.Context())
			if err != nil {
				return err
			}
			return cf.KeepEnvironment(cmd.Context(), cf.Config{Config: c.Config, ConfigDir: filepath.Dir(c.CRDs), GatewayAPI: gatewayAPI}, stands)
		default:
			return hibernation.KeepEnvironment(cmd.Context(), c, stands)
		}
	})
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground until interrupted")
	cmd.Flags().BoolVar(&apps, "apps", false, "start the environment of the app demo, with a gateway, the CF API and an app")
	return addClusterFlags(cmd, &c)
}

func keepInBackground(ctx context.Context, c hibernation.Config, apps bool) error {
	b, err := background.NewProgram(c.Dir, standingFile)
	if err != nil {
		return err
	}
	argv := []string{c.Local, "up", "--foreground", "--dir", b.Dir, "--torpor", c.Torpor, "--crds", c.CRDs, "--latency", c.Latency.String()}
	parts, try := "hub, cloud, cluster, manager", clusterCommands
	if apps {
		argv = append(argv, "--apps")
		parts, try = "hub, node, gateway, manager, CF API, app", appCommands
	}
	fmt.Fprintf(c.Out, "starting the environment: %s (about 20 seconds)\n", parts)
	if err := b.Start(ctx, argv...); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "the environment is ready. Try:\n\n"+try+"\nkubectl is bundled in %[2]s. Stop everything with: make down\n", b.Dir, filepath.Dir(c.Local))
	return nil
}

// Suggested commands for each environment. Their arguments are the folders of the environment and of the programs.
const (
	clusterCommands = `  export KUBECONFIG=%[1]s/hub/admin.kubeconfig PATH=%[2]s:$PATH
  kubectl get cd
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Hibernating}'
  kubectl wait cd mycluster --for=jsonpath='{.status.powerState}'=Hibernating
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Running}'
  kubectl get events
`
	appCommands = `  . %[1]s/env
  kubectl get cfapps
  kubectl get pods
`
)

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop the environment that up started",
		Example: "  local down --dir .cache/up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stopBackground(cmd, dir, standingFile)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "up", "folder that was passed to up")
	return cmd
}

func stopBackground(cmd *cobra.Command, dir, readyFile string) error {
	b, err := background.NewProgram(dir, readyFile)
	if err != nil {
		return err
	}
	return b.Stop(cmd.Context(), cmd.OutOrStdout())
}
