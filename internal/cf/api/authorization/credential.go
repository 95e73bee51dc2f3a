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

// credential is what a caller shows: a token, or a client certificate with its key. It lives as long as its request.
type credential struct {
	token       string
	certificate *tls.Certificate
}

// fingerprint is a hash of a header under a key that no other process has: answers are kept by it, credentials never.
type fingerprint [sha256.Size]byte

func (k fingerprint) hash(header string) fingerprint {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(header))
	return fingerprint(mac.Sum(nil))
}

// parseHeader reads an Authorization header: `Bearer <token>`, or `ClientCert <base64 of a certificate and its key in PEM>`.
func parseHeader(header string) (credential, error) {
	scheme, value, _ := strings.Cut(strings.TrimSpace(header), " ")
	value = strings.TrimSpace(value)
	switch {
	case header == "":
		return credential{}, apierrors.NewNotAuthenticated("Authentication error: expected an Authorization header, found none; log in with cf auth and the name of a user of your kubeconfig")
	case strings.EqualFold(scheme, "bearer") && value != "":
		return credential{token: value}, nil
	case strings.EqualFold(scheme, "clientcert"):
		pem, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return credential{}, apierrors.NewNotAuthenticated("Authentication error: expected base64 after ClientCert, found something else")
		}
		pair, err := tls.X509KeyPair(pem, pem)
		if err != nil {
			return credential{}, apierrors.NewNotAuthenticated("Authentication error: expected a certificate and its key in PEM after ClientCert, found something else")
		}
		return credential{certificate: &pair}, nil
	case strings.EqualFold(scheme, "basic"):
		return credential{}, apierrors.NewNotAuthenticated("Authentication error: expected a token or a client certificate, found a user name and a password, which Kubernetes does not take; use a user of your kubeconfig that has a token, a certificate or an exec plugin")
	default:
		return credential{}, apierrors.NewNotAuthenticated("Authentication error: expected Bearer or ClientCert in the Authorization header, found neither")
	}
}
