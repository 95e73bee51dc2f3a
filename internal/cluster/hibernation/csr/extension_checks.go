// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
)

// requestInfo is the signed part of a PKCS #10 request.
type requestInfo struct {
	Version       int
	Subject       asn1.RawValue
	PublicKey     asn1.RawValue
	RawAttributes []asn1.RawValue `asn1:"tag:0"`
}

// pkcs10Attribute is one attribute of a PKCS #10 request.
type pkcs10Attribute struct {
	ID     asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

func oidExtensionRequest() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
}

func oidSubjectAltName() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, 17} }

func requireNoExtensions(c judgedRequest) string {
	extensions, problem := requestedExtensions(c.parsed.RawTBSCertificateRequest)
	if problem == "" && len(extensions) > 0 {
		return "expected no extension, found " + extensionNames(extensions)
	}
	return problem
}

func requireOnlySubjectAltName(c judgedRequest) string {
	extensions, problem := requestedExtensions(c.parsed.RawTBSCertificateRequest)
	if problem == "" && (len(extensions) != 1 || !extensions[0].Id.Equal(oidSubjectAltName())) {
		return "expected the extension subjectAltName alone, found " + extensionNames(extensions)
	}
	return problem
}

// requireOnlyNamesAndIPs relies on requireOnlySubjectAltName, which checks that the request has exactly one extension.
func requireOnlyNamesAndIPs(c judgedRequest) string {
	const tagDNS, tagIP = 2, 7
	// crypto/x509 skips unknown kinds of general names, but a signer may copy them.
	names, ok := decodeExactly[[]asn1.RawValue](c.parsed.Extensions[0].Value)
	if !ok || len(names) == 0 {
		return "expected a list of DNS names and IP addresses in subjectAltName, found an empty or malformed one"
	}
	for _, name := range names {
		if name.Class != asn1.ClassContextSpecific || name.Tag != tagDNS && name.Tag != tagIP {
			return "expected only DNS names and IP addresses in subjectAltName, found " + generalNameKind(name)
		}
	}
	return ""
}

// requestedExtensions returns a request's extensions.
func requestedExtensions(der []byte) (extensions []pkix.Extension, problem string) {
	// crypto/x509 skips unknown attributes, additional values of known ones, and the version. Skipped parts could be
	// copied to the certificate.
	info, ok := decodeExactly[requestInfo](der)
	if !ok || info.Version != 0 {
		return nil, "expected a PKCS #10 request of version 1, found another structure"
	}
	if len(info.RawAttributes) == 0 {
		return nil, ""
	}
	first, ok := decodeExactly[pkcs10Attribute](info.RawAttributes[0].FullBytes)
	if len(info.RawAttributes) > 1 || !ok || !first.ID.Equal(oidExtensionRequest()) || len(first.Values) != 1 {
		return nil, "expected exactly one attribute, extensionRequest with one value, found other attributes"
	}
	extensions, ok = decodeExactly[[]pkix.Extension](first.Values[0].FullBytes)
	if !ok {
		return nil, "expected a list of extensions in extensionRequest, found other data"
	}
	return extensions, ""
}

func extensionNames(extensions []pkix.Extension) string {
	names := make([]string, 0, len(extensions))
	for _, extension := range extensions {
		if extension.Id.Equal(oidSubjectAltName()) {
			names = append(names, "subjectAltName")
			continue
		}
		names = append(names, extension.Id.String())
	}
	return quoteSorted(names)
}

func generalNameKind(name asn1.RawValue) string {
	const tagEmail, tagURI = 1, 6
	switch name.Tag {
	case tagEmail:
		return "an e-mail address"
	case tagURI:
		return "a URI"
	default:
		return fmt.Sprintf("a name of kind %d", name.Tag)
	}
}
