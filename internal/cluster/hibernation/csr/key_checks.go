// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
)

const (
	minRSABits = 2048
	// maxRSABits limits the work of verifying a signature.
	maxRSABits = 8192
)

// requireStrongKey runs before requireOwnSignature, so no signature is verified with an absurdly large key.
func requireStrongKey(c judgedRequest) string {
	const expected = "expected a key of RSA with 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519, found "
	switch key := c.parsed.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Sprintf("%sRSA with %d bits", expected, bits)
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
		default:
			return expected + "ECDSA " + key.Curve.Params().Name
		}
	case ed25519.PublicKey:
	default:
		return expected + "another algorithm"
	}
	return ""
}

func requireOwnSignature(c judgedRequest) string {
	if algorithm := c.parsed.SignatureAlgorithm; algorithm == x509.SHA1WithRSA || algorithm == x509.ECDSAWithSHA1 {
		return "expected a signature over a SHA-2 digest, found " + algorithm.String()
	}
	if err := c.parsed.CheckSignature(); err != nil {
		return "expected a signature by the key of the request, found one that does not verify"
	}
	return ""
}
