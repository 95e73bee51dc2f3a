// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"net"

	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

// overrideServer sets the URL of an override. The author of a ClusterDeployment chooses this URL. Another user may be
// the author of the kubeconfig. The server must therefore prove its identity by data in the kubeconfig. A certificate
// of a public authority is no proof: the owner of any name can obtain one, and would receive the token.
func (d Dialer) overrideServer(cfg *rest.Config, override hibernation.ServerOverride) error {
	if err := override.Check(); err != nil {
		return &KubeconfigError{Message: err.Error()}
	}
	server, err := override.ParseURL()
	if server == nil || err != nil {
		return err
	}
	switch {
	case server.Scheme != "https" && !d.AllowInsecure:
		return errInsecureOverride
	case !cfg.Insecure && len(cfg.CAData) == 0 && cfg.ServerName == "":
		return errUnverifiedOverride
	}
	cfg.Host = server.String()
	return nil
}

// dialAddress returns a dial function that always dials the given address, at the requested port.
func dialAddress(dial func(context.Context, string, string) (net.Conn, error), address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, server string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, fmt.Errorf("split the server's address: %w", err)
		}
		return dial(ctx, network, net.JoinHostPort(address, port))
	}
}
