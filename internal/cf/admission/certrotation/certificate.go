// SPDX-License-Identifier: Apache-2.0

package certrotation

import (
	"bytes"
	"crypto"
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
	"net"
	"time"
)

const (
	// authorityLife and servingLife are the validity periods of certificates. A certificate is replaced when a third of
	// its validity period remains.
	authorityLife = 365 * 24 * time.Hour
	servingLife   = 30 * 24 * time.Hour
	thirds        = 3
	// skew backdates certificates, so that API servers with a slow clock accept them.
	skew         = 5 * time.Minute
	serialBits   = 127
	certificate  = "CERTIFICATE"
	privateKey   = "PRIVATE KEY"
	authorityFor = "torpor-webhook-ca"
)

// certificateAuthority signs serving certificates.
type certificateAuthority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority creates an authority with a new key.
func newAuthority(now time.Time) (*certificateAuthority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the authority's key: %w", err)
	}
	a := &certificateAuthority{key: key, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: authorityFor}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	raw, err := a.signCertificate(a.cert, key.Public())
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		return nil, fmt.Errorf("parse the authority: %w", err)
	}
	return a, nil
}

// issueServing issues a serving certificate for hosts, which are names or IP addresses.
func (a *certificateAuthority) issueServing(now time.Time, hosts ...string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-skew), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err := a.signCertificate(template, key.Public())
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, nil
}

func (a *certificateAuthority) signCertificate(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	template.SerialNumber = serial
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return raw, nil
}

// encodePEM returns the authority's certificate and key as PEM.
func (a *certificateAuthority) encodePEM() (cert, key []byte, err error) {
	raw, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the authority's key: %w", err)
	}
	return a.certificatePEM(), pem.EncodeToMemory(&pem.Block{Type: privateKey, Bytes: raw}), nil
}

func (a *certificateAuthority) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificate, Bytes: a.cert.Raw})
}

var errNoPair = errors.New("expected a certificate authority and its key in PEM, found other data")

// decodeAuthority decodes the result of encodePEM.
func decodeAuthority(cert, key []byte) (*certificateAuthority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPair, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || pair.Leaf == nil || !pair.Leaf.IsCA {
		return nil, errNoPair
	}
	return &certificateAuthority{cert: pair.Leaf, key: signer}, nil
}

// needsRenewal reports whether at most a third of the certificate's validity period remains.
func needsRenewal(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.After(cert.NotAfter.Add(-life / thirds))
}

// trustBundle returns the certificate of the newest authority, and the certificates in old that have not expired.
func trustBundle(newest *certificateAuthority, old []byte, now time.Time) []byte {
	all := newest.certificatePEM()
	for block, rest := pem.Decode(old); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && !bytes.Equal(cert.Raw, newest.cert.Raw) && now.Before(cert.NotAfter) {
			all = append(all, pem.EncodeToMemory(block)...)
		}
	}
	return all
}
