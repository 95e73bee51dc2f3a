// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestServingRequests(t *testing.T) {
	runJudged(t, servingRequest, map[string]judgeCase{
		"row 3: three usages, every address of the machine": {func(a *testRequest) {
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, accepted()},
		"row 4: two usages": {func(*testRequest) {}, accepted()},
		"row 5: one name": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = []string{"n1"}, nil
		}, accepted()},
		"row 5: one IP address": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.1")}
		}, accepted()},
		"row 5: a host name in the form of an IP address": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.9")}
		}, accepted()},
		"row 5: that host name as a DNS name": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = []string{"10.0.0.9"}, nil
		}, left("own-addresses", `found "10.0.0.9"`)},
		"row 14: an organisational unit": {
			func(a *testRequest) { a.template.Subject.OrganizationalUnit = []string{"x"} },
			left("subject", `"2.5.4.11"`),
		},
		"row 15: a common name without the prefix": {func(a *testRequest) {
			a.template.Subject.CommonName, a.Spec.Username = "n1", "n1"
		}, left("common-name", `found "n1"`)},
		"row 15: an empty node name": {func(a *testRequest) { a.renameNode("") }, left("common-name", `found "system:node:"`)},
		"row 16: a bad signature":    {func(a *testRequest) { a.rewrite = breakSignature }, left("signature", "does not verify")},
		"row 17: crossed with client": {
			func(a *testRequest) { a.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName },
			left("user", "expected the user"),
		},
		"row 17: a signer of somebody else": {
			func(a *testRequest) { a.Spec.SignerName = "example.com/serving" },
			left("signer", `found "example.com/serving"`),
		},
		"row 18: the user is another node": {
			func(a *testRequest) { a.Spec.Username = "system:node:n2" },
			left("user", `expected the user "system:node:n1" as in the common name, found "system:node:n2"`),
		},
		"row 18: the common name is another node": {
			func(a *testRequest) { a.template.Subject.CommonName = "system:node:n2" },
			left("user", `found "system:node:n1"`),
		},
		"row 18: the bootstrapper asks for it": {func(a *testRequest) { a.Spec.Username = mcoUser }, left("user", "expected the user")},
		"row 19: one group":                    {func(a *testRequest) { a.Spec.Groups = []string{nodes} }, left("groups", `found "system:nodes"`)},
		"row 19: not authenticated": {
			func(a *testRequest) { a.Spec.Groups = []string{nodes, "x"} },
			left("groups", `expected the groups "system:authenticated", "system:nodes", found "system:nodes", "x"`),
		},
		"row 19: not a node": {func(a *testRequest) { a.Spec.Groups = []string{authed, "x"} }, left("groups", "expected the groups")},
		"row 19: a third group": {
			func(a *testRequest) { a.Spec.Groups = append(a.Spec.Groups, "system:masters") },
			left("groups", `"system:masters"`),
		},
		"row 20: a second organisation": {func(a *testRequest) {
			a.template.Subject.Organization = []string{nodes, "system:masters"}
		}, left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"row 20: another organisation": {
			func(a *testRequest) { a.template.Subject.Organization = []string{"x"} },
			left("subject", `found "x"`),
		},
		"row 21: an e-mail address": {
			func(a *testRequest) { a.template.EmailAddresses = []string{"a@b.example"} },
			left("names", "found an e-mail address"),
		},
		"row 21: a URI": {func(a *testRequest) { a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, left("names", "found a URI")},
		"row 21: another kind of name, which x509 passes over": {
			rawRequest{attributes: [][]byte{extensionRequest(
				altNames(tlv(tagDNS, []byte("n1")), tlv(tagOther, oid(1, 3, 9999), tlv(tagOther, []byte{0x05, 0x00}))))}}.applyTo,
			left("names", "found a name of kind 0"),
		},
		"row 21: a directory name": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDirectory, tlv(tagSequence))))}}.applyTo, left("names", "found a name of kind 4")},
		"row 21: a name of another class": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDNS, []byte("n1")), tlv(0x02, []byte{1})))}}.applyTo, left("names", "found a name of kind 2")},
		"row 22: no SAN": {
			func(a *testRequest) { a.template.DNSNames, a.template.IPAddresses = nil, nil },
			left("extensions", "expected the extension subjectAltName alone, found none"),
		},
		"row 22: an empty SAN": {
			rawRequest{attributes: [][]byte{extensionRequest(altNames())}}.applyTo,
			left("names", "found an empty or malformed one"),
		},
		"row 22: bytes after the SAN": {func(a *testRequest) {
			san := append(tlv(tagSequence, tlv(tagDNS, []byte("n1"))), 0x05, 0x00)
			a.template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: san}}
		}, left("names", "malformed")},
		"row 23: a name of another machine": {
			func(a *testRequest) { a.template.DNSNames = []string{"n1", "n2"} },
			left("own-addresses", `expected only addresses of the machine of node "n1", found "n2"`),
		},
		"row 23: an IP address of another machine": {
			func(a *testRequest) { a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")} },
			left("own-addresses", `found "10.0.0.2"`),
		},
		"row 23: two foreign addresses, sorted": {func(a *testRequest) {
			a.template.DNSNames = []string{"n2"}
			a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")}
		}, left("own-addresses", `found "10.0.0.2", "n2"`)},
		"row 23: a wildcard": {func(a *testRequest) { a.template.DNSNames = []string{"*.example.com"} }, left("own-addresses", `"*.example.com"`)},
		"row 23: a name that is an internal IP address": {
			func(a *testRequest) { a.template.DNSNames = []string{"10.0.0.1"} },
			left("own-addresses", `"10.0.0.1"`),
		},
		"row 23: an address of a kind that proves nothing": {func(a *testRequest) {
			a.machine().Addresses = append(a.machine().Addresses, address("Alias", "alias"))
			a.template.DNSNames = []string{"alias"}
		}, left("own-addresses", `"alias"`)},
		"row 24: no machine yet":  {func(a *testRequest) { a.renameNode("orphan") }, retried("machine", `expected a machine for node "orphan", found none`)},
		"row 24: no node yet":     {func(a *testRequest) { a.renameNode("fresh") }, retried("node", `expected the node "fresh" to exist`)},
		"row 24: two machines":    {func(a *testRequest) { a.renameNode("twin") }, retried("one-machine", "found 2")},
		"row 25: no address yet":  {func(a *testRequest) { a.renameNode("bare") }, retried("addresses", `expected the machine of node "bare" to have addresses`)},
		"row 25: an empty name":   {func(a *testRequest) { a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "")} }, retried("addresses", "found none")},
		"row 26: a trailing dot":  {func(a *testRequest) { a.template.DNSNames = []string{"n1.example.com."} }, accepted()},
		"row 26: another case":    {func(a *testRequest) { a.template.DNSNames = []string{"N1.Example.COM"} }, accepted()},
		"row 26: case in machine": {func(a *testRequest) { a.machine().Addresses[2].Address = "N1.EXAMPLE.com." }, accepted()},
		"row 26: IPv6 written in full": {func(a *testRequest) {
			a.machine().Addresses[4].Address = "FD00:0:0:0:0:0:0:1"
		}, accepted()},
		"row 26: IPv4 mapped in the machine": {func(a *testRequest) { a.machine().Addresses[3].Address = "::ffff:10.0.0.1" }, accepted()},
		"row 26: IPv4 mapped in the request": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagIP, net.ParseIP("10.0.0.1").To16())))}}.applyTo, accepted()},
		"row 26: a lone dot is no name": {func(a *testRequest) { a.template.DNSNames = []string{"."} }, left("own-addresses", `"."`)},
		"row 27: client auth added": {func(a *testRequest) {
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageClientAuth)
		}, left("usages", `found "client auth", "digital signature", "server auth"`)},
		"row 27: client auth instead": {func(a *testRequest) { a.Spec.Usages[1] = certificatesv1.UsageClientAuth }, left("usages", "expected the usages")},
		"row 27: all four usages": {func(a *testRequest) {
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageClientAuth, certificatesv1.UsageKeyEncipherment)
		}, left("usages", "expected the usages")},
		"row 32: a very long life":        {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"row 33: RSA with 1024 bits":      {func(a *testRequest) { a.key = keys().rsa1024 }, left("key", "found RSA with 1024 bits")},
		"row 33: RSA with 2048 bits":      {func(a *testRequest) { a.key = keys().rsa2048 }, accepted()},
		"row 35: the machine is deleted":  {func(a *testRequest) { a.renameNode("leaving") }, left("deleting", "found it being deleted")},
		"row 35: the node was made anew":  {func(a *testRequest) { a.renameNode("replaced") }, left("node-uid", `found "uid-new"`)},
		"row 36: CA:true":                 {withCA, left("extensions", `found "2.5.29.19", "subjectAltName"`)},
		"row 36: an unknown extension":    {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1", "subjectAltName"`)},
		"row 36: only another extension":  {rawRequest{attributes: [][]byte{extensionRequest(extension(oid(2, 5, 29, 15), []byte{5, 0}))}}.applyTo, left("extensions", `found "2.5.29.15"`)},
		"row 36: a challenge password":    {rawRequest{attributes: [][]byte{goodSAN(), challengePassword()}}.applyTo, left("extensions", "no attribute but extensionRequest")},
		"row 36: the attribute twice":     {rawRequest{attributes: [][]byte{goodSAN(), extensionRequest()}}.applyTo, left("extensions", "once")},
		"row 36: a second value":          {rawRequest{attributes: [][]byte{twoValues()}}.applyTo, left("extensions", "with one value")},
		"row 36: an attribute of no form": {rawRequest{attributes: [][]byte{{0x05, 0x00}}}.applyTo, left("extensions", "found others")},
		"row 36: no DER in the extension request": {
			rawRequest{attributes: [][]byte{looseExtensions()}}.applyTo,
			left("extensions", "expected a list of extensions in extensionRequest"),
		},
		"row 36: bytes after the attributes": {
			rawRequest{attributes: [][]byte{goodSAN()}, infoTail: []byte{0x05, 0x00}}.applyTo,
			left("extensions", "found another structure"),
		},
	})
}

func goodSAN() []byte { return extensionRequest(altNames(tlv(tagDNS, []byte("n1")))) }

func challengePassword() []byte {
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 7), tlv(tagSet, tlv(0x0c, []byte("word"))))
}

// twoValues hides further extensions in a second value, which x509 passes over.
func twoValues() []byte {
	san := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n1"))))
	more := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n2"))))
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 14), tlv(tagSet, san, more))
}

// looseExtensions has an element after the value of an extension, which encoding/asn1 passes over.
func looseExtensions() []byte {
	san := tlv(tagSequence, oid(2, 5, 29, 17), tlv(tagOctets, tlv(tagSequence, tlv(tagDNS, []byte("n1")))), []byte{0x05, 0x00})
	return extensionRequest(san)
}
