// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/manager"
)

func rootCommand(logs io.Writer, env func(string) string) *cobra.Command {
	root := &cobra.Command{
		Use:           "torpor",
		Short:         "The off switch for Kubernetes",
		Version:       buildinfo.ReadVersion().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(managerCommand(logs, env), backupCommand(logs, env), restoreCommand(logs, env), shipBinlogsCommand(logs, env), copyCommand(), cfAPICommand(logs), takeOverCommand(os.Stdout), uninstallCommand(os.Stdout), versionCommand(), installCommand(), checkCommand())
	return root
}

func managerCommand(logs io.Writer, env func(string) string) *cobra.Command {
	o := manager.Options{AWSEndpoint: env("AWS_ENDPOINT_URL")}
	var kubeconfig string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers; each starts when its API is installed and stops when it is removed",
		Long: `Run the controllers. None of the kinds needs to be installed: a controller starts when its kind is served
and stops when the kind is removed, while the manager goes on.

Exit codes: 0 after a stop by signal, 1 after an error.
Environment: AWS_ENDPOINT_URL replaces EC2's endpoint for every cluster whose Secret has no endpoint_url; TORPOR_IMAGE is the
default of --image; of TORPOR_MEMORY_LIMIT, in bytes, Go uses 70 percent, unless GOMEMLIMIT says otherwise.`,
		Example: `  # Inside a cluster
  torpor manager --leader-elect --namespace torpor-system

  # On a laptop, against the hub of a kubeconfig
  torpor manager --kubeconfig ./hub/admin.kubeconfig --metrics-address 127.0.0.1:8080 --metrics-insecure --probe-address 127.0.0.1:8081`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "hub")
			if err != nil {
				return err
			}
			o.Log = newLogger(logs, verbose)
			return manager.Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub; empty uses KUBECONFIG, then the cluster this runs in")
	f.StringVar(&o.MetricsAddress, "metrics-address", "127.0.0.1:8080", `host:port of the metrics, "0" for none`)
	f.BoolVar(&o.InsecureMetrics, "metrics-insecure", false, "serve the metrics by plain http to everybody, instead of by TLS to who has the right to get /metrics")
	f.StringVar(&o.PprofAddress, "pprof-address", "0", `host:port of profiles, by plain http to everybody, "0" for none`)
	f.StringVar(&o.ProbeAddress, "probe-address", "127.0.0.1:8081", `host:port of /healthz and /readyz, "0" for none`)
	f.StringSliceVar(&o.Controllers, "controllers", []string{"*"},
		"controllers to run: * for all, NAME, and -NAME for all but that one; the names are "+strings.Join(manager.ControllerNames(), ", "))
	addWebhookFlags(f, &o.Webhook)
	addPageFlags(f, &o.Page)
	f.StringSliceVar(&o.TakeOver, "take-over", nil, "controllers that also handle objects which Hive, MOCO, Korifi or eirini-controller writes; see docs/migration.md")
	f.StringSliceVar(&o.WatchNamespaces, "watch-namespaces", nil, "the only namespaces whose objects are handled; none means all")
	f.BoolVar(&o.LeaderElection, "leader-elect", false, "let only one of several managers act")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the leader's Lease")
	f.BoolVar(&o.IsolateSpaces, "isolate-spaces", false, "give each space of CF a NetworkPolicy by which its Pods are reached from that space only; let in routers by policies of your own")
	f.StringVar(&o.RouteGateway, "route-gateway", "", "NAMESPACE/NAME of the Gateway that serves the addresses of apps, as HTTPRoutes; empty makes Ingresses of them")
	f.StringVar(&o.RouteIngressClass, "route-ingress-class", "", "class of those Ingresses; empty for the cluster's default")
	f.BoolVar(&o.TrustNodeImages, "trust-node-images", false, "run what a node has of an app's image without asking its registry, which also lets in who has no right to pull it")
	f.DurationVar(&o.InstanceStopDelay, "instance-stop-delay", manager.DefaultInstanceStopDelay, "how long an instance of an app that listens serves on before it is told to end, so that gateways lose no request; 0 for not at all")
	f.StringVar(&o.ExporterImage, "mysqld-exporter-image", manager.DefaultExporterImage, "image of mysqld_exporter, for MySQLClusters with spec.collectors")
	f.DurationVar(&o.FailoverWaits.Silent, "mysql-failover-silent-after", 500*time.Millisecond, "for how long the primary of a MySQLCluster may be silent, to the manager and its replicas, before another takes its place; machines that are moved while they run may need more")
	f.DurationVar(&o.FailoverWaits.Unseen, "mysql-failover-unseen-after", 0, "for how long a primary that its replicas receive from may not answer the manager before another takes its place; 0 means for ever")
	f.IntVar(&o.RolloutsAtOnce, "rollouts-at-once", manager.DefaultRolloutsAtOnce, "how many MySQLClusters may have Pods replaced at a time that serve; 0 means any number")
	f.StringVar(&o.Image, "image", env("TORPOR_IMAGE"), "Torpor's own image, for the Pods of backups")
	addEgressFlags(f, &o)
	f.BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
}

// loadKubeconfig reads a kubeconfig as kubectl does; without one it takes the cluster that this runs in. cluster is what an
// error calls it.
func loadKubeconfig(path, cluster string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path, Precedence: clientcmd.NewDefaultClientConfigLoadingRules().Precedence}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the %s: %w; set --kubeconfig or KUBECONFIG, or run inside a cluster", cluster, err)
	}
	cfg.UserAgent = buildinfo.UserAgent("torpor")
	return cfg, nil
}
