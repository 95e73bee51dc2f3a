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
		"a request with three usages, for an existing node with a machine: approved": {withMoreUsages(certificatesv1.UsageKeyEncipherment), accepted()},
		"an RSA key of 2048 bits: approved": {func(a *testRequest) {
			a.key = keys().rsa2048
			a.Spec.Usages = append(a.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, accepted()},
		"a request with two usages, as of a kubelet with an ECDSA key: approved": {func(*testRequest) {}, accepted()},
		"the usages in another order: approved": {func(a *testRequest) {
			a.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
		}, accepted()},
		"a missing usage: not approved": {
			func(a *testRequest) { a.Spec.Usages = a.Spec.Usages[1:] },
			left("usages", `expected the usages "client auth", "digital signature", with or without "key encipherment", found "client auth"`),
		},
		"no usage: not approved":                {func(a *testRequest) { a.Spec.Usages = nil }, left("usages", "found none")},
		"the same usage twice: not approved":    {withMoreUsages(certificatesv1.UsageClientAuth), left("usages", `found "client auth", "client auth", "digital signature"`)},
		"the node does not exist: not approved": {ofNode("fresh"), left("node", `expected the node "fresh" to exist, found none`)},

		"a node name that differs only in case: not approved": {ofNode("N1"), left("node", `expected the node "N1" to exist`)},
		"no machine may take the name: not approved":          {ofNode("orphan"), left("machine", `expected a machine for node "orphan", found none`)},
		"the machine's name differs in case and trailing dot: approved": {func(a *testRequest) {
			a.machine().NodeName = "N1."
		}, accepted()},
		"a machine other than the requester's: approved": {ofNode("n2"), accepted()},
		"two machines claim the name: not approved yet":  {ofNode("twin"), retried("one-machine", `expected one machine for node "twin", found 2`)},
		"another service account: not approved": {
			withUser("system:serviceaccount:default:default"),
			left("user", `found "system:serviceaccount:default:default"`),
		},
		"a user with the right prefix only: not approved": {func(a *testRequest) { a.Spec.Username += "-2" }, left("user", "expected the user")},
		"a node asks for itself: not approved": {func(a *testRequest) {
			a.Spec.Username, a.Spec.Groups = "system:node:n1", []string{nodes, authed}
		}, left("user", `found "system:node:n1"`)},
		"no bootstrapper is allowed: not approved": {func(a *testRequest) { a.inv.Bootstrappers = nil }, left("user", "one of none")},
		"a token user where only the service account is allowed: not approved": {func(a *testRequest) {
			a.inv.Bootstrappers = []BootstrapIdentity{OpenShiftIdentity()}
			a.Spec.Username, a.Spec.Groups = tokenUser, []string{tokenGroup, authed}
		}, left("user", `one of "`+mcoUser+`", found "system:bootstrap:abcdef"`)},
		"the exact three groups in another order: approved":  {withGroups(authed, allSAs, mcoGroup), accepted()},
		"the groups of the other bootstrapper: not approved": {withGroups(tokenGroup, authed), left("groups", `found "system:authenticated", "system:bootstrappers"`)},
		"a requester with only the two groups allowed for a control-plane machine: approved": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, accepted()},
		"a requester with all three groups, for a control-plane machine: approved": {ofNode("m1"), accepted()},
		"a requester with only two groups, for a worker: not approved":             {withGroups(mcoGroup, authed), left("groups", `expected a requester in the groups "system:authenticated", "system:serviceaccounts", "`+mcoGroup+`", found`)},
		"two groups without a machine of the name: not approved": {func(a *testRequest) {
			a.renameNode("orphan")
			a.Spec.Groups = []string{mcoGroup, authed}
		}, left("groups", "expected a requester in the groups")},
		"the other two groups on a control-plane machine: not approved": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{allSAs, authed}
		}, left("groups", "expected a requester in the groups")},
		"an extra group: not approved":    {withMoreGroups("system:masters"), left("groups", `"system:masters"`)},
		"a group twice: not approved":     {withMoreGroups(authed), left("groups", "expected a requester in the groups")},
		"no groups: not approved":         {func(a *testRequest) { a.Spec.Groups = nil }, left("groups", "found none")},
		"a DNS name: not approved":        {withDNSNames("n1"), left("extensions", `found "subjectAltName"`)},
		"an IP address: not approved":     {withIPs("10.0.0.1"), left("extensions", `found "subjectAltName"`)},
		"an e-mail address: not approved": {withEmail, left("extensions", `found "subjectAltName"`)},
		"a URI: not approved": {func(a *testRequest) {
			a.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}}
		}, left("extensions", `found "subjectAltName"`)},
		"another organisation: not approved": {
			withOrganizations("system:masters"),
			left("subject", `expected the organisation "system:nodes", found "system:masters"`),
		},
		"a second organisation: not approved":          {withOrganizations(nodes, "system:masters"), left("subject", `found "2.5.4.10", "2.5.4.10", "2.5.4.3"`)},
		"no organisation: not approved":                {func(a *testRequest) { a.template.Subject.Organization = nil }, left("subject", `found "2.5.4.3"`)},
		"an organisational unit: not approved":         {withOrganizationalUnit, left("subject", `"2.5.4.11"`)},
		"a serial number in the subject: not approved": {func(a *testRequest) { a.template.Subject.SerialNumber = "7" }, left("subject", `"2.5.4.5"`)},
		"a common name without the prefix: not approved": {
			withCommonName("n1"),
			left("common-name", `expected the common name "system:node:" and a node name, found "n1"`),
		},
		"an empty node name: not approved":                      {ofNode(""), left("common-name", `found "system:node:"`)},
		"no common name: not approved":                          {withCommonName(""), left("subject", `found "2.5.4.10"`)},
		"bad signature: not approved":                           {rewrittenBy(breakSignature), left("signature", "does not verify")},
		"the signer of all client certificates: not approved":   {withSigner(certificatesv1.KubeAPIServerClientSignerName), left("signer", "expected the signer")},
		"the signer of serving certificates: not approved":      {withSigner(certificatesv1.KubeletServingSignerName), left("user", "expected the user")},
		"a very long validity: approved":                        {func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(1 << 30)) }, accepted()},
		"RSA with 1024 bits: not approved":                      {signedBy(keys().rsa1024), left("key", "found RSA with 1024 bits")},
		"ECDSA P-224: not approved":                             {signedBy(keys().p224), left("key", "found ECDSA P-224")},
		"ECDSA P-384: approved":                                 {signedBy(keys().p384), accepted()},
		"ECDSA P-521: approved":                                 {signedBy(keys().p521), accepted()},
		"Ed25519: approved":                                     {signedBy(keys().ed25519), accepted()},
		"RSA with 16384 bits: not approved":                     {rawRequest{spki: rsaOf(16384)}.applyTo, left("key", "found RSA with 16384 bits")},
		"RSA with 8192 bits: not approved":                      {rawRequest{spki: rsaOf(8192)}.applyTo, left("signature", "does not verify")},
		"RSA with 8193 bits: not approved":                      {rawRequest{spki: rsaOf(8193)}.applyTo, left("key", "found RSA with 8193 bits")},
		"a key that cannot sign: not approved":                  {rawRequest{spki: exchangeKey()}.applyTo, left("key", "found another algorithm")},
		"a signature over SHA-1: not approved":                  {func(a *testRequest) { a.template.SignatureAlgorithm = x509.ECDSAWithSHA1 }, left("signature", "found ECDSA-SHA1")},
		"the machine is deleted: not approved":                  {ofNode("leaving"), left("deleting", `expected the machine of node "leaving" to stay, found that it is being deleted`)},
		"the node was created again: not approved":              {ofNode("replaced"), left("node-uid", `the recorded UID "uid-old", found "uid-new"`)},
		"the node has no UID: not approved":                     {func(a *testRequest) { a.inv.Nodes[0].UID = "" }, left("node-uid", `found ""`)},
		"no UID was recorded: approved":                         {func(a *testRequest) { a.machine().NodeUID = types.UID("") }, accepted()},
		"CA:true":                                               {withCA, left("extensions", `expected no extension, found "2.5.29.19"`)},
		"an unknown extension: not approved":                    {withExtension(1, 3, 9999, 1), left("extensions", `found "1.3.9999.1"`)},
		"two unknown extensions, listed in order: not approved": {func(a *testRequest) { withExtension(2, 9, 1)(a); withExtension(1, 9, 1)(a) }, left("extensions", `found "1.9.1", "2.9.1"`)},
		"a challenge password: not approved":                    {rawRequest{attributes: [][]byte{challengePassword()}}.applyTo, left("extensions", "no attribute but extensionRequest")},
		"bytes after the attributes: not approved":              {rawRequest{infoTail: []byte{0x05, 0x00}}.applyTo, left("extensions", "found another structure")},
		"a request of version 2: not approved":                  {rawRequest{version: []byte{0x02, 0x01, 0x01}}.applyTo, left("extensions", "of version 1")},
		"an empty list counts as no extension: approved":        {rawRequest{attributes: [][]byte{extensionRequest()}}.applyTo, accepted()},
	})
}

