// SPDX-License-Identifier: Apache-2.0

package api

import (
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

const (
	// ownValidity is how long a certificate of one's own is valid; delete the folder's files to have another.
	ownValidity = 365 * 24 * time.Hour
	serialBits  = 128
	privateMode = 0o600
)

// selfSignedCertificate is a certificate for this machine, made once in a folder. Clients are told to trust tls.crt.
func selfSignedCertificate(folder string, now time.Time) (certificate, key string, err error) {
	certificate, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		return certificate, key, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return "", "", fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "torpor cf-api"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownValidity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", "", fmt.Errorf("make a certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("write the key: %w", err)
	}
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: raw}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), privateMode); err != nil {
			return "", "", fmt.Errorf("keep the certificate: %w", err)
		}
	}
	return certificate, key, nil
}
