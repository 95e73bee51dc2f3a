// SPDX-License-Identifier: Apache-2.0

// Package pki creates the keys, certificates and kubeconfigs of one local control plane. The keys and certificates are
// in one folder and are created once; later starts use them.
package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	// clockSkew makes a new certificate valid immediately even for a clock that is slightly behind.
	clockSkew = time.Minute
)

// CertificateAuthority is a certificate authority whose files (ca.crt, ca.key) are in Dir.
type CertificateAuthority struct {
	Dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// CertificateSubject is the subject of a certificate: its common name, its organizations (groups) and, for servers,
// the host names and IP addresses.
type CertificateSubject struct {
	Name   string
	Groups []string
	Hosts  []string
}

// OpenAuthority loads the CA in dir, or creates a new CA.
func OpenAuthority(dir string) (*CertificateAuthority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create pki folder: %w", err)
	}
	a := &CertificateAuthority{Dir: dir}
	var err error
	if a.key, err = a.LoadOrMakeKey("ca"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(a.FilePath("ca.crt")); errors.Is(err, fs.ErrNotExist) {
		if err := a.signItself(); err != nil {
			return nil, err
		}
	}
	certs, err := certutil.CertsFromFile(a.FilePath("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w; remove the folder to start again", err)
	}
	a.cert = certs[0]
	return a, nil
}

// FilePath returns the path of a file of this CA.
func (a *CertificateAuthority) FilePath(name string) string { return filepath.Join(a.Dir, name) }

// LoadOrMakeKey loads the ECDSA P-256 key NAME.key, or creates it.
func (a *CertificateAuthority) LoadOrMakeKey(name string) (crypto.Signer, error) {
	data, _, err := keyutil.LoadOrGenerateKeyFile(a.FilePath(name + ".key"))
	if err != nil {
		return nil, fmt.Errorf("load or make key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w; remove the folder to start again", name, err)
	}
	return key.(crypto.Signer), nil
}

// IssueCertificate writes NAME.crt and NAME.key for the subject, unless they already exist.
func (a *CertificateAuthority) IssueCertificate(name string, s CertificateSubject) error {
	if _, err := os.Stat(a.FilePath(name + ".crt")); err == nil {
		return nil
	}
	key, err := a.LoadOrMakeKey(name)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Groups},
		NotBefore:    time.Now().Add(-clockSkew),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	return a.writeCertificate(name, &x509.Certificate{Raw: der})
}

func (a *CertificateAuthority) signItself() error {
	config := certutil.Config{CommonName: "torpor-local-ca", NotBefore: time.Now().Add(-clockSkew)}
	cert, err := certutil.NewSelfSignedCACert(config, a.key)
	if err != nil {
		return fmt.Errorf("sign ca: %w", err)
	}
	return a.writeCertificate("ca", cert)
}

func (a *CertificateAuthority) writeCertificate(name string, cert *x509.Certificate) error {
	data, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return fmt.Errorf("encode certificate %s: %w", name, err)
	}
	return certutil.WriteCert(a.FilePath(name+".crt"), data)
}

// WriteKubeconfig writes a kubeconfig for the certificate that was issued with this name. Everything is embedded so
// that the file can be copied.
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

// WriteBootstrapKubeconfig writes a kubeconfig that contains only a bootstrap token, as that of a new kubelet does.
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
