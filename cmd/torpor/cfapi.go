// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/cf/api"
)

const (
	// callerRate is far above what a person with a client needs.
	callerRate = 50
	// failureRate lets a few people behind one address mistype, and is nothing to the API server.
	failureRate = 10
	// maxInstances is far above what an app needs.
	maxInstances = 1000
)

func cfAPICommand(logs io.Writer) *cobra.Command {
	var o api.Options
	var kubeconfig string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "cf-api",
		Short: "Serve the CF v3 API for the cf client; every request acts with the caller's own Kubernetes credentials",
		Long: `Serve the CF v3 API for the cf client. What it needs of its own is to list and watch apps, processes, builds, packages,
orgs, spaces, deployments and namespaces; everything else is done with the rights of whoever asks. It keeps nothing, so there
may be several. What it logs, it logs as JSON; credentials are never logged.

After SIGTERM or an interrupt it takes no new connections, answers at once what it has held back, and finishes the requests
that are under way, for at most 15 s.

Exit codes: 0 after a stop by signal, 1 after an error.`,
		Example: `  # Inside a cluster; kubectl apply -k config/cf-api does that
  torpor cf-api --address :8443 --metrics-address :8080 --tls-cert /tls/tls.crt --tls-key /tls/tls.key

  # On a laptop, with a certificate of its own
  mkdir -p tls && torpor cf-api --kubeconfig ./admin.kubeconfig --tls-folder ./tls
  cf api https://localhost:8443 --skip-ssl-validation && cf auth NAME-OF-A-KUBECONFIG-USER

  # See what it counts
  curl http://127.0.0.1:8082/metrics`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			o.Log = newLogger(logs, verbose)
			return api.Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster this runs in")
	f.StringVar(&o.Address, "address", "127.0.0.1:8443", "host:port of the API")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace in which orgs are made")
	f.StringVar(&o.MetricsAddress, "metrics-address", "127.0.0.1:8082", `host:port of the metrics, "0" for none`)
	f.StringVar(&o.Certificate, "tls-cert", "", "certificate in PEM; read again when it changes")
	f.StringVar(&o.Key, "tls-key", "", "its key in PEM")
	f.StringVar(&o.Folder, "tls-folder", "", "existing folder for a certificate of its own, for localhost, if there is no other")
	f.Float64Var(&o.RequestsPerSecond, "caller-rate", callerRate, "requests per second that one caller may send; five seconds of them at once")
	f.Float64Var(&o.FailuresPerSecond, "failed-credentials-rate", failureRate, "invalid credentials per second that are looked at from one address, four seconds of them at once; raise it where a proxy hides who is behind it")
	f.StringVar(&o.ExternalURL, "external-url", "", "https address of this API in the links that clients are told to follow, if something stands before it; empty takes the host that a request names")
	f.StringVar(&o.BuilderURL, "builder-url", "", "where the code that cf push sends goes, for a builder of your own; empty refuses code")
	f.StringVar(&o.BuilderTokenFile, "builder-token-file", "", "file with a token by which the builder knows this API; read again for each upload")
	f.DurationVar(&o.MaxStaleness, "max-staleness", time.Minute, "how long Kubernetes may go unwatched before /readyz fails and callers get 503")
	f.Int32Var(&o.MaxInstances, "max-instances", maxInstances, "instances that a caller may ask for of one process; at most 10000")
	f.BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
}
