// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mutation is one change after which an acceptable request must not be approved.
type mutation func(*testRequest)

// commonMutations apply to every kind. The part of the key before the colon is the changed field.
func commonMutations() map[string]mutation {
	condition := func(kind certificatesv1.RequestConditionType) mutation {
		return func(a *testRequest) {
			a.Status.Conditions = append(a.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
	}
	return map[string]mutation{
		"CreationTimestamp: zero":                   func(a *testRequest) { a.CreationTimestamp = metav1.Time{} },
		"CreationTimestamp: older":                  func(a *testRequest) { a.CreationTimestamp = metav1.NewTime(resumed().Add(-time.Second)) },
		"Status.Conditions: approved":               condition(certificatesv1.CertificateApproved),
		"Status.Conditions: denied":                 condition(certificatesv1.CertificateDenied),
		"Status.Conditions: failed":                 condition(certificatesv1.CertificateFailed),
		"Status.Certificate: issued":                func(a *testRequest) { a.Status.Certificate = []byte{0} },
		"Spec.SignerName: empty":                    withSigner(""),
		"Spec.SignerName: longer":                   func(a *testRequest) { a.Spec.SignerName += "x" },
		"Spec.SignerName: client":                   withSigner(certificatesv1.KubeAPIServerClientSignerName),
		"Spec.SignerName: legacy":                   withSigner("kubernetes.io/legacy-unknown"),
		"Spec.Usages: none":                         func(a *testRequest) { a.Spec.Usages = nil },
		"Spec.Usages: first only":                   func(a *testRequest) { a.Spec.Usages = a.Spec.Usages[:1] },
		"Spec.Usages: last only":                    func(a *testRequest) { a.Spec.Usages = a.Spec.Usages[1:] },
		"Spec.Usages: cert sign":                    withMoreUsages(certificatesv1.UsageCertSign),
		"Spec.Usages: any":                          withMoreUsages(certificatesv1.UsageAny),
		"Spec.Usages: both auths":                   bothAuths,
		"Spec.Usages: encipherment":                 func(a *testRequest) { a.Spec.Usages[0] = certificatesv1.UsageKeyEncipherment },
		"Spec.Username: empty":                      withUser(""),
		"Spec.Username: longer":                     func(a *testRequest) { a.Spec.Username += "x" },
		"Spec.Username: shorter":                    func(a *testRequest) { a.Spec.Username = a.Spec.Username[1:] },
		"Spec.Username: other case":                 func(a *testRequest) { a.Spec.Username = strings.ToUpper(a.Spec.Username) },
		"Spec.Username: space":                      func(a *testRequest) { a.Spec.Username += " " },
		"Spec.Groups: none":                         func(a *testRequest) { a.Spec.Groups = nil },
		"Spec.Groups: first missing":                func(a *testRequest) { a.Spec.Groups = a.Spec.Groups[1:] },
		"Spec.Groups: last missing":                 func(a *testRequest) { a.Spec.Groups = a.Spec.Groups[:len(a.Spec.Groups)-1] },
		"Spec.Groups: additional system:masters":    withMoreGroups("system:masters"),
		"Spec.Groups: additional empty group":       withMoreGroups(""),
		"Spec.Groups: first group twice":            func(a *testRequest) { a.Spec.Groups = append(a.Spec.Groups, a.Spec.Groups[0]) },
		"Spec.Request: empty":                       rewrittenBy(emptied),
		"Spec.Request: twice":                       func(a *testRequest) { a.rewrite = func(b []byte) []byte { return append(b, b...) } },
		"Spec.Request: cut":                         func(a *testRequest) { a.rewrite = func(b []byte) []byte { return b[:len(b)/2] } },
		"Spec.Request: bad signature":               rewrittenBy(breakSignature),
		"subject: other node":                       withCommonName("system:node:n2x"),
		"subject: other case":                       withCommonName("system:node:N1"),
		"subject: dot":                              func(a *testRequest) { a.template.Subject.CommonName += "." },
		"subject: no common name":                   withCommonName(""),
		"subject: admin":                            withCommonName("admin"),
		"subject: masters":                          withOrganizations("system:masters"),
		"subject: additional masters":               withOrganizations(nodes, "system:masters"),
		"subject: nodes twice":                      withOrganizations(nodes, nodes),
		"subject: no organisation":                  func(a *testRequest) { a.template.Subject.Organization = nil },
		"subject: organisational unit":              withOrganizationalUnit,
		"subject: country":                          func(a *testRequest) { a.template.Subject.Country = []string{"XX"} },
		"subject: locality":                         func(a *testRequest) { a.template.Subject.Locality = []string{"x"} },
		"subject: province":                         func(a *testRequest) { a.template.Subject.Province = []string{"x"} },
		"subject: street":                           func(a *testRequest) { a.template.Subject.StreetAddress = []string{"x"} },
		"subject: postal code":                      func(a *testRequest) { a.template.Subject.PostalCode = []string{"x"} },
		"subject: serial number":                    func(a *testRequest) { a.template.Subject.SerialNumber = "1" },
		"subject: second common name":               extraName(2, 5, 4, 3),
		"subject: unknown attribute":                extraName(1, 3, 9999),
		"subject: number as an attribute":           numberName,
		"names: e-mail":                             withEmail,
		"names: URI":                                func(a *testRequest) { a.template.URIs = []*url.URL{{Scheme: "x", Host: "y"}} },
		"names: foreign DNS":                        func(a *testRequest) { a.template.DNSNames = append(a.template.DNSNames, "n2") },
		"names: empty DNS":                          func(a *testRequest) { a.template.DNSNames = append(a.template.DNSNames, "") },
		"names: foreign IP":                         func(a *testRequest) { a.template.IPAddresses = append(a.template.IPAddresses, net.IPv4(10, 0, 0, 2)) },
		"extensions: CA":                            withCA,
		"extensions: key usage":                     withExtension(2, 5, 29, 15),
		"extensions: extended key usage":            withExtension(2, 5, 29, 37),
		"extensions: unknown":                       withExtension(1, 3, 9999),
		"key: RSA 1024":                             signedBy(keys().rsa1024),
		"key: P-224":                                signedBy(keys().p224),
		"key: very large":                           rawRequest{spki: rsaOf(16384)}.applyTo,
		"key: not the signing key":                  anothersKey,
		"signature: SHA-1":                          func(a *testRequest) { a.template.SignatureAlgorithm = x509.ECDSAWithSHA1 },
		"inventory: nothing":                        func(a *testRequest) { a.inv = NodeInventory{} },
		"inventory: no machines":                    func(a *testRequest) { a.inv.Machines = nil },
		"inventory: no nodes":                       func(a *testRequest) { a.inv.Nodes = nil },
		"inventory: unknown start of the resume":    func(a *testRequest) { a.inv.NotBefore = time.Time{} },
		"inventory: resume began after the request": func(a *testRequest) { a.inv.NotBefore = a.inv.NotBefore.Add(time.Hour) },
		"inventory: machine is being deleted":       func(a *testRequest) { a.machine().Deleting = true },
		"inventory: machine renamed":                func(a *testRequest) { a.machine().NodeName = "n3" },
		"inventory: machine unnamed":                func(a *testRequest) { a.machine().NodeName = "" },
		"inventory: machine twice":                  func(a *testRequest) { a.inv.Machines = append(a.inv.Machines, *a.machine()) },
		"inventory: other recorded UID":             func(a *testRequest) { a.machine().NodeUID = "x" },
		"inventory: other current UID":              func(a *testRequest) { a.inv.Nodes[0].UID = "x" },
		"inventory: node renamed":                   func(a *testRequest) { a.inv.Nodes[0].Name = "N1" },
	}
}

func TestEverySingleMutationCostsTheApproval(t *testing.T) {
	client := map[string]mutation{
		"Spec.SignerName: signer of the other kind": withSigner(certificatesv1.KubeletServingSignerName),
		"Spec.Username: a node":                     withUser("system:node:n1"),
		"names: own DNS":                            withDNSNames("n1"),
		"names: own IP":                             func(a *testRequest) { a.template.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} },
		"attributes: password":                      rawRequest{attributes: [][]byte{challengePassword()}}.applyTo,
		"version: 2":                                rawRequest{version: []byte{0x02, 0x01, 0x01}}.applyTo,
		"inventory: no bootstrappers":               func(a *testRequest) { a.inv.Bootstrappers = nil },
	}
	serving := map[string]mutation{
		"Spec.SignerName: signer of the other kind": withSigner(certificatesv1.KubeAPIServerClientKubeletSignerName),
		"Spec.Username: other node":                 withUser("system:node:n2"),
		"subject: known other node":                 withCommonName("system:node:n2"),
		"names: none":                               func(a *testRequest) { a.template.DNSNames, a.template.IPAddresses = nil, nil },
		"attributes: password":                      rawRequest{attributes: [][]byte{goodSAN(), challengePassword()}}.applyTo,
		"version: 2":                                rawRequest{attributes: [][]byte{goodSAN()}, version: []byte{0x02, 0x01, 0x01}}.applyTo,
		"inventory: no addresses":                   func(a *testRequest) { a.machine().Addresses = nil },
		"inventory: address missing":                func(a *testRequest) { a.machine().Addresses = a.machine().Addresses[1:4] },
		"inventory: other address":                  func(a *testRequest) { a.machine().Addresses[3].Address = "10.0.0.9" },
		"inventory: other address type":             func(a *testRequest) { a.machine().Addresses[3].Type = "InternalDNS" },
	}
	for _, kind := range []struct {
		name  string
		fresh func() *testRequest
		own   map[string]mutation
	}{{"token", tokenRequest, client}, {"OpenShift", openShiftRequest, client}, {"serving", servingRequest, serving}} {
		untouched := kind.fresh()
		if v := JudgeRequest(untouched.finish(t), untouched.inv); v.Decision != Approve {
			t.Fatalf("%s: the request to start from is not approved: %+v", kind.name, v)
		}
		for _, mutations := range []map[string]mutation{commonMutations(), kind.own} {
			for name, mutate := range mutations {
				t.Run(kind.name+"/"+name, func(t *testing.T) {
					a := kind.fresh()
					mutate(a)
					if v := JudgeRequest(a.finish(t), a.inv); v.Decision == Approve || v.Reason == "" {
						t.Errorf("verdict = %+v", v)
					}
				})
			}
		}
	}
}

func TestEveryBitOfTheRequestCounts(t *testing.T) {
	for name, a := range map[string]*testRequest{"client": tokenRequest(), "serving": servingRequest()} {
		t.Run(name, func(t *testing.T) {
			req := a.finish(t)
			block, _ := pem.Decode(req.Spec.Request)
			for bit := range len(block.Bytes) * 8 {
				der := slices.Clone(block.Bytes)
				der[bit/8] ^= 1 << (bit % 8)
				req.Spec.Request = toPEM(der)
				if v := JudgeRequest(req, a.inv); v.Decision != Leave {
					t.Errorf("bit %d of byte %d changed: %+v", bit%8, bit/8, v)
				}
			}
		})
	}
}

// TestEverySpecFieldIsAccountedFor fails when a field without a mutation is added to the API.
func TestEverySpecFieldIsAccountedFor(t *testing.T) {
	ignored := map[string]mutation{
		"ExpirationSeconds": func(a *testRequest) { a.Spec.ExpirationSeconds = new(int32(600)) },
		"UID":               func(a *testRequest) { a.Spec.UID = "x" },
		"Extra": func(a *testRequest) {
			a.Spec.Extra = map[string]certificatesv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"x"}}
		},
	}
	for field := range reflect.TypeFor[certificatesv1.CertificateSigningRequestSpec]().Fields() {
		mutated := false
		for name := range commonMutations() {
			mutated = mutated || strings.HasPrefix(name, "Spec."+field.Name+":")
		}
		change, isIgnored := ignored[field.Name]
		if mutated == isIgnored {
			t.Errorf("field %s must either cost the approval or be ignored", field.Name)
		}
		if !isIgnored {
			continue
		}
		a := tokenRequest()
		change(a)
		if v := JudgeRequest(a.finish(t), a.inv); v.Decision != Approve {
			t.Errorf("field %s is meant to be ignored: %+v", field.Name, v)
		}
	}
}

func bothAuths(a *testRequest) {
	a.Spec.Usages = []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth,
	}
}

func extraName(parts ...int) mutation {
	return func(a *testRequest) {
		a.template.Subject.ExtraNames = append(a.template.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: parts, Value: "x"})
	}
}

// numberName is an organisation that is not a string. pkix skips it.
func numberName(a *testRequest) {
	rdns := append(a.template.Subject.ToRDNSequence(),
		pkix.RelativeDistinguishedNameSET{{Type: []int{2, 5, 4, 10}, Value: 7}})
	a.template.RawSubject = must(asn1.Marshal(rdns))
}

// anothersKey puts a public key into the request that does not belong to the signing key.
func anothersKey(a *testRequest) {
	rawRequest{spki: must(x509.MarshalPKIXPublicKey(keys().p384.Public()))}.applyTo(a)
}
