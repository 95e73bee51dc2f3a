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
	o := manager.Options{AWSEndpoint: env("AWS_ENDPOINT_URL"), PodName: env("POD_NAME")}
	kubeconfig, logging := "", logFlags{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers; each starts when its API is installed and stops when its API is removed",
		Long: `Run the controllers. The kinds need not be installed: a controller starts when its kind is served, and stops when the kind is
removed. The manager keeps running.

Exit codes: 0 after a stop by signal, 1 after an error.
Environment: AWS_ENDPOINT_URL replaces EC2's endpoint for every cluster whose Secret has no endpoint_url; TORPOR_IMAGE is the
default of --image; POD_NAME identifies the Deployment of the Pod: a Pod that waits for a leader of another Deployment with a
common namespace is not ready; TORPOR_MEMORY_LIMIT, in bytes, sets Go's memory limit to 70 percent of
it, unless GOMEMLIMIT is set.`,
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
			if o.Log, err = logging.buildLogger(logs); err != nil {
				return err
			}
			return manager.Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub; empty uses KUBECONFIG, then the cluster in which the program runs")
	f.StringVar(&o.MetricsAddress, "metrics-address", "127.0.0.1:8080", `host:port of the metrics, "0" for none`)
	f.BoolVar(&o.InsecureMetrics, "metrics-insecure", false, "serve the metrics over unauthenticated HTTP, instead of HTTPS with RBAC authorization for /metrics")
	f.StringVar(&o.PprofAddress, "pprof-address", "0", `host:port of pprof profiles, over unauthenticated HTTP, "0" for none`)
	f.StringVar(&o.ProbeAddress, "probe-address", "127.0.0.1:8081", `host:port of /healthz and /readyz, "0" for none`)
	f.StringSliceVar(&o.Controllers, "controllers", []string{"*"},
		"controllers to run: * for all, NAME for one, -NAME to exclude one; the names are "+strings.Join(manager.ControllerNames(), ", "))
	addHibernationFlags(f, &o)
	addWebhookFlags(f, &o.Webhook)
	addPageFlags(f, &o.Page)
	f.StringSliceVar(&o.TakeOver, "take-over", nil, "controllers that also manage objects that Hive, MOCO, Korifi or eirini-controller writes; see docs/migration.md")
	f.StringSliceVar(&o.WatchNamespaces, "watch-namespaces", nil, "the only namespaces whose objects are managed; empty means all")
	f.BoolVar(&o.LeaderElection, "leader-elect", false, "elect one of several managers as the leader of each part of the controllers; the others wait")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace of the installation, which contains the Leases of the leaders")
	addAppFlags(f, &o)
	f.StringVar(&o.ExporterImage, "mysqld-exporter-image", manager.DefaultExporterImage, "image of mysqld_exporter, for MySQLClusters with spec.collectors")
	f.DurationVar(&o.FailoverWaits.Silent, "mysql-failover-silent-after", 500*time.Millisecond, "time before a failover if the primary of a MySQLCluster neither answers the manager nor sends to its replicas; virtual machines with live migration may need more")
	f.DurationVar(&o.FailoverWaits.Unseen, "mysql-failover-unseen-after", 0, "time before a failover if the primary does not answer the manager but still sends to its replicas; 0 means no failover")
	f.IntVar(&o.RolloutsAtOnce, "rollouts-at-once", manager.DefaultRolloutsAtOnce, "maximum number of MySQLClusters whose serving Pods are replaced at the same time; 0 means no limit")
	f.StringVar(&o.Image, "image", env("TORPOR_IMAGE"), "image of Torpor, for the Pods of backups and restores")
	addEgressFlags(f, &o)
	logging.add(f)
	return cmd
}

// loadKubeconfig reads a kubeconfig as kubectl does. Without one, it uses the cluster in which this process runs.
// Errors name the cluster with the argument cluster, such as "hub".
func loadKubeconfig(path, cluster string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path, Precedence: clientcmd.NewDefaultClientConfigLoadingRules().Precedence}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the %s: %w; set --kubeconfig or KUBECONFIG, or run inside a cluster", cluster, err)
	}
	cfg.UserAgent = buildinfo.UserAgent("torpor")
	return cfg, nil
}
