// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"errors"
	"net/url"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfigBytes is far more than certificates and keys need.
const maxKubeconfigBytes = 128 << 10

var (
	errUnreadable = errors.New("the kubeconfig cannot be read; expected a kubeconfig with a current context, a server and credentials")
	errForeign    = errors.New("the kubeconfig refers to files, programs or plugins; expected certificates, keys or tokens embedded in it")
	errInsecure   = errors.New("the kubeconfig uses plain http, insecure-skip-tls-verify or impersonation; " +
		"expected https with a verified certificate, or a manager with --allow-insecure-target-clusters")
	errUnlistedProxy = errors.New("the kubeconfig uses proxy-url with a proxy that the manager does not allow; " +
		"expected a proxy whose host is listed in --allow-target-proxies, or a manager with --allow-insecure-target-clusters")
	errInsecureOverride = errors.New("spec.controlPlaneConfig.apiURLOverride uses plain http; " +
		"expected https, or a manager with --allow-insecure-target-clusters")
	errUnverifiedOverride = errors.New("expected certificate-authority-data or tls-server-name in the kubeconfig of a cluster with " +
		"spec.controlPlaneConfig.apiURLOverride, found neither, so any public certificate would be accepted; add one of them, or remove the override")
)

// refuseForeign refuses settings that would run programs or read files on the manager's host, because users of the
// hub may write the kubeconfig's Secret.
func refuseForeign(c *clientcmdapi.Config) error {
	// Every entry is checked, so the result does not depend on the current context.
	for _, a := range c.AuthInfos {
		if a.Exec != nil || a.AuthProvider != nil || a.TokenFile != "" || a.ClientCertificate != "" || a.ClientKey != "" {
			return errForeign
		}
	}
	for _, cluster := range c.Clusters {
		if cluster.CertificateAuthority != "" {
			return errForeign
		}
	}
	return nil
}

// refuseInsecure refuses settings that would expose credentials on the network, or send them through another server.
func (d Dialer) refuseInsecure(c *clientcmdapi.Config) error {
	for _, cluster := range c.Clusters {
		isHTTPS := strings.HasPrefix(strings.ToLower(cluster.Server), "https://")
		if cluster.InsecureSkipTLSVerify || cluster.Server != "" && !isHTTPS {
			return errInsecure
		}
		if cluster.ProxyURL != "" && !d.isListedProxy(cluster.ProxyURL) {
			return errUnlistedProxy
		}
	}
	for _, a := range c.AuthInfos {
		if a.Impersonate != "" || a.ImpersonateUID != "" || len(a.ImpersonateGroups)+len(a.ImpersonateUserExtra) > 0 {
			return errInsecure
		}
	}
	return nil
}

// isListedProxy reports whether the administrator has listed the host of a proxy. A proxy receives only the TLS
// connection to the API server, and the server's certificate is still verified.
func (d Dialer) isListedProxy(address string) bool {
	proxy, err := url.Parse(address)
	return err == nil && d.Proxies.Includes(proxy.Hostname())
}
