// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509"
	"net"
	"net/url"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestClientRequests(t *testing.T) {
	runJudged(t, openShiftRequest, map[string]judgeCase{
		"row 1: three usages, the node exists and a machine has its name": {func(a *testRequest) {
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, accepted()},
		"row 1: an RSA key of 2048 bits": {func(a *testRequest) {
			a.key = keys().rsa2048
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, accepted()},
		"row 2: two usages, as an ECDSA kubelet asks": {func(*testRequest) {}, accepted()},
		"row 2: the usages in another order": {func(a *testRequest) {
			a.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
		}, accepted()},
		"row 2: a usage too few": {
			func(a *testRequest) { a.Spec.Usages = a.Spec.Usages[1:] },
			left("usages", `expected the usages "client auth", "digital signature", with or without "key encipherment", found "client auth"`),
		},
		"row 2: no usage": {func(a *testRequest) { a.Spec.Usages = nil }, left("usages", "found none")},
		"row 2: the same usage twice": {func(a *testRequest) {
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageClientAuth)
		}, left("usages", `found "client auth", "client auth", "digital signature"`)},
		"row 6: the node does not exist": {
			func(a *testRequest) { a.renameNode("fresh") },
			left("node", `expected the node "fresh" to exist, found none`),
		},
		"row 6: the node exists under a name in other case": {
			func(a *testRequest) { a.renameNode("N1") },
			left("node", `expected the node "N1" to exist`),
		},
		"row 7: no machine may take the name": {
			func(a *testRequest) { a.renameNode("orphan") },
			left("machine", `expected a machine for node "orphan", found none`),
		},
		"row 7: the machine's name differs in case and trailing dot": {func(a *testRequest) {
			a.machine().NodeName = "N1."
		}, accepted()},
		"row 7: a machine that is not the asker's is no obstacle": {func(a *testRequest) { a.renameNode("n2") }, accepted()},
		"row 7: two machines claim the name": {
			func(a *testRequest) { a.renameNode("twin") },
			retried("one-machine", `expected one machine for node "twin", found 2`),
		},
		"row 8: another service account": {
			func(a *testRequest) { a.Spec.Username = "system:serviceaccount:default:default" },
			left("user", `found "system:serviceaccount:default:default"`),
		},
		"row 8: a user whose name only starts alike": {func(a *testRequest) { a.Spec.Username += "-2" }, left("user", "expected the user")},
		"row 8: a node asks for itself": {func(a *testRequest) {
			a.Spec.Username, a.Spec.Groups = "system:node:n1", []string{nodes, authed}
		}, left("user", `found "system:node:n1"`)},
		"row 8: no bootstrapper is allowed": {func(a *testRequest) { a.inv.Bootstrappers = nil }, left("user", "one of none")},
		"row 8: a token user where only the service account is allowed": {func(a *testRequest) {
			a.inv.Bootstrappers = []BootstrapIdentity{OpenShiftIdentity()}
			a.Spec.Username, a.Spec.Groups = tokenUser, []string{tokenGroup, authed}
		}, left("user", `one of "`+mcoUser+`", found "system:bootstrap:abcdef"`)},
		"row 9: the exact three groups in another order": {func(a *testRequest) {
			a.Spec.Groups = []string{authed, allSAs, mcoGroup}
		}, accepted()},
		"row 9: the groups of the other bootstrapper": {func(a *testRequest) {
			a.Spec.Groups = []string{tokenGroup, authed}
		}, left("groups", `found "system:authenticated", "system:bootstrappers"`)},
		"row 10: two groups on a control-plane machine": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, accepted()},
		"row 10: three groups on a control-plane machine": {func(a *testRequest) { a.renameNode("m1") }, accepted()},
		"row 10: two groups on a worker": {func(a *testRequest) {
			a.Spec.Groups = []string{mcoGroup, authed}
		}, left("groups", `expected the groups "system:authenticated", "system:serviceaccounts", "`+mcoGroup+`", found`)},
		"row 10: two groups in the name of no machine": {func(a *testRequest) {
			a.renameNode("orphan")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, left("groups", "expected the groups")},
		"row 10: the other two groups on a control-plane machine": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{allSAs, authed}
		}, left("groups", "expected the groups")},
		"row 11: an extra group": {
			func(a *testRequest) { a.Spec.Groups = append(a.Spec.Groups, "system:masters") },
			left("groups", `"system:masters"`),
		},
		"row 11: a group twice": {func(a *testRequest) { a.Spec.Groups = append(a.Spec.Groups, authed) }, left("groups", "expected the groups")},
		"row 11: no groups":     {func(a *testRequest) { a.Spec.Groups = nil }, left("groups", "found none")},
		"row 12: a DNS name":    {func(a *testRequest) { a.template.DNSNames = []string{"n1"} }, left("extensions", `found "subjectAltName"`)},
		"row 12: an IP address": {func(a *testRequest) {
			a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.1")}
		}, left("extensions", `found "subjectAltName"`)},
		"row 12: an e-mail address": {
			func(a *testRequest) { a.template.EmailAddresses = []string{"a@b.example"} },
			left("extensions", `found "subjectAltName"`),
		},
		"row 13: a URI": {func(a *testRequest) {
			a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, left("extensions", `found "subjectAltName"`)},
		"row 14: another organisation": {
			func(a *testRequest) { a.template.Subject.Organization = []string{"system:masters"} },
			left("subject", `expected the organisation "system:nodes", found "system:masters"`),
		},
		"row 14: a second organisation": {func(a *testRequest) {
			a.template.Subject.Organization = []string{nodes, "system:masters"}
		}, left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"row 14: no organisation": {func(a *testRequest) { a.template.Subject.Organization = nil }, left("subject", `found "2.5.4.3"`)},
		"row 14: an organisational unit": {
			func(a *testRequest) { a.template.Subject.OrganizationalUnit = []string{"x"} },
			left("subject", `"2.5.4.11"`),
		},
		"row 14: a serial number in the subject": {func(a *testRequest) { a.template.Subject.SerialNumber = "7" }, left("subject", `"2.5.4.5"`)},
		"row 15: a common name without the prefix": {
			func(a *testRequest) { a.template.Subject.CommonName = "n1" },
			left("common-name", `expected the common name "system:node:" and a node name, found "n1"`),
		},
		"row 15: an empty node name":       {func(a *testRequest) { a.renameNode("") }, left("common-name", `found "system:node:"`)},
		"row 15: no common name":           {func(a *testRequest) { a.template.Subject.CommonName = "" }, left("subject", `found "2.5.4.10"`)},
		"row 16: bad signature":            {func(a *testRequest) { a.rewrite = breakSignature }, left("signature", "does not verify")},
		"row 17: the signer of all":        {func(a *testRequest) { a.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName }, left("signer", "expected the signer")},
		"row 17: crossed with serving":     {func(a *testRequest) { a.Spec.SignerName = certificatesv1.KubeletServingSignerName }, left("groups", "expected the groups")},
		"row 32: a very long life":         {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"row 33: RSA with 1024 bits":       {func(a *testRequest) { a.key = keys().rsa1024 }, left("key", "found RSA with 1024 bits")},
		"row 33: ECDSA P-224":              {func(a *testRequest) { a.key = keys().p224 }, left("key", "found ECDSA P-224")},
		"row 33: ECDSA P-384 is strong":    {func(a *testRequest) { a.key = keys().p384 }, accepted()},
		"row 33: ECDSA P-521 is strong":    {func(a *testRequest) { a.key = keys().p521 }, accepted()},
		"row 33: Ed25519 is strong":        {func(a *testRequest) { a.key = keys().ed25519 }, accepted()},
		"row 33: RSA with 16384 bits":      {rawRequest{spki: rsaOf(16384)}.applyTo, left("key", "found RSA with 16384 bits")},
		"row 33: RSA with 8192 bits":       {rawRequest{spki: rsaOf(8192)}.applyTo, left("signature", "does not verify")},
		"row 33: RSA with 8193 bits":       {rawRequest{spki: rsaOf(8193)}.applyTo, left("key", "found RSA with 8193 bits")},
		"row 33: a key that cannot sign":   {rawRequest{spki: exchangeKey()}.applyTo, left("key", "found another algorithm")},
		"row 33: a signature over SHA-1":   {func(a *testRequest) { a.template.SignatureAlgorithm = x509.ECDSAWithSHA1 }, left("signature", "found ECDSA-SHA1")},
		"row 35: the machine is deleted":   {func(a *testRequest) { a.renameNode("leaving") }, left("deleting", `expected the machine of node "leaving" to stay`)},
		"row 35: the node was made anew":   {func(a *testRequest) { a.renameNode("replaced") }, left("node-uid", `the recorded UID "uid-old", found "uid-new"`)},
		"row 35: the node has no UID":      {func(a *testRequest) { a.inv.Nodes[0].UID = "" }, left("node-uid", `found ""`)},
		"row 35: no UID was recorded":      {func(a *testRequest) { a.machine().NodeUID = types.UID("") }, accepted()},
		"row 36: CA:true":                  {withCA, left("extensions", `expected no extension, found "2.5.29.19"`)},
		"row 36: an unknown extension":     {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1"`)},
		"row 36: two extensions, sorted":   {func(a *testRequest) { withExtension(2, 9, 1)(a); withExtension(1, 9, 1)(a) }, left("extensions", `found "1.9.1", "2.9.1"`)},
		"row 36: a challenge password":     {rawRequest{attributes: [][]byte{challengePassword()}}.applyTo, left("extensions", "no attribute but extensionRequest")},
		"row 36: bytes after attributes":   {rawRequest{infoTail: []byte{0x05, 0x00}}.applyTo, left("extensions", "found another structure")},
		"row 36: version 2":                {rawRequest{version: []byte{0x02, 0x01, 0x01}}.applyTo, left("extensions", "of version 1")},
		"row 36: an empty list is nothing": {rawRequest{attributes: [][]byte{extensionRequest()}}.applyTo, accepted()},
	})
}

func TestTokenRequests(t *testing.T) {
	runJudged(t, tokenRequest, map[string]judgeCase{
		"row 2: as a kubelet of plain Kubernetes asks": {func(*testRequest) {}, accepted()},
		"row 9: one more bootstrap group": {func(a *testRequest) {
			a.Spec.Groups = append(a.Spec.Groups, "system:bootstrappers:workers")
		}, accepted()},
		"row 11: an extra group that is no bootstrap group": {func(a *testRequest) {
			a.Spec.Groups = append(a.Spec.Groups, "system:masters")
		}, left("groups", `found "system:authenticated", "system:bootstrappers", "system:masters"`)},
		"row 11: a bootstrap group without a name": {func(a *testRequest) {
			a.Spec.Groups = append(a.Spec.Groups, "system:bootstrappers:")
		}, left("groups", `"system:bootstrappers:"`)},
		"row 11: only a bootstrap group on top": {func(a *testRequest) {
			a.Spec.Groups = []string{"system:bootstrappers:workers", authed}
		}, left("groups", "expected the groups")},
		"row 11: not authenticated": {func(a *testRequest) { a.Spec.Groups = a.Spec.Groups[:1] }, left("groups", "expected the groups")},
		"row 8: a token id that is too short": {
			func(a *testRequest) { a.Spec.Username = "system:bootstrap:abcde" },
			left("user", `"system:bootstrap:<token id>"`),
		},
		"row 8: a token id that is too long": {func(a *testRequest) { a.Spec.Username += "g" }, left("user", "expected the user")},
		"row 8: a token id with a bad letter inside": {
			func(a *testRequest) { a.Spec.Username = "system:bootstrap:ab:def" },
			left("user", "expected the user"),
		},
		"row 8: a token id with a capital": {func(a *testRequest) { a.Spec.Username = "system:bootstrap:Abcdef" }, left("user", "expected the user")},
		"row 8: another user with six letters": {
			func(a *testRequest) { a.Spec.Username = "system:bootstrep:abcdef" },
			left("user", "expected the user"),
		},
		"row 10: a control-plane machine has no other groups with tokens": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{authed}
		}, left("groups", "expected the groups")},
	})
}
