// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/torpor-dev/torpor/actuator"
)

// The keys of the credentials Secret are those of kubernetes.io/tls and cert-manager.
const (
	certificateKey = "tls.crt"
	privateKeyKey  = "tls.key"
	authorityKey   = "ca.crt"
)

// readCredentials returns the TLS settings for an engine. A client certificate is required, because an engine that does
// not require a client certificate accepts any client.
func readCredentials(secret map[string][]byte) (*tls.Config, error) {
	for _, key := range []string{certificateKey, privateKeyKey} {
		if len(secret[key]) == 0 {
			return nil, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it", key)
		}
	}
	// The parser's error may contain a part of the text, and any part may be secret.
	pair, err := tls.X509KeyPair(secret[certificateKey], secret[privateKeyKey])
	if err != nil {
		return nil, actuator.Errorf(actuator.CredentialsInvalid, "%s and %s of the credentials Secret must be a certificate in PEM and its key: correct them", certificateKey, privateKeyKey)
	}
	settings := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if len(secret[authorityKey]) > 0 {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(secret[authorityKey]) {
			return nil, actuator.Errorf(actuator.CredentialsInvalid, "%s of the credentials Secret must be certificates in PEM: correct it", authorityKey)
		}
	}
	return settings, nil
}
