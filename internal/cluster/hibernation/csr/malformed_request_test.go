// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"testing"
)

// tlv encodes one DER element. The tests encode DER that crypto/x509 refuses to create.
func tlv(tag byte, parts ...[]byte) []byte {
	var body []byte
	for _, part := range parts {
		body = append(body, part...)
	}
	switch n := len(body); {
	case n < 0x80:
		return append([]byte{tag, byte(n)}, body...)
	case n < 0x100:
		return append([]byte{tag, 0x81, byte(n)}, body...)
	default:
		return append([]byte{tag, 0x82, byte(n >> 8), byte(n)}, body...)
	}
}

const (
	tagSequence, tagSet, tagOctets, tagBits, tagAttributes = 0x30, 0x31, 0x04, 0x03, 0xa0
	// Tags of the general names in subjectAltName.
	tagOther, tagEmail, tagDNS, tagDirectory, tagURI, tagIP, tagRegisteredID = 0xa0, 0x81, 0x82, 0xa4, 0x86, 0x87, 0x88
)

// rawRequest describes a request by its raw parts. A nil part is replaced by an ordinary value.
type rawRequest struct {
	version    []byte
	spki       []byte
	attributes [][]byte
	infoTail   []byte // infoTail follows the attributes, and is signed.
	outerTail  []byte // outerTail follows the signature.
}

func oid(parts ...int) []byte { return must(asn1.Marshal(asn1.ObjectIdentifier(parts))) }

func extension(id []byte, value []byte) []byte {
	return tlv(tagSequence, id, tlv(tagOctets, value))
}

// altNames encodes the extension subjectAltName with raw general names.
func altNames(names ...[]byte) []byte {
	return extension(oid(2, 5, 29, 17), tlv(tagSequence, names...))
}

// extensionRequest encodes the attribute that contains extensions.
func extensionRequest(extensions ...[]byte) []byte {
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 14), tlv(tagSet, tlv(tagSequence, extensions...)))
}

// rewrite returns a replacement for a finished request. The replacement has the raw parts and a correct signature.
func (h rawRequest) rewrite(finished []byte) []byte {
	block, _ := pem.Decode(finished)
	ordinary := must(x509.ParseCertificateRequest(block.Bytes))
	version, spki := []byte{0x02, 0x01, 0x00}, ordinary.RawSubjectPublicKeyInfo
	if h.version != nil {
		version = h.version
	}
	if h.spki != nil {
		spki = h.spki
	}
	attributes := tlv(tagAttributes, h.attributes...)
	if h.attributes == nil {
		parts := elements(elements(ordinary.RawTBSCertificateRequest)[0].body)
		attributes = parts[len(parts)-1].whole
	}
	info := tlv(tagSequence, version, ordinary.RawSubject, spki, attributes, h.infoTail)
	digest := sha256.Sum256(info)
	signature := must(keys().p256.Sign(rand.Reader, digest[:], nil))
	ecdsaWithSHA256 := tlv(tagSequence, oid(1, 2, 840, 10045, 4, 3, 2))
	return toPEM(tlv(tagSequence, info, ecdsaWithSHA256, tlv(tagBits, []byte{0}, signature), h.outerTail))
}

// applyTo replaces the request with the hostile one.
func (h rawRequest) applyTo(a *testRequest) { a.rewrite = h.rewrite }

func TestRawRequestsAreOrdinaryByDefault(t *testing.T) {
	serving := servingRequest()
	rawRequest{attributes: [][]byte{extensionRequest(altNames(tlv(tagDNS, []byte("n1")), tlv(tagIP, []byte{10, 0, 0, 1})))}}.applyTo(serving)
	client := tokenRequest()
	rawRequest{attributes: [][]byte{}}.applyTo(client)
	for name, a := range map[string]*testRequest{"client": client, "serving": serving} {
		t.Run(name, func(t *testing.T) {
			if v := JudgeRequest(a.finish(t), a.inv); v.Decision != Approve {
				t.Errorf("the builder of hostile requests writes bad ordinary ones: %+v", v)
			}
		})
	}
}

func withExtension(parts ...int) func(*testRequest) {
	return func(a *testRequest) {
		a.template.ExtraExtensions = append(a.template.ExtraExtensions, pkix.Extension{Id: parts, Value: []byte{0x05, 0x00}})
	}
}

func withCA(a *testRequest) {
	a.template.ExtraExtensions = append(a.template.ExtraExtensions,
		pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: tlv(tagSequence, []byte{0x01, 0x01, 0xff})})
}
