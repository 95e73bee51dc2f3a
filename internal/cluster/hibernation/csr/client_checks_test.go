// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509"
	"net/url"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestClientRequests(t *testing.T) {
	runJudged(t, openShiftRequest, map[string]judgeCase{
		"request with three usages for an existing node with a machine is approved": {withMoreUsages(certificatesv1.UsageKeyEncipherment), accepted()},
		"RSA key of 2048 bits is approved": {func(a *testRequest) {
			a.key = keys().rsa2048
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, accepted()},
		"request of a kubelet with an ECDSA key, which has two usages, is approved": {func(*testRequest) {}, accepted()},
		"usages in another order are approved": {func(a *testRequest) {
			a.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
		}, accepted()},
		"missing usage is not approved": {
			func(a *testRequest) { a.Spec.Usages = a.Spec.Usages[1:] },
			left("usages", `expected the usages "client auth", "digital signature", with or without "key encipherment", found "client auth"`),
		},
		"request without usages is not approved":     {func(a *testRequest) { a.Spec.Usages = nil }, left("usages", "found none")},
		"repeated usage is not approved":             {withMoreUsages(certificatesv1.UsageClientAuth), left("usages", `found "client auth", "client auth", "digital signature"`)},
		"request for a missing node is not approved": {ofNode("fresh"), left("node", `expected the node "fresh" to exist, found none`)},

		"node name that differs only in case is not approved": {ofNode("N1"), left("node", `expected the node "N1" to exist`)},
		"node name without a machine is not approved":         {ofNode("orphan"), left("machine", `expected a machine for node "orphan", found none`)},
		"machine name that differs only in case and a trailing dot is approved": {func(a *testRequest) {
			a.machine().NodeName = "N1."
		}, accepted()},
		"bootstrapper's request for a second node is approved": {ofNode("n2"), accepted()},
		"node name with two machines is not approved yet":      {ofNode("twin"), retried("one-machine", `expected one machine for node "twin", found 2`)},
		"request by another service account is not approved": {
			withUser("system:serviceaccount:default:default"),
			left("user", `found "system:serviceaccount:default:default"`),
		},
		"user whose name only begins with the expected one is not approved": {func(a *testRequest) { a.Spec.Username += "-2" }, left("user", "expected the user")},
		"request by the node itself is not approved": {func(a *testRequest) {
			a.Spec.Username, a.Spec.Groups = "system:node:n1", []string{nodes, authed}
		}, left("user", `found "system:node:n1"`)},
		"request is not approved if no bootstrapper is allowed": {func(a *testRequest) { a.inv.Bootstrappers = nil }, left("user", "one of none")},
		"token user is not approved where only the service account is allowed": {func(a *testRequest) {
			a.inv.Bootstrappers = []BootstrapIdentity{OpenShiftIdentity()}
			a.Spec.Username, a.Spec.Groups = tokenUser, []string{tokenGroup, authed}
		}, left("user", `one of "`+mcoUser+`", found "system:bootstrap:abcdef"`)},
		"expected groups in another order are approved":                        {withGroups(authed, allSAs, mcoGroup), accepted()},
		"service account with the groups of a bootstrap token is not approved": {withGroups(tokenGroup, authed), left("groups", `found "system:authenticated", "system:bootstrappers"`)},
		"requester with two groups for a control-plane machine is approved": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, accepted()},
		"requester with three groups for a control-plane machine is approved": {ofNode("m1"), accepted()},
		"requester with two groups for a worker is not approved":              {withGroups(mcoGroup, authed), left("groups", `expected a requester in the groups "system:authenticated", "system:serviceaccounts", "`+mcoGroup+`", found`)},
		"requester with two groups for a node name without a machine is not approved": {func(a *testRequest) {
			a.renameNode("orphan")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, left("groups", "expected a requester in the groups")},
		"requester with two other groups for a control-plane machine is not approved": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{allSAs, authed}
		}, left("groups", "expected a requester in the groups")},
		"requester with an additional group is not approved": {withMoreGroups("system:masters"), left("groups", `"system:masters"`)},
		"requester with a repeated group is not approved":    {withMoreGroups(authed), left("groups", "expected a requester in the groups")},
		"request without groups is not approved":             {func(a *testRequest) { a.Spec.Groups = nil }, left("groups", "found none")},
		"request with a DNS name is not approved":            {withDNSNames("n1"), left("extensions", `found "subjectAltName"`)},
		"request with an IP address is not approved":         {withIPs("10.0.0.1"), left("extensions", `found "subjectAltName"`)},
		"request with an e-mail address is not approved":     {withEmail, left("extensions", `found "subjectAltName"`)},
		"request with a URI is not approved": {func(a *testRequest) {
			a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, left("extensions", `found "subjectAltName"`)},
		"organisation system:masters is not approved": {
			withOrganizations("system:masters"),
			left("subject", `expected the organisation "system:nodes", found "system:masters"`),
		},
		"second organisation is not approved":             {withOrganizations(nodes, "system:masters"), left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"subject without an organisation is not approved": {func(a *testRequest) { a.template.Subject.Organization = nil }, left("subject", `found "2.5.4.3"`)},
		"organisational unit is not approved":             {withOrganizationalUnit, left("subject", `"2.5.4.11"`)},
		"serial number in the subject is not approved":    {func(a *testRequest) { a.template.Subject.SerialNumber = "7" }, left("subject", `"2.5.4.5"`)},
		"common name without the prefix is not approved": {
			withCommonName("n1"),
			left("common-name", `expected the common name "system:node:" followed by a node name, found "n1"`),
		},
		"empty node name is not approved":                                  {ofNode(""), left("common-name", `found "system:node:"`)},
		"subject without a common name is not approved":                    {withCommonName(""), left("subject", `found "2.5.4.10"`)},
		"invalid signature is not approved":                                {rewrittenBy(breakSignature), left("signature", "does not verify")},
		"signer kube-apiserver-client is not approved":                     {withSigner(certificatesv1.KubeAPIServerClientSignerName), left("signer", "expected the signer")},
		"signer of serving certificates is not approved":                   {withSigner(certificatesv1.KubeletServingSignerName), left("user", "expected the user")},
		"very long validity is approved":                                   {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"RSA key of 1024 bits is not approved":                             {signedBy(keys().rsa1024), left("key", "found RSA with 1024 bits")},
		"ECDSA key on P-224 is not approved":                               {signedBy(keys().p224), left("key", "found ECDSA P-224")},
		"ECDSA key on P-384 is approved":                                   {signedBy(keys().p384), accepted()},
		"ECDSA key on P-521 is approved":                                   {signedBy(keys().p521), accepted()},
		"Ed25519 key is approved":                                          {signedBy(keys().ed25519), accepted()},
		"RSA key of 16384 bits is not approved":                            {rawRequest{spki: rsaOf(16384)}.applyTo, left("key", "found RSA with 16384 bits")},
		"RSA key of 8192 bits with an invalid signature is not approved":   {rawRequest{spki: rsaOf(8192)}.applyTo, left("signature", "does not verify")},
		"RSA key of 8193 bits is not approved":                             {rawRequest{spki: rsaOf(8193)}.applyTo, left("key", "found RSA with 8193 bits")},
		"key that cannot sign is not approved":                             {rawRequest{spki: exchangeKey()}.applyTo, left("key", "found another algorithm")},
		"SHA-1 signature is not approved":                                  {func(a *testRequest) { a.template.SignatureAlgorithm = x509.ECDSAWithSHA1 }, left("signature", "found ECDSA-SHA1")},
		"node of a machine that is being deleted is not approved":          {ofNode("leaving"), left("deleting", `expected the machine of node "leaving" not to be deleted, found that it is being deleted`)},
		"node with another UID than the recorded one is not approved":      {ofNode("replaced"), left("node-uid", `the recorded UID "uid-old", found "uid-new"`)},
		"node without a UID is not approved":                               {func(a *testRequest) { a.inv.Nodes[0].UID = "" }, left("node-uid", `found ""`)},
		"node without a recorded UID is approved":                          {func(a *testRequest) { a.machine().NodeUID = types.UID("") }, accepted()},
		"CA certificate is not approved":                                   {withCA, left("extensions", `expected no extension, found "2.5.29.19"`)},
		"unknown extension is not approved":                                {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1"`)},
		"two unknown extensions are not approved, and are listed in order": {func(a *testRequest) { withExtension(2, 9, 1)(a); withExtension(1, 9, 1)(a) }, left("extensions", `found "1.9.1", "2.9.1"`)},
		"challenge password is not approved":                               {rawRequest{attributes: [][]byte{challengePassword()}}.applyTo, left("extensions", "exactly one attribute, extensionRequest")},
		"bytes after the attributes are not approved":                      {rawRequest{infoTail: []byte{0x05, 0x00}}.applyTo, left("extensions", "found another structure")},
		"request of version 2 is not approved":                             {rawRequest{version: []byte{0x02, 0x01, 0x01}}.applyTo, left("extensions", "of version 1")},
		"empty list of extensions is approved":                             {rawRequest{attributes: [][]byte{extensionRequest()}}.applyTo, accepted()},
	})
}

func TestTokenRequests(t *testing.T) {
	runJudged(t, tokenRequest, map[string]judgeCase{
		"request of a plain Kubernetes kubelet is approved":                      {func(*testRequest) {}, accepted()},
		"additional bootstrap group is approved":                                 {withMoreGroups("system:bootstrappers:workers"), accepted()},
		"additional group that is not a bootstrap group is not approved":         {withMoreGroups("system:masters"), left("groups", `found "system:authenticated", "system:bootstrappers", "system:masters"`)},
		"bootstrap group without a name is not approved":                         {withMoreGroups("system:bootstrappers:"), left("groups", `"system:bootstrappers:"`)},
		"bootstrap group without the group of all bootstrappers is not approved": {withGroups("system:bootstrappers:workers", authed), left("groups", "expected a requester in the groups")},
		"requester outside the group system:authenticated is not approved":       {func(a *testRequest) { a.Spec.Groups = a.Spec.Groups[:1] }, left("groups", "expected a requester in the groups")},
		"token id that is too short is not approved":                             {withUser("system:bootstrap:abcde"), left("user", `"system:bootstrap:<token id>"`)},
		"token id that is too long is not approved":                              {func(a *testRequest) { a.Spec.Username += "g" }, left("user", "expected the user")},
		"token id with an invalid character is not approved":                     {withUser("system:bootstrap:ab:def"), left("user", "expected the user")},
		"token id with a capital letter is not approved":                         {withUser("system:bootstrap:Abcdef"), left("user", "expected the user")},
		"user that is not a bootstrapper is not approved":                        {withUser("system:bootstrep:abcdef"), left("user", "expected the user")},
		"bootstrap token without the bootstrap group is not approved for a control-plane machine": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{authed}
		}, left("groups", "expected a requester in the groups")},
	})
}
