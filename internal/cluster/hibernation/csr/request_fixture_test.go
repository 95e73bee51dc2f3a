// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	tokenUser  = "system:bootstrap:abcdef"
	mcoUser    = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
	mcoGroup   = "system:serviceaccounts:openshift-machine-config-operator"
	allSAs     = "system:serviceaccounts"
	authed     = "system:authenticated"
	nodes      = "system:nodes"
	tokenGroup = "system:bootstrappers"
)

// keyring contains one key of each kind, because generating keys is the slow part of these tests.
type keyring struct {
	p224, p256, p384, p521 *ecdsa.PrivateKey
	rsa1024, rsa2048       *rsa.PrivateKey
	ed25519                ed25519.PrivateKey
}

var keys = sync.OnceValue(func() keyring {
	curve := func(c elliptic.Curve) *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(c, rand.Reader)) }
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	return keyring{
		p224: curve(elliptic.P224()), p256: curve(elliptic.P256()), p384: curve(elliptic.P384()), p521: curve(elliptic.P521()),
		rsa1024: must(rsa.GenerateKey(rand.Reader, 1024)), rsa2048: must(rsa.GenerateKey(rand.Reader, 2048)),
		ed25519: must(edwards, err),
	}
})

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// testRequest builds a request: the object, the template of its PKCS #10 request, and the inventory for its
// evaluation.
type testRequest struct {
	certificatesv1.CertificateSigningRequest
	template x509.CertificateRequest
	key      crypto.Signer
	inv      NodeInventory
	// rewrite changes the finished PEM; nil leaves it unchanged.
	rewrite func([]byte) []byte
}

// finish returns the object with the signed PKCS #10 request.
func (a *testRequest) finish(t testing.TB) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &a.template, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.Spec.Request = toPEM(der)
	if a.rewrite != nil {
		a.Spec.Request = a.rewrite(a.Spec.Request)
	}
	return &a.CertificateSigningRequest
}

func toPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func resumed() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 600_000_000, time.UTC) }

func newTestRequest(signer string, auth certificatesv1.KeyUsage, user string, groups ...string) *testRequest {
	a := &testRequest{key: keys().p256, inv: testInventory()}
	a.Name = "csr-1"
	a.UID = "uid-csr-1"
	a.CreationTimestamp = metav1.NewTime(resumed().Add(time.Minute))
	a.Spec.SignerName = signer
	a.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, auth}
	a.Spec.Username = user
	a.Spec.Groups = groups
	a.template.Subject = pkix.Name{CommonName: "system:node:n1", Organization: []string{nodes}}
	return a
}

// tokenRequest is the request of a plain Kubernetes kubelet after its certificate has expired.
func tokenRequest() *testRequest {
	return newTestRequest(certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth,
		tokenUser, tokenGroup, authed)
}

// openShiftRequest is the request of an OpenShift kubelet after its certificate has expired.
func openShiftRequest() *testRequest {
	return newTestRequest(certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth,
		mcoUser, mcoGroup, allSAs, authed)
}

// servingRequest requests a certificate for every address of n1.
func servingRequest() *testRequest {
	a := newTestRequest(certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, "system:node:n1", nodes, authed)
	a.template.DNSNames = []string{"n1", "n1.example.com"}
	a.template.IPAddresses = []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1"), net.ParseIP("203.0.113.1")}
	return a
}

// renameNode changes the node of the request, but keeps n1's addresses.
func (a *testRequest) renameNode(name string) {
	a.template.Subject.CommonName = "system:node:" + name
	if a.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		a.Spec.Username = "system:node:" + name
	}
}

func ofNode(name string) func(*testRequest) { return func(a *testRequest) { a.renameNode(name) } }

func withUser(name string) func(*testRequest) { return func(a *testRequest) { a.Spec.Username = name } }

func withSigner(name string) func(*testRequest) {
	return func(a *testRequest) { a.Spec.SignerName = name }
}

func withGroups(groups ...string) func(*testRequest) {
	return func(a *testRequest) { a.Spec.Groups = groups }
}

func withMoreGroups(groups ...string) func(*testRequest) {
	return func(a *testRequest) { a.Spec.Groups = append(a.Spec.Groups, groups...) }
}

func withMoreUsages(usages ...certificatesv1.KeyUsage) func(*testRequest) {
	return func(a *testRequest) { a.Spec.Usages = append(a.Spec.Usages, usages...) }
}

