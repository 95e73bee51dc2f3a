// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// FuzzJudge evaluates raw requests. The evaluation must never panic, and must approve exactly the requests that
// isPermitted allows.
func FuzzJudge(f *testing.F) {
	for _, fresh := range []func() *testRequest{tokenRequest, openShiftRequest, servingRequest} {
		for _, change := range []func(*testRequest){
			func(*testRequest) {},
			rewrittenBy(breakSignature),
			signedBy(keys().rsa2048),
			ofNode("m1"),
			rawRequest{attributes: [][]byte{twoValues()}}.applyTo,
			rawRequest{attributes: [][]byte{goodSAN(), challengePassword()}}.applyTo,
			rawRequest{attributes: [][]byte{extensionRequest(altNames(tlv(tagRegisteredID, []byte{1})))}}.applyTo,
		} {
			a := fresh()
			change(a)
			f.Add(a.finish(f).Spec.Request, a.Spec.Username, strings.Join(a.Spec.Groups, ","), a.Spec.SignerName == certificatesv1.KubeletServingSignerName)
		}
	}
	f.Fuzz(func(t *testing.T, request []byte, user, groups string, serving bool) {
		a := tokenRequest()
		if serving {
			a = servingRequest()
		}
		a.Spec.Username, a.Spec.Groups, a.Spec.Request = user, strings.Split(groups, ","), request
		compareWithReference(t, &a.CertificateSigningRequest, a.inv)
	})
}

// FuzzJudgeSigned creates correctly signed requests with arbitrary content, which random bytes never form.
func FuzzJudgeSigned(f *testing.F) {
	f.Add("system:node:n1", nodes, "", []byte{}, tokenUser, tokenGroup+","+authed, false, byte(0))
	f.Add("system:node:m1", nodes, "", []byte{}, mcoUser, mcoGroup+","+authed, false, byte(1))
	f.Add("system:node:n1", nodes, "N1.", []byte{10, 0, 0, 1}, "system:node:n1", nodes+","+authed, true, byte(2))
	f.Add("system:node:n2", nodes, "n2,n1", []byte(net.ParseIP("fd00::1")), "system:node:n2", nodes+","+authed, true, byte(3))
	f.Fuzz(func(t *testing.T, name, organisations, dns string, ip []byte, user, groups string, serving bool, usages byte) {
		a := tokenRequest()
		if serving {
			a = servingRequest()
		}
		a.template = x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: splitList(organisations)}, DNSNames: splitList(dns)}
		if len(ip) == net.IPv4len || len(ip) == net.IPv6len {
			a.template.IPAddresses = []net.IP{ip}
		}
		a.Spec.Username, a.Spec.Groups, a.Spec.Usages = user, splitList(groups), someUsages(a.Spec.Usages, usages)
		der, err := x509.CreateCertificateRequest(nil, &a.template, keys().ed25519)
		if err != nil {
			t.Skip("x509 cannot create such a request")
		}
		a.Spec.Request = toPEM(der)
		compareWithReference(t, &a.CertificateSigningRequest, a.inv)
	})
}

func compareWithReference(t *testing.T, req *certificatesv1.CertificateSigningRequest, inv NodeInventory) {
	t.Helper()
	v := JudgeRequest(req, inv)
	if want := isPermitted(req, inv); want != (v.Decision == Approve) {
		t.Errorf("permitted = %t, but the verdict is %+v", want, v)
	}
	if v.Reason == "" || v.Rule == "" || v != JudgeRequest(req, inv) {
		t.Errorf("the verdict %+v is empty or not stable", v)
	}
}

func splitList(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// someUsages varies the correct usages by the two low bits.
func someUsages(right []certificatesv1.KeyUsage, bits byte) []certificatesv1.KeyUsage {
	if bits&1 != 0 {
		right = append(right, certificatesv1.UsageKeyEncipherment)
	}
	if bits&2 != 0 {
		right = append(right, certificatesv1.UsageClientAuth)
	}
	return right
}
