// SPDX-License-Identifier: Apache-2.0

// Package certificates creates the certificates of a cluster's servers and decides when they must be renewed. Each
// cluster has its own certificate authority (CA), which is trusted only inside the cluster.
package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"
)

// These are the keys of the Secret. All of them except AuthorityKey follow cert-manager's naming. Pods cannot read
// AuthorityKey.
const (
	AuthorityFile   = "ca.crt"
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
	AuthorityKey    = "ca.key"
)

const (
	authorityLife, serverLife = 10 * 365 * 24 * time.Hour, 90 * 24 * time.Hour
	// authorityOverlap is how long before the expiry of a CA a new CA is created. Both CAs are trusted during this
	// time.
	authorityOverlap = 365 * 24 * time.Hour
	// clockSkew is how far the clock of a client or server may be behind the manager's clock.
	clockSkew = time.Hour
)

// IsAging reports whether more than two thirds of a certificate's lifetime have passed, so the certificate should have
// been renewed.
func IsAging(notBefore, notAfter, now time.Time) bool {
	return now.After(notBefore.Add(notAfter.Sub(notBefore) / 3 * 2))
}

// RenewFiles renews the CA or the server certificate in the files if necessary. It returns the files and whether they
// changed. The CA is renewed before the server certificate. A host is an address or a name, and a name may begin with
// the wildcard label *.
func RenewFiles(files map[string][]byte, hosts []string, now time.Time) (renewed map[string][]byte, changed bool, err error) {
	authorities, key, err := readAuthorities(files)
	if err != nil || now.After(authorities[0].NotAfter.Add(-authorityOverlap)) {
		return newAuthority(files, authorities, hosts, now)
	}
	if leaf, err := readServer(files); err == nil && !IsAging(leaf.NotBefore, leaf.NotAfter, now) && coversHosts(leaf, hosts) && isIssued(leaf, authorities) {
		return files, false, nil
	}
	renewed, err = newServer(files, authorities[0], key, hosts, now)
	return renewed, true, err
}

// ListMissing returns the keys without a value in a Secret that the user supplies.
func ListMissing(files map[string][]byte) []string {
	return slices.DeleteFunc([]string{AuthorityFile, CertificateFile, KeyFile}, func(name string) bool { return len(files[name]) > 0 })
}

// BuildClientConfig returns a TLS configuration that accepts only a server with the given host name whose certificate
// is signed by one of the cluster's CAs.
func BuildClientConfig(authorities []byte, host string) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s: expected certificates in PEM, found none", AuthorityFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: host}, nil
}

// newAuthority adds a CA and keeps the previous CAs trusted, because the servers use certificates signed by those CAs
// until they are renewed.
func newAuthority(files map[string][]byte, before []*x509.Certificate, hosts []string, now time.Time) (map[string][]byte, bool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, false, fmt.Errorf("create a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: randomSerial(), Subject: pkix.Name{CommonName: "Torpor MySQL " + randomSerial().Text(36)[:8]}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, false, fmt.Errorf("create a CA: %w", err)
	}
	authority, err := x509.ParseCertificate(signed)
	if err != nil {
		return nil, false, fmt.Errorf("parse the CA: %w", err)
	}
	text := encodeCertificate(signed)
	for _, old := range before {
		if now.Before(old.NotAfter) {
			text = append(text, encodeCertificate(old.Raw)...)
		}
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, false, err
	}
	renewed := map[string][]byte{AuthorityFile: text, AuthorityKey: encoded, CertificateFile: files[CertificateFile], KeyFile: files[KeyFile]}
	if leaf, err := readServer(files); err == nil && now.Before(leaf.NotAfter) && isIssued(leaf, before) {
		// The server keeps its certificate for now, because every Pod must first trust the new CA.
		return renewed, true, nil
	}
	renewed, err = newServer(renewed, authority, key, hosts, now)
	return renewed, true, err
}

func newServer(files map[string][]byte, authority *x509.Certificate, authorityKey *ecdsa.PrivateKey, hosts []string, now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: randomSerial(), Subject: pkix.Name{CommonName: "mysqld"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, address.AsSlice())
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("create a certificate: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		AuthorityFile: files[AuthorityFile], AuthorityKey: files[AuthorityKey], CertificateFile: encodeCertificate(signed), KeyFile: encoded,
	}, nil
}

// readAuthorities returns the trusted CAs. The returned key is that of the first CA. If the files do not contain this
// key, the CAs are returned with an error, and are still trusted.
func readAuthorities(files map[string][]byte) ([]*x509.Certificate, *ecdsa.PrivateKey, error) {
	var all []*x509.Certificate
	for rest := files[AuthorityFile]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		found, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return all, nil, fmt.Errorf("parse %s: %w", AuthorityFile, err)
		}
		all = append(all, found)
	}
	block, _ := pem.Decode(files[AuthorityKey])
	if len(all) == 0 || block == nil {
		return all, nil, errors.New("expected a CA with its private key, found none")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return all, nil, fmt.Errorf("parse %s: %w", AuthorityKey, err)
	}
	if !key.PublicKey.Equal(all[0].PublicKey) {
		return all, nil, fmt.Errorf("%s: expected the private key of %s, found another key", AuthorityKey, AuthorityFile)
	}
	return all, key, nil
}

func readServer(files map[string][]byte) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(files[CertificateFile], files[KeyFile])
	if err != nil {
		return nil, fmt.Errorf("parse the certificate: %w", err)
	}
	return pair.Leaf, nil
}

func isIssued(leaf *x509.Certificate, authorities []*x509.Certificate) bool {
	return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return leaf.CheckSignatureFrom(a) == nil })
}

func coversHosts(leaf *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool {
		if address, err := netip.ParseAddr(host); err == nil {
			return leaf.VerifyHostname(address.String()) != nil
		}
		return !slices.Contains(leaf.DNSNames, host)
	})
}

func randomSerial() *big.Int {
	const size = 16
	var number [size]byte
	_, _ = rand.Read(number[:]) // Read never fails.
	return new(big.Int).SetBytes(append([]byte{1}, number[1:]...))
}

func encodeCertificate(signed []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return bytes.TrimSpace(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})), nil
}
