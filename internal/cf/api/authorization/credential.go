// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// callerCredential is a token, or a client certificate with its key. It is not kept after its request.
type callerCredential struct {
	token       string
	certificate *tls.Certificate
}

// credentialFingerprint is a hash of a header under a key that no other process has. Identities are kept by it, so that no credential is.
type credentialFingerprint [sha256.Size]byte

func (k credentialFingerprint) hash(header string) credentialFingerprint {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(header))
	return credentialFingerprint(mac.Sum(nil))
}

// parseHeader parses an Authorization header: `Bearer <token>`, or `ClientCert <base64 of a certificate and its key in PEM>`.
func parseHeader(header string) (callerCredential, error) {
	scheme, value, _ := strings.Cut(strings.TrimSpace(header), " ")
	value = strings.TrimSpace(value)
	// Schemes are compared without case, because the cf client sends bearer in small letters.
	switch {
	case header == "":
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected an Authorization header, found none; log in with cf auth and the name of a user of your kubeconfig")
	case strings.EqualFold(scheme, "bearer") && value != "":
		return callerCredential{token: value}, nil
	case strings.EqualFold(scheme, "clientcert"):
		pem, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected base64 after ClientCert, found something else")
		}
		pair, err := tls.X509KeyPair(pem, pem)
		if err != nil {
			return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected a certificate and its key in PEM after ClientCert, found something else")
		}
		return callerCredential{certificate: &pair}, nil
	case strings.EqualFold(scheme, "basic"):
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected a token or a client certificate, found a user name and a password, which Kubernetes does not take; use a user of your kubeconfig that has a token, a certificate or an exec plugin")
	default:
		return callerCredential{}, apierrors.NewNotAuthenticated("Authentication error: expected Bearer or ClientCert in the Authorization header, found neither")
	}
}
