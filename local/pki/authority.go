// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys, certificates and kubeconfigs of one local control plane.
// Everything lives in one folder and is made once: a second start finds and keeps it.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 10 * 365 * 24 * time.Hour

// Authority is a certificate authority whose files (ca.crt, ca.key) live in Dir.
type Authority struct {
	Dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Subject says whom a certificate is for: its common name, its organizations (groups) and,
// for servers, the host names and IP addresses it answers to.
type Subject struct {
	Name   string
	Groups []string
	Hosts  []string
}

// OpenAuthority loads the authority in dir, or makes a new one.
func OpenAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make pki folder: %w", err)
	}
	a := &Authority{Dir: dir}
	key, err := a.LoadOrMakeKey("ca")
	if err != nil {
		return nil, err
	}
	a.key = key
	der, err := a.read("ca.crt")
	if errors.Is(err, fs.ErrNotExist) {
		der, err = a.selfSign()
	}
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; remove the folder to start anew", a.FilePath("ca.crt"), err)
	}
	return a, nil
}

// FilePath is where the named file of this authority lives.
func (a *Authority) FilePath(name string) string { return filepath.Join(a.Dir, name) }

// LoadOrMakeKey loads the ECDSA P-256 key NAME.key, or makes it.
func (a *Authority) LoadOrMakeKey(name string) (crypto.Signer, error) {
	file := name + ".key"
	der, err := a.read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return a.newKey(file)
	}
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", a.FilePath(file), err)
	}
	return key, nil
}

// WritePublicKey writes NAME.pub beside NAME.key, as the API server wants it to check service account tokens.
func (a *Authority) WritePublicKey(name string) error {
	key, err := a.LoadOrMakeKey(name)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode public key %s: %w", name, err)
	}
	return a.write(name+".pub", "PUBLIC KEY", der)
}

// IssueCertificate writes NAME.crt and NAME.key for the subject, unless they exist already.
func (a *Authority) IssueCertificate(name string, s Subject) error {
	if _, err := os.Stat(a.FilePath(name + ".crt")); err == nil {
		return nil
	}
	key, err := a.LoadOrMakeKey(name)
	if err != nil {
		return err
	}
	template := newTemplate(s)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	return a.write(name+".crt", "CERTIFICATE", der)
}

func newTemplate(s Subject) *x509.Certificate {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Groups},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c
}

func (a *Authority) selfSign() ([]byte, error) {
	c := newTemplate(Subject{Name: "torpor-local-ca"})
	c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = true, true, nil
	c.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, c, c, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign ca: %w", err)
	}
	return der, a.write("ca.crt", "CERTIFICATE", der)
}

func (a *Authority) newKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return key, a.write(file, "EC PRIVATE KEY", der)
}

func (a *Authority) read(file string) ([]byte, error) {
	data, err := os.ReadFile(a.FilePath(file))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read %s: expected PEM, found something else; remove the folder to start anew", a.FilePath(file))
	}
	return block.Bytes, nil
}

func (a *Authority) write(file, kind string, der []byte) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(a.FilePath(file), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
