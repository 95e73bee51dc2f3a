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
		"request with three usages for every address of the machine is approved": {withMoreUsages(certificatesv1.UsageKeyEncipherment), accepted()},
		"request with two usages is approved":                                    {func(*testRequest) {}, accepted()},
		"request with one DNS name is approved": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = []string{"n1"}, nil
		}, accepted()},
		"request with one IP address is approved": {func(a *testRequest) {
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.1")}
		}, accepted()},
		"host name in the form of an IP address is approved": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = nil, []net.IP{net.ParseIP("10.0.0.9")}
		}, accepted()},
		"IP address as a DNS name is not approved": {func(a *testRequest) {
			a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "10.0.0.9")}
			a.template.DNSNames, a.template.IPAddresses = []string{"10.0.0.9"}, nil
		}, left("own-addresses", `found "10.0.0.9"`)},
		"organisational unit is not approved": {withOrganizationalUnit, left("subject", `"2.5.4.11"`)},
		"common name without the prefix is not approved": {func(a *testRequest) {
			a.template.Subject.CommonName = "n1"
		}, left("common-name", `found "n1"`)},
		"user without the prefix is not approved":       {withUser("n1"), left("user", `found "n1"`)},
		"empty node name is not approved":               {ofNode(""), left("common-name", `found "system:node:"`)},
		"invalid signature is not approved":             {rewrittenBy(breakSignature), left("signature", "does not verify")},
		"signer of client certificates is not approved": {withSigner(certificatesv1.KubeAPIServerClientKubeletSignerName), left("user", "expected the user")},
		"foreign signer is not approved":                {withSigner("example.com/serving"), left("signer", `found "example.com/serving"`)},
		"user of another node is not approved": {
			withUser("system:node:n2"),
			left("user", `expected the user "system:node:n1", which the common name contains, found "system:node:n2"`),
		},
		"common name of another node is not approved": {withCommonName("system:node:n2"), left("user", `found "system:node:n1"`)},
		"bootstrapper as the user is not approved":    {withUser(mcoUser), left("user", "expected the user")},
		"requester with one group is not approved":    {withGroups(nodes), left("groups", `found "system:nodes"`)},
		"requester outside the group system:authenticated is not approved": {
			withGroups(nodes, "x"),
			left("groups", `expected a requester in the groups "system:authenticated", "system:nodes", found "system:nodes", "x"`),
		},
		"requester outside the group system:nodes is not approved": {withGroups(authed, "x"), left("groups", "expected a requester in the groups")},
		"requester with a third group is not approved":             {withMoreGroups("system:masters"), left("groups", `"system:masters"`)},
		"second organisation is not approved":                      {withOrganizations(nodes, "system:masters"), left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"organisation other than system:nodes is not approved":     {withOrganizations("x"), left("subject", `found "x"`)},
		"e-mail address is not approved":                           {withEmail, left("names", "found an e-mail address")},
		"URI is not approved":                                      {func(a *testRequest) { a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, left("names", "found a URI")},
		"unknown kind of name, which x509 skips, is not approved": {
			rawRequest{attributes: [][]byte{extensionRequest(
				altNames(tlv(tagDNS, []byte("n1")), tlv(tagOther, oid(1, 3, 9999), tlv(tagOther, []byte{0x05, 0x00}))))}}.applyTo,
			left("names", "found a name of kind 0"),
		},
		"directory name is not approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDirectory, tlv(tagSequence))))}}.applyTo, left("names", "found a name of kind 4")},
		"SAN name with another ASN.1 class is not approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagDNS, []byte("n1")), tlv(0x02, []byte{1})))}}.applyTo, left("names", "found a name of kind 2")},
		"request without a SAN is not approved": {
			func(a *testRequest) { a.template.DNSNames, a.template.IPAddresses = nil, nil },
			left("extensions", "expected the extension subjectAltName alone, found none"),
		},
		"empty SAN is not approved": {rawRequest{attributes: [][]byte{extensionRequest(altNames())}}.applyTo, left("names", "found an empty or malformed one")},
		"bytes after the SAN are not approved": {func(a *testRequest) {
			san := append(tlv(tagSequence, tlv(tagDNS, []byte("n1"))), 0x05, 0x00)
			a.template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: san}}
		}, left("names", "malformed")},
		"name of another machine is not approved": {
			withDNSNames("n1", "n2"),
			left("own-addresses", `expected only addresses of the machine of node "n1", found "n2"`),
		},
		"IP address of another machine is not approved": {withIPs("10.0.0.2"), left("own-addresses", `found "10.0.0.2"`)},
		"two foreign addresses are not approved, and are listed in order": {func(a *testRequest) {
			a.template.DNSNames = []string{"n2"}
			a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")}
		}, left("own-addresses", `found "10.0.0.2", "n2"`)},
		"wildcard is not approved":                          {withDNSNames("*.example.com"), left("own-addresses", `"*.example.com"`)},
		"internal IP address as a DNS name is not approved": {withDNSNames("10.0.0.1"), left("own-addresses", `"10.0.0.1"`)},
		"address of an unknown type is not approved": {func(a *testRequest) {
			a.machine().Addresses = append(a.machine().Addresses, address("Alias", "alias"))
			a.template.DNSNames = []string{"alias"}
		}, left("own-addresses", `"alias"`)},
		"node without a machine is not approved yet":        {ofNode("orphan"), retried("machine", `expected a machine for node "orphan", found none`)},
		"machine without a node is not approved yet":        {ofNode("fresh"), retried("node", `expected the node "fresh" to exist`)},
		"node name with two machines is not approved yet":   {ofNode("twin"), retried("one-machine", "found 2")},
		"machine without addresses is not approved yet":     {ofNode("bare"), retried("addresses", `expected the machine of node "bare" to have addresses`)},
		"machine with an empty address is not approved yet": {func(a *testRequest) { a.machine().Addresses = []corev1.NodeAddress{address(corev1.NodeHostName, "")} }, retried("addresses", "found none")},
		"DNS name with a trailing dot is approved":          {withDNSNames("n1.example.com."), accepted()},
		"DNS name in another case is approved":              {withDNSNames("N1.Example.COM"), accepted()},
		"machine name in another case is approved":          {func(a *testRequest) { a.machine().Addresses[2].Address = "N1.EXAMPLE.com." }, accepted()},
		"IPv6 address that is written in full is approved": {func(a *testRequest) {
			a.machine().Addresses[4].Address = "FD00:0:0:0:0:0:0:1"
		}, accepted()},
		"IPv4 address that the machine has as mapped IPv6 is approved": {func(a *testRequest) { a.machine().Addresses[3].Address = "::ffff:10.0.0.1" }, accepted()},
		"IPv4 address that the request has as mapped IPv6 is approved": {rawRequest{attributes: [][]byte{extensionRequest(
			altNames(tlv(tagIP, net.ParseIP("10.0.0.1").To16())))}}.applyTo, accepted()},
		"lone dot as the DNS name is not approved":                        {withDNSNames("."), left("own-addresses", `"."`)},
		"additional usage client auth is not approved":                    {withMoreUsages(certificatesv1.UsageClientAuth), left("usages", `found "client auth", "digital signature", "server auth"`)},
		"usage client auth instead of server auth is not approved":        {func(a *testRequest) { a.Spec.Usages[1] = certificatesv1.UsageClientAuth }, left("usages", "expected the usages")},
		"all four usages together are not approved":                       {withMoreUsages(certificatesv1.UsageClientAuth, certificatesv1.UsageKeyEncipherment), left("usages", "expected the usages")},
		"very long validity is approved":                                  {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"RSA key of 1024 bits is not approved":                            {signedBy(keys().rsa1024), left("key", "found RSA with 1024 bits")},
		"RSA key of 2048 bits is approved":                                {signedBy(keys().rsa2048), accepted()},
		"node of a machine that is being deleted is not approved":         {ofNode("leaving"), left("deleting", "not to be deleted, found that it is being deleted")},
		"node with another UID than the recorded one is not approved":     {ofNode("replaced"), left("node-uid", `found "uid-new"`)},
		"CA certificate is not approved":                                  {withCA, left("extensions", `found "2.5.29.19", "subjectAltName"`)},
		"unknown extension is not approved":                               {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1", "subjectAltName"`)},
		"request with another extension instead of a SAN is not approved": {rawRequest{attributes: [][]byte{extensionRequest(extension(oid(2, 5, 29, 15), []byte{5, 0}))}}.applyTo, left("extensions", `found "2.5.29.15"`)},
		"challenge password is not approved":                              {rawRequest{attributes: [][]byte{goodSAN(), challengePassword()}}.applyTo, left("extensions", "exactly one attribute, extensionRequest")},
		"two attributes of one kind are not approved":                     {rawRequest{attributes: [][]byte{goodSAN(), extensionRequest()}}.applyTo, left("extensions", "exactly one attribute")},
		"extensionRequest attribute with two values is not approved":      {rawRequest{attributes: [][]byte{twoValues()}}.applyTo, left("extensions", "with one value")},
		"malformed attribute is not approved":                             {rawRequest{attributes: [][]byte{{0x05, 0x00}}}.applyTo, left("extensions", "found other attributes")},
		"extension request that is not DER is not approved": {
			rawRequest{attributes: [][]byte{looseExtensions()}}.applyTo,
			left("extensions", "expected a list of extensions in extensionRequest"),
		},
		"bytes after the attributes are not approved": {
			rawRequest{attributes: [][]byte{goodSAN()}, infoTail: []byte{0x05, 0x00}}.applyTo,
			left("extensions", "found another structure"),
		},
	})
}

func goodSAN() []byte { return extensionRequest(altNames(tlv(tagDNS, []byte("n1")))) }

func challengePassword() []byte {
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 7), tlv(tagSet, tlv(0x0c, []byte("word"))))
}

// twoValues hides another SAN in a second value of the attribute. x509 skips that value.
func twoValues() []byte {
	san := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n1"))))
	more := tlv(tagSequence, altNames(tlv(tagDNS, []byte("n2"))))
	return tlv(tagSequence, oid(1, 2, 840, 113549, 1, 9, 14), tlv(tagSet, san, more))
}

// looseExtensions adds an element after the value of an extension. encoding/asn1 skips that element.
func looseExtensions() []byte {
	san := tlv(tagSequence, oid(2, 5, 29, 17), tlv(tagOctets, tlv(tagSequence, tlv(tagDNS, []byte("n1")))), []byte{0x05, 0x00})
	return extensionRequest(san)
}