func withCommonName(name string) func(*testRequest) {
	return func(a *testRequest) { a.template.Subject.CommonName = name }
}

func withOrganizations(names ...string) func(*testRequest) {
	return func(a *testRequest) { a.template.Subject.Organization = names }
}

func withOrganizationalUnit(a *testRequest) { a.template.Subject.OrganizationalUnit = []string{"x"} }

func withEmail(a *testRequest) { a.template.EmailAddresses = []string{"a@b.example"} }

func withDNSNames(names ...string) func(*testRequest) {
	return func(a *testRequest) { a.template.DNSNames = names }
}

func withIPs(address string) func(*testRequest) {
	return func(a *testRequest) { a.template.IPAddresses = []net.IP{net.ParseIP(address)} }
}

func signedBy(key crypto.Signer) func(*testRequest) { return func(a *testRequest) { a.key = key } }

func rewrittenBy(rewrite func([]byte) []byte) func(*testRequest) {
	return func(a *testRequest) { a.rewrite = rewrite }
}

// machine returns node n1's machine, for changes.
func (a *testRequest) machine() *KnownMachine { return &a.inv.Machines[0] }

func address(kind corev1.NodeAddressType, value string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: kind, Address: value}
}

func testInventory() NodeInventory {
	return NodeInventory{
		Machines: []KnownMachine{
			{NodeName: "n1", NodeUID: "uid-n1", Addresses: []corev1.NodeAddress{
				address(corev1.NodeHostName, "n1"), address(corev1.NodeInternalDNS, "n1"),
				address(corev1.NodeExternalDNS, "n1.example.com"), address(corev1.NodeInternalIP, "10.0.0.1"),
				address(corev1.NodeInternalIP, "fd00::1"), address(corev1.NodeExternalIP, "203.0.113.1"),
			}},
			{NodeName: "n2", NodeUID: "uid-n2", Addresses: []corev1.NodeAddress{
				address(corev1.NodeHostName, "n2"), address(corev1.NodeInternalIP, "10.0.0.2"),
			}},
			{NodeName: "m1", ControlPlane: true, Addresses: []corev1.NodeAddress{address(corev1.NodeInternalIP, "10.0.0.3")}},
			{NodeName: "leaving", Deleting: true, Addresses: []corev1.NodeAddress{address(corev1.NodeHostName, "n1")}},
			{NodeName: "replaced", NodeUID: "uid-old", Addresses: []corev1.NodeAddress{address(corev1.NodeHostName, "n1")}},
			{NodeName: "fresh", Addresses: []corev1.NodeAddress{address(corev1.NodeHostName, "n1")}},
			{NodeName: "bare"},
			{NodeName: "back", NodeUID: "uid-back", ControlPlane: true, Addresses: []corev1.NodeAddress{address(corev1.NodeHostName, "n1")}},
			{NodeName: "twin"},
			{NodeName: "Twin.", Deleting: true},
		},
		Nodes: []ExistingNode{
			{Name: "n1", UID: "uid-n1"},
			{Name: "n2", UID: "uid-n2"},
			{Name: "m1", UID: "uid-m1"},
			{Name: "leaving", UID: "uid-leaving"},
			{Name: "replaced", UID: "uid-new"},
			{Name: "bare", UID: "uid-bare"},
			{Name: "twin", UID: "uid-twin"},
			{Name: "orphan", UID: "uid-orphan"},
			{Name: "back", UID: "uid-back", HasReported: true},
		},
		Bootstrappers: []BootstrapIdentity{OpenShiftIdentity(), TokenIdentity()},
		NotBefore:     resumed(),
		ClientsFrom:   resumed(),
		NotAfter:      resumed().Add(time.Hour),
		Now:           resumed().Add(2 * time.Minute),
	}
}

// judgement is the part of a verdict that a case compares. Says is a part of the reason.
type judgement struct {
	Decision Decision
	Rule     string
	Says     string
}

// judgeCase is one case: a change to an acceptable request, and the expected verdict.
type judgeCase struct {
	change func(*testRequest)
	want   judgement
}

func accepted() judgement { return judgement{Decision: Approve, Rule: "accepted", Says: "every check"} }

func left(rule, says string) judgement { return judgement{Decision: Leave, Rule: rule, Says: says} }

func retried(rule, says string) judgement { return judgement{Decision: Retry, Rule: rule, Says: says} }

func skipped(says string) judgement { return judgement{Decision: Skip, Rule: "undecided", Says: says} }
