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
		"a request with three usages, for every address of the machine: approved": {withMoreUsages(certificatesv1.UsageKeyEncipherment), accepted()},
		"two usages: approved": {func(*testRequest) {}, accepted()},
		"one DNS name: approved": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = []string{"n1"}, nil
		}, accepted()},
		"one IP address: approved": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.1")}
		}, accepted()},
		"a host name in the form of an IP address: approved": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.9")}
		}, accepted()},
		"an IP address as a DNS name: not approved": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = []string{"10.0.0.9"}, nil
		}, left("own-addresses", `found "10.0.0.9"`)},
		"an organisational unit: not approved": {withOrganizationalUnit, left("subject", `"2.5.4.11"`)},
		"a common name without the prefix: not approved": {func(a *testRequest) {
			a.template.Subject.CommonName = "n1"
		}, left("common-name", `found "n1"`)},
		"a user without the prefix: not approved":         {withUser("n1"), left("user", `found "n1"`)},
		"an empty node name: not approved":                {ofNode(""), left("common-name", `found "system:node:"`)},
		"a bad signature: not approved":                   {rewrittenBy(breakSignature), left("signature", "does not verify")},
		"the signer of client certificates: not approved": {withSigner(certificatesv1.KubeAPIServerClientKubeletSignerName), left("user", "expected the user")},
		"a foreign signer: not approved":                  {withSigner("example.com/serving"), left("signer", `found "example.com/serving"`)},
		"the user is another node: not approved": {
			withUser("system:node:n2"),
			left("user", `expected the user "system:node:n1" as in the common name, found "system:node:n2"`),
		},
		"the common name is another node: not approved": {withCommonName("system:node:n2"), left("user", `found "system:node:n1"`)},
		"the user is a bootstrapper: not approved":      {withUser(mcoUser), left("user", "expected the user")},
		"a requester with one group: not approved":      {withGroups(nodes), left("groups", `found "system:nodes"`)},
		"a requester outside the group system:authenticated: not approved": {
			withGroups(nodes, "x"),
			left("groups", `expected a requester in the groups "system:authenticated", "system:nodes", found "system:nodes", "x"`),
		},
		"a requester outside the group system:nodes: not approved": {withGroups(authed, "x"), left("groups", "expected a requester in the groups")},
		"a requester with a third group: not approved":             {withMoreGroups("system:masters"), left("groups", `"system:masters"`)},
		"a second organisation: not approved":                      {withOrganizations(nodes, "system:masters"), left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"another organisation: not approved":                       {withOrganizations("x"), left("subject", `found "x"`)},
		"an e-mail address: not approved":                          {withEmail, left("names", "found an e-mail address")},
		"a URI: not approved":                                      {func(a *testRequest) { a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, left("names", "found a URI")},
		"another kind of name, which x509 skips: not approved": {
			rawRequest{attributes: [][]byte{extensionRequest(
				altNames(tlv(tagDNS, []byte("n1")), tlv(tagOther, oid(1, 3, 9999), tlv(tagOther, []byte{0x05, 0x00}))))}}.applyTo,
			left("names", "found a name of kind 0"),
		},
		"a directory name: not approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDirectory, tlv(tagSequence))))}}.applyTo, left("names", "found a name of kind 4")},
		"a SAN of another ASN.1 class: not approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDNS, []byte("n1")), tlv(0x02, []byte{1})))}}.applyTo, left("names", "found a name of kind 2")},
		"no SAN: not approved": {
			func(a *testRequest) { a.template.DNSNames, a.template.IPAddresses = nil, nil },
			left("extensions", "expected the extension subjectAltName alone, found none"),
		},
		"an empty SAN: not approved": {rawRequest{attributes: [][]byte{extensionRequest(altNames())}}.applyTo, left("names", "found an empty or malformed one")},
		"bytes after the SAN: not approved": {func(a *testRequest) {
			san := append(tlv(tagSequence, tlv(tagDNS, []byte("n1"))), 0x05, 0x00)
			a.template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: san}}
		}, left("names", "malformed")},
		"a name of another machine: not approved": {
			withDNSNames("n1", "n2"),
			left("own-addresses", `expected only addresses of the machine of node "n1", found "n2"`),
		},
		"an IP address of another machine: not approved": {withIPs("10.0.0.2"), left("own-addresses", `found "10.0.0.2"`)},
		"two foreign addresses, listed in order: not approved": {func(a *testRequest) {
			a.template.DNSNames = []string{"n2"}
			a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")}
		}, left("own-addresses", `found "10.0.0.2", "n2"`)},
		"a wildcard: not approved":                            {withDNSNames("*.example.com"), left("own-addresses", `"*.example.com"`)},
		"a name that is an internal IP address: not approved": {withDNSNames("10.0.0.1"), left("own-addresses", `"10.0.0.1"`)},
		"an address of a kind that proves nothing: not approved": {func(a *testRequest) {
			a.machine().Addresses = append(a.machine().Addresses, address("Alias", "alias"))
			a.template.DNSNames = []string{"alias"}
		}, left("own-addresses", `"alias"`)},
		"a node without a machine: not approved yet":    {ofNode("orphan"), retried("machine", `expected a machine for node "orphan", found none`)},
		"a machine without a node: not approved yet":    {ofNode("fresh"), retried("node", `expected the node "fresh" to exist`)},
		"two machines of the name: not approved yet":    {ofNode("twin"), retried("one-machine", "found 2")},
		"a machine without addresses: not approved yet": {ofNode("bare"), retried("addresses", `expected the machine of node "bare" to have addresses`)},
		"an empty DNS name: not approved yet":           {func(a *testRequest) { a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "")} }, retried("addresses", "found none")},
		"a DNS name with a trailing dot: approved":      {withDNSNames("n1.example.com."), accepted()},
		"a DNS name in another case: approved":          {withDNSNames("N1.Example.COM"), accepted()},
		"a machine name in another case: approved":      {func(a *testRequest) { a.machine().Addresses[2].Address = "N1.EXAMPLE.com." }, accepted()},
		"an IPv6 address that is written in full: approved": {func(a *testRequest) {
			a.machine().Addresses[4].Address = "FD00:0:0:0:0:0:0:1"
		}, accepted()},
		"an IPv4 address that the machine has as mapped IPv6: approved": {func(a *testRequest) { a.machine().Addresses[3].Address = "::ffff:10.0.0.1" }, accepted()},
		"an IPv4 address that the request has as mapped IPv6: approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagIP, net.ParseIP("10.0.0.1").To16())))}}.applyTo, accepted()},
		"a lone dot as the DNS name: not approved":                   {withDNSNames("."), left("own-addresses", `"."`)},
		"the usage client auth in addition: not approved":            {withMoreUsages(certificatesv1.UsageClientAuth), left("usages", `found "client auth", "digital signature", "server auth"`)},
		"the usage client auth instead of server auth: not approved": {func(a *testRequest) { a.Spec.Usages[1] = certificatesv1.UsageClientAuth }, left("usages", "expected the usages")},
		"all four usages: not approved":                              {withMoreUsages(certificatesv1.UsageClientAuth, certificatesv1.UsageKeyEncipherment), left("usages", "expected the usages")},
		"a very long validity: approved":                             {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"RSA with 1024 bits: not approved":                           {signedBy(keys().rsa1024), left("key", "found RSA with 1024 bits")},
		"RSA with 2048 bits: approved":                               {signedBy(keys().rsa2048), accepted()},
		"the machine is deleted: not approved":                       {ofNode("leaving"), left("deleting", "to stay, found that it is being deleted")},
		"the node was created again: not approved":                   {ofNode("replaced"), left("node-uid", `found "uid-new"`)},
		"CA:true":                                    {withCA, left("extensions", `found "2.5.29.19", "subjectAltName"`)},
		"an unknown extension: not approved":         {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1", "subjectAltName"`)},
		"only another extension: not approved":       {rawRequest{attributes: [][]byte{extensionRequest(extension(oid(2, 5, 29, 15), []byte{5, 0}))}}.applyTo, left("extensions", `found "2.5.29.15"`)},
		"a challenge password: not approved":         {rawRequest{attributes: [][]byte{goodSAN(), challengePassword()}}.applyTo, left("extensions", "no attribute but extensionRequest")},
		"two attributes of one kind: not approved":   {rawRequest{attributes: [][]byte{goodSAN(), extensionRequest()}}.applyTo, left("extensions", "once")},
		"an attribute with two values: not approved": {rawRequest{attributes: [][]byte{twoValues()}}.applyTo, left("extensions", "with one value")},
		"a malformed attribute: not approved":        {rawRequest{attributes: [][]byte{{0x05, 0x00}}}.applyTo, left("extensions", "found others")},
		"an extension request that is not DER: not approved": {
			rawRequest{attributes: [][]byte{looseExtensions()}}.applyTo,
			left("extensions", "expected a list of extensions in extensionRequest"),
		},
		"bytes after the attributes: not approved": {
			rawRequest{attributes: [][]byte{goodSAN()}, infoTail: []byte{0x05, 0x00}}.applyTo,
			left("extensions", "found another structure"),
		},
	})
}

func goodSAN() []byte { return extensionRequest(altNames(tlv(tagDNS, []byte("n1")))) }

func challengePassword() []byte {
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 7), tlv(tagSet, tlv(0x0c, []byte("word"))))
}

// twoValues hides further extensions in a second value, which x509 skips.
func twoValues() []byte {
	san := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n1"))))
	more := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n2"))))
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 14), tlv(tagSet, san, more))
}

// looseExtensions has an element after the value of an extension, which encoding/asn1 skips.
func looseExtensions() []byte {
	san := tlv(tagSequence, oid(2, 5, 29, 17), tlv(tagOctets, tlv(tagSequence, tlv(tagDNS, []byte("n1")))), []byte{0x05, 0x00})
	return extensionRequest(san)
}