func TestTokenRequests(t *testing.T) {
	runJudged(t, tokenRequest, map[string]judgeCase{
		"a request of a kubelet of plain Kubernetes: approved":                   {func(*testRequest) {}, accepted()},
		"one more bootstrap group: approved":                                     {withMoreGroups("system:bootstrappers:workers"), accepted()},
		"an extra group that is not a bootstrap group: not approved":             {withMoreGroups("system:masters"), left("groups", `found "system:authenticated", "system:bootstrappers", "system:masters"`)},
		"a bootstrap group without a name: not approved":                         {withMoreGroups("system:bootstrappers:"), left("groups", `"system:bootstrappers:"`)},
		"a bootstrap group without the group of all bootstrappers: not approved": {withGroups("system:bootstrappers:workers", authed), left("groups", "expected a requester in the groups")},
		"a requester outside the group system:authenticated: not approved":       {func(a *testRequest) { a.Spec.Groups = a.Spec.Groups[:1] }, left("groups", "expected a requester in the groups")},
		"a token id that is too short: not approved":                             {withUser("system:bootstrap:abcde"), left("user", `"system:bootstrap:<token id>"`)},
		"a token id that is too long: not approved":                              {func(a *testRequest) { a.Spec.Username += "g" }, left("user", "expected the user")},
		"a token id with a bad letter inside: not approved":                      {withUser("system:bootstrap:ab:def"), left("user", "expected the user")},
		"a token id with a capital: not approved":                                {withUser("system:bootstrap:Abcdef"), left("user", "expected the user")},
		"a user that is not a bootstrapper: not approved":                        {withUser("system:bootstrep:abcdef"), left("user", "expected the user")},
		"a token user of a control-plane machine needs the same groups: not approved": {func(a *testRequest) {
			a.renameNode("m1")
			a.Spec.Groups = []string{authed}
		}, left("groups", "expected a requester in the groups")},
	})
}
