// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// These constants limit client certificates. The time to verify an RSA key grows with the cube of its size.
const (
	maxPEMBytes = 16 << 10
	// maxKeyBytes is enough for an RSA key of 8192 bits.
	maxKeyBytes = 5 << 10
)

const (
	bearerScheme      = "bearer"
	certificateScheme = "clientcert"
)

// callerCredential holds a token, or a client certificate with its key in base64. It is dropped after its request.
type callerCredential struct{ scheme, value string }

// credentialFingerprint is a hash of a header, keyed with a random key of this process. Caches use it as their key
// instead of the credential.
type credentialFingerprint [sha256.Size]byte

func (k credentialFingerprint) hash(header string) credentialFingerprint {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(header))
	return credentialFingerprint(mac.Sum(nil))
}

// parseHeader splits an Authorization header: `Bearer <token>`, or `ClientCert <base64 of a certificate and its key in PEM>`.
func parseHeader(header string) (callerCredential, error) {
	scheme, value, _ := strings.Cut(strings.TrimSpace(header), " ")
	value = strings.TrimSpace(value)
	// Scheme names are compared case-insensitively, because the cf client sends "bearer".
	switch {
	case header == "":
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected an Authorization header, found none; log in with cf auth and the name of a user of your kubeconfig")
	case strings.EqualFold(scheme, bearerScheme) && value != "":
		return callerCredential{bearerScheme, value}, nil
	case strings.EqualFold(scheme, certificateScheme) && base64.StdEncoding.DecodedLen(len(value)) > maxPEMBytes:
		return callerCredential{}, apierrors.NewNotAuthenticated(fmt.Sprintf("Authentication error: expected a certificate and its key of at most %d KiB in the Authorization header ClientCert, found more; send the certificate without its chain", maxPEMBytes>>10))
	case strings.EqualFold(scheme, certificateScheme):
		return callerCredential{certificateScheme, value}, nil
	case strings.EqualFold(scheme, "basic"):
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected a token or a client certificate, found a user name and a password, which Kubernetes does not accept; use a user of your kubeconfig that has a token, a certificate or an exec plugin")
	default:
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected Bearer or ClientCert in the Authorization header, found neither")
	}
}

// parseCertificates returns the client certificate of a credential, or none for a token.
func (c callerCredential) parseCertificates() ([]tls.Certificate, error) {
	if c.scheme != certificateScheme {
		return []tls.Certificate{}, nil
	}
	both, err := base64.StdEncoding.DecodeString(c.value)
	if err != nil {
		return nil, apierrors.NewNotAuthenticated("Authentication error: expected base64 in the Authorization header ClientCert, found other characters")
	}
	for block, rest := pem.Decode(both); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") && len(block.Bytes) > maxKeyBytes {
			return nil, apierrors.NewNotAuthenticated("Authentication error: expected a private key of at most 8192 bits in the Authorization header ClientCert, found a larger key; use an ECDSA key, or an RSA key of 2048 to 8192 bits")
		}
	}
	pair, err := tls.X509KeyPair(both, both)
	if err != nil {
		return nil, apierrors.NewNotAuthenticated("Authentication error: expected a certificate and its key in PEM in the Authorization header ClientCert, found other data")
	}
	return []tls.Certificate{pair}, nil
}
