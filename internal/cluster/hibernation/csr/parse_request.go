// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
)

// certificationRequest is the outer layer of a PKCS #10 request.
type certificationRequest struct {
	Info, Algorithm, Signature asn1.RawValue
}

// parseRequest reads exactly one PEM block with exactly one PKCS #10 request. The returned problems quote neither the
// data nor the parser's errors, which may repeat the data.
func parseRequest(data []byte) (parsed *x509.CertificateRequest, problem string) {
	const blockType = "CERTIFICATE REQUEST"
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, "expected one PEM block, found none"
	}
	if block.Type != blockType {
		return nil, "expected a PEM block of type " + blockType + ", found " + quoteBounded(block.Type)
	}
	// encoding/pem skips text around the block and headers in it. Re-encoding the block detects both.
	again := pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: block.Bytes})
	if !bytes.Equal(bytes.TrimSpace(again), bytes.TrimSpace(data)) {
		return nil, "expected exactly one PEM block without headers, found headers, more data or another encoding"
	}
	if _, ok := decodeExactly[certificationRequest](block.Bytes); !ok {
		return nil, "expected a DER-encoded PKCS #10 request, found other data"
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, "expected a PKCS #10 request, found one that cannot be parsed"
	}
	return parsed, ""
}

// decodeExactly decodes DER. It returns false unless der contains exactly one T.
func decodeExactly[T any](der []byte) (T, bool) {
	var value T
	if _, err := asn1.Unmarshal(der, &value); err != nil {
		return value, false
	}
	// encoding/asn1 skips additional elements at the end of a sequence, so the value is re-encoded and compared.
	again, err := asn1.Marshal(value)
	return value, err == nil && bytes.Equal(again, der)
}
