// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes NAME.kubeconfig into dir for the certificate issued under that name,
// with everything embedded so that the file can be copied.
func (a *CertificateAuthority) WriteKubeconfig(file, name, server string) error {
	auth := clientcmdapi.NewAuthInfo()
	var err error
	if auth.ClientCertificateData, err = os.ReadFile(a.FilePath(name + ".crt")); err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	if auth.ClientKeyData, err = os.ReadFile(a.FilePath(name + ".key")); err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	return a.writeKubeconfig(file, server, auth)
}

// WriteBootstrapKubeconfig writes a kubeconfig that only carries a bootstrap token, as a new kubelet gets it.
func (a *CertificateAuthority) WriteBootstrapKubeconfig(file, token, server string) error {
	auth := clientcmdapi.NewAuthInfo()
	auth.Token = token
	return a.writeKubeconfig(file, server, auth)
}

func (a *CertificateAuthority) writeKubeconfig(file, server string, auth *clientcmdapi.AuthInfo) error {
	ca, err := os.ReadFile(a.FilePath("ca.crt"))
	if err != nil {
		return fmt.Errorf("read ca: %w", err)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos["local"] = auth
	c.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "local"}
	c.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
