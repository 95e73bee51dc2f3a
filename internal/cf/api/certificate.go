// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// privateMode makes a file readable only by its owner.
const privateMode = 0o600

// selfSignedCertificate returns the paths of a certificate for localhost and of its key. It creates both files in the
// folder if the key does not exist. To get a new certificate, delete the files. The certificate is valid for a year.
// Clients must trust tls.crt.
func selfSignedCertificate(folder string) (certificate, key string, err error) {
	certificate, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		return certificate, key, err
	}
	certificatePEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, nil)
	if err != nil {
		return "", "", fmt.Errorf("create a certificate: %w", err)
	}
	for file, content := range map[string][]byte{certificate: certificatePEM, key: keyPEM} {
		if err := os.WriteFile(file, content, privateMode); err != nil {
			return "", "", fmt.Errorf("keep the certificate: %w", err)
		}
	}
	return certificate, key, nil
}
