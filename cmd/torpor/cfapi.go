// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/internal/cf/api"
)

const (
	// callerRate is the default of --caller-rate, which is far above the needs of one user with a client.
	callerRate = 50
	// failureRate is the default of --failed-credentials-rate. It lets several users behind one address mistype,
	// without burdening the API server.
	failureRate = 10
	// maxInstances is the default of --max-instances, which is far above the needs of an app.
	maxInstances = 1000
)

func cfAPICommand(logs io.Writer) *cobra.Command {
	var o api.Options
	var kubeconfig string
	var logging logFlags
	cmd := &cobra.Command{
		Use:   "cf-api",
		Short: "Serve the CF v3 API for the cf client; every request acts with the caller's own Kubernetes credentials",
		Long: `Serve the CF v3 API for the cf client. Its own permissions are to read the objects of CF and the namespaces. Every other request is
made with the permissions of the caller. It is stateless, so that several replicas can run. Logs are JSON, and never contain credentials.

After SIGTERM or an interrupt it accepts no new connections, answers delayed requests immediately, and finishes the requests in
progress, for at most 15 s.

Exit codes: 0 after a stop by signal, 1 after an error.`,
		Example: `  # Inside a cluster, as with kubectl apply -k config/cf-api
  torpor cf-api --address :8443 --metrics-address :8080 --tls-cert /tls/tls.crt --tls-key /tls/tls.key

  # On a laptop, with a self-signed certificate
  mkdir -p tls && torpor cf-api --kubeconfig ./admin.kubeconfig --tls-folder ./tls
  cf api https://localhost:8443 --skip-ssl-validation && cf auth NAME-OF-A-KUBECONFIG-USER

  # Read its metrics
  curl http://127.0.0.1:8082/metrics`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadKubeconfig(kubeconfig, "cluster")
			if err != nil {
				return err
			}
			if o.Log, err = logging.buildLogger(logs); err != nil {
				return err
			}
			return api.Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty uses KUBECONFIG, then the cluster in which the program runs")
	f.StringVar(&o.Address, "address", "127.0.0.1:8443", "host:port of the API")
	f.StringVar(&o.Namespace, "namespace", "torpor-system", "namespace in which orgs are created")
	f.StringVar(&o.MetricsAddress, "metrics-address", "127.0.0.1:8082", `host:port of the metrics, "0" for none`)
	f.StringVar(&o.Certificate, "tls-cert", "", "file with the certificate in PEM; read again when it changes")
	f.StringVar(&o.Key, "tls-key", "", "file with the key of the certificate in PEM")
	f.StringVar(&o.Folder, "tls-folder", "", "existing folder for a self-signed certificate for localhost, if --tls-cert is empty")
	f.Float64Var(&o.RequestsPerSecond, "caller-rate", callerRate, "requests per second that one caller may send, with a burst of five seconds")
	f.Float64Var(&o.FailuresPerSecond, "failed-credentials-rate", failureRate, "invalid credentials per second that are checked from one address, with a burst of four seconds; increase the limit behind a proxy that hides the addresses of clients")
	f.StringVar(&o.ExternalURL, "external-url", "", "https address of this API in the links of its responses, if it is behind a proxy; empty uses the host of the request")
	f.StringVar(&o.BuilderURL, "builder-url", "", "URL to which the source code of cf push is sent, for an external builder; if empty, source code is rejected")
	f.StringVar(&o.BuilderTokenFile, "builder-token-file", "", "file with the token that authenticates this API to the builder; read again for each upload")
	f.DurationVar(&o.MaxStaleness, "max-staleness", time.Minute, "how long a watch of the API server may be interrupted before /readyz fails and callers get 503")
	f.Int32Var(&o.MaxInstances, "max-instances", maxInstances, "maximum number of instances of a process that a caller may request; at most 10000")
	logging.add(f)
	return cmd
}
