// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runJudged applies each change to a new request and compares the verdicts of JudgeRequest and JudgeAll.
func runJudged(t *testing.T, fresh func() *testRequest, cases map[string]judgeCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := fresh()
			tc.change(a)
			req := a.finish(t)
			v := JudgeRequest(req, a.inv)
			got := judgement{v.Decision, v.Rule, tc.want.Says}
			if diff := cmp.Diff(tc.want, got); diff != "" || !strings.Contains(v.Reason, tc.want.Says) {
				t.Errorf("verdict differs (-want +got):\n%s\nreason: %s", diff, v.Reason)
			}
			if all := JudgeAll([]certificatesv1.CertificateSigningRequest{*req}, a.inv); !slices.Equal(all, []Verdict{v}) {
				t.Errorf("JudgeAll = %+v, but Judge = %+v", all, v)
			}
		})
	}
}

func TestStanding(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) func(*testRequest) {
		return func(a *testRequest) {
			a.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: "True"}}
		}
	}
	created := func(at time.Time) func(*testRequest) {
		return func(a *testRequest) { a.CreationTimestamp = metav1.NewTime(at) }
	}
	sent := func(ago time.Duration) func(*testRequest) {
		return func(a *testRequest) {
			a.inv.SentApprovals = map[types.UID]time.Time{a.UID: a.inv.Now.Add(-ago)}
		}
	}
	runJudged(t, tokenRequest, map[string]judgeCase{
		"approved request is skipped":                                                {condition(certificatesv1.CertificateApproved), skipped("found the condition Approved")},
		"denied request is skipped":                                                  {condition(certificatesv1.CertificateDenied), skipped("found the condition Denied")},
		"failed request is skipped":                                                  {condition(certificatesv1.CertificateFailed), skipped("found the condition Failed")},
		"request with an issued certificate is skipped":                              {func(a *testRequest) { a.Status.Certificate = []byte("x") }, skipped("an issued certificate")},
		"request with an unknown condition is approved":                              {condition("Seen"), accepted()},
		"request from before the resume is not approved":                             {created(resumed().Add(-time.Minute)), left("age", "found an older request")},
		"request created one second before the resume is not approved":               {created(resumed().Truncate(time.Second).Add(-time.Second)), left("age", "found an older request")},
		"request created in the same second as the start of the resume is approved":  {created(resumed().Truncate(time.Second)), accepted()},
		"request without a creation time is not approved":                            {created(time.Time{}), left("age", "found an older request")},
		"request judged after the approval period is not approved":                   {func(a *testRequest) { a.inv.NotAfter = a.inv.Now.Add(-1) }, left("window", "period has ended")},
		"request judged at the end of the approval period is approved":               {func(a *testRequest) { a.inv.NotAfter = a.inv.Now }, accepted()},
		"undecided request whose approval was sent a second ago is not approved yet": {sent(time.Second), retried("sent", "sent less than 5m0s ago")},
		"undecided request whose approval was sent minutes ago is approved again":    {sent(ApprovalPause), accepted()},
		"request with the name of an approved request but another UID is approved":   {func(a *testRequest) { sent(0)(a); a.UID = "uid-other" }, accepted()},
		"request is not approved while the start of the resume is unknown":           {func(a *testRequest) { a.inv.NotBefore = time.Time{} }, retried("resume-start", "expected a recorded start of the resume, found none")},
		"approved request is skipped without parsing":                                {func(a *testRequest) { condition("Approved")(a); a.rewrite = emptied }, skipped("Approved")},
		"request for a foreign signer is not parsed":                                 {func(a *testRequest) { a.Spec.SignerName = "x/y"; a.rewrite = emptied }, left("signer", `found "x/y"`)},
	})
}

func TestMalformedRequests(t *testing.T) {
	der := func(req []byte) []byte { block, _ := pem.Decode(req); return block.Bytes }
	runJudged(t, tokenRequest, map[string]judgeCase{
		"empty request is not approved":        {rewrittenBy(emptied), left("request", "expected one PEM block, found none")},
		"DER without PEM is not approved":      {rewrittenBy(der), left("request", "expected one PEM block, found none")},
		"PEM type CERTIFICATE is not approved": {rewrittenBy(func(req []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der(req)}) }), left("request", `expected a PEM block of type CERTIFICATE REQUEST, found "CERTIFICATE"`)},
		"PEM type NEW CERTIFICATE REQUEST is not approved": {func(a *testRequest) {
			a.rewrite = func(req []byte) []byte {
				return pem.EncodeToMemory(&pem.Block{Type: "NEW CERTIFICATE REQUEST", Bytes: der(req)})
			}
		}, left("request", `found "NEW CERTIFICATE REQUEST"`)},
		"text before the PEM block is not approved": {rewrittenBy(func(req []byte) []byte { return append([]byte("hello\n"), req...) }), left("request", "exactly one PEM block without headers")},
		"text after the PEM block is not approved":  {rewrittenBy(func(req []byte) []byte { return append(req, "hello"...) }), left("request", "exactly one PEM block without headers")},
		"second PEM block is not approved": {
			func(a *testRequest) { a.rewrite = func(req []byte) []byte { return append(req, req...) } },
			left("request", "exactly one PEM block without headers"),
		},
		"PEM block with headers is not approved": {func(a *testRequest) {
			a.rewrite = func(req []byte) []byte {
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"a": "b"}, Bytes: der(req)})
			}
		}, left("request", "found headers")},
		"white space around the PEM block is approved": {rewrittenBy(func(req []byte) []byte { return append([]byte("\n"), append(req, "\n\n"...)...) }), accepted()},
		"PEM block without DER is not approved": {
			func(a *testRequest) { a.rewrite = func([]byte) []byte { return toPEM([]byte("hello")) } },
			left("request", "expected a DER-encoded PKCS #10 request"),
		},
		"bytes after the DER are not approved": {rewrittenBy(func(req []byte) []byte { return toPEM(append(der(req), 0x05, 0x00)) }), left("request", "expected a DER-encoded PKCS #10 request")},
		"element after the signature is not approved": {
			rawRequest{outerTail: []byte{0x05, 0x00}}.applyTo,
			left("request", "expected a DER-encoded PKCS #10 request"),
		},
		"repeated extension is not approved": {
			rawRequest{attributes: [][]byte{extensionRequest(altNames(), altNames())}}.applyTo,
			left("request", "cannot be parsed"),
		},
		"sequence of three integers is not approved": {func(a *testRequest) {
			a.rewrite = func([]byte) []byte {
				one := []byte{0x02, 0x01, 0x01}
				return toPEM(tlv(tagSequence, one, one, one))
			}
		}, left("request", "cannot be parsed")},
	})
}

func TestOneBadRequestDoesNotStopTheOthers(t *testing.T) {
	named := func(name string, a *testRequest, change func(*testRequest)) certificatesv1.CertificateSigningRequest {
		a.Name = name
		change(a)
		return *a.finish(t)
	}
	reqs := []certificatesv1.CertificateSigningRequest{
		named("d", servingRequest(), func(*testRequest) {}),
		named("a", openShiftRequest(), rewrittenBy(emptied)),
		named("c", servingRequest(), ofNode("bare")),
		named("b", openShiftRequest(), func(*testRequest) {}),
		named("e", tokenRequest(), func(a *testRequest) { a.Status.Certificate = []byte("x") }),
		named("f", tokenRequest(), withSigner("x/y")),
	}
	want := []Verdict{
		{Name: "a", UID: "uid-csr-1", Kind: Client, Decision: Leave, Rule: "request", Reason: "expected one PEM block, found none"},
		{Name: "b", UID: "uid-csr-1", Kind: Client, Decision: Approve, Rule: "accepted", NodeName: "n1", Reason: `every check of a client request passed for node "n1"`},
		{Name: "c", UID: "uid-csr-1", Kind: Serving, Decision: Retry, Rule: "addresses", NodeName: "bare", Reason: `expected the machine of node "bare" to have addresses, found none`},
		{Name: "d", UID: "uid-csr-1", Kind: Serving, Decision: Approve, Rule: "accepted", NodeName: "n1", Reason: `every check of a serving request passed for node "n1"`},
		{Name: "e", UID: "uid-csr-1", Kind: Client, Decision: Skip, Rule: "undecided", Reason: "expected an undecided request, found an issued certificate"},
		{
			Name: "f", UID: "uid-csr-1", Decision: Leave, Rule: "signer",
			Reason: `expected the signer "kubernetes.io/kube-apiserver-client-kubelet" or "kubernetes.io/kubelet-serving", found "x/y"`,
		},
	}
	if diff := cmp.Diff(want, JudgeAll(reqs, testInventory())); diff != "" {
		t.Errorf("verdicts differ (-want +got):\n%s", diff)
	}
}

func TestCapOnPendingRequests(t *testing.T) {
	good := func(*testRequest) {}
	old := func(a *testRequest) { a.CreationTimestamp = metav1.NewTime(resumed().Add(-time.Hour)) }
	decided := func(a *testRequest) { a.Status.Certificate = []byte("x") }
	foreign := withSigner("x/y")
	stranger := withUser("alice")
	hourOld := func(a *testRequest) {
		a.inv.NotBefore, a.CreationTimestamp = time.Unix(1, 0), metav1.NewTime(a.inv.Now.Add(-2*time.Hour))
	}
	limits := regexp.MustCompile(`^expected at most \d+ undecided (serving requests( of one node)?|client requests for node "n1"), found \d+: none of them is approved$`)
	bootstrap := func(a *testRequest) { *a = *tokenRequest() }
	ofOthers := func(n int) []func(*testRequest) {
		var changes []func(*testRequest)
		for i := range n {
			changes = append(changes, withUser(fmt.Sprintf("system:node:other-%d", i)))
		}
		return changes
	}
	cases := map[string]struct {
		requests   int
		change     func(*testRequest)
		maxPending int
		more       []func(*testRequest)
		want       map[Decision]int
	}{
		"requests up to the given cap are approved":                                    {requests: 3, change: good, maxPending: 3, want: map[Decision]int{Approve: 3}},
		"requests above the given cap are not approved":                                {requests: 4, change: good, maxPending: 3, want: map[Decision]int{Retry: 4}},
		"valid request is approved if all requests together reach the default cap":     {requests: 1, change: good, more: ofOthers(109), want: map[Decision]int{Approve: 1, Leave: 109}},
		"requests above the default cap are not approved":                              {requests: 1, change: good, more: ofOthers(110), want: map[Decision]int{Retry: 111}},
		"requests up to the limit of one node are approved":                            {requests: 20, change: good, want: map[Decision]int{Approve: 20}},
		"requests above the limit of one node are not approved":                        {requests: 21, change: good, want: map[Decision]int{Retry: 21}},
		"node that floods the cluster blocks only its own requests":                    {requests: 1, change: good, more: slices.Repeat(ofOthers(1), 500), want: map[Decision]int{Approve: 1, Retry: 500}},
		"new nodes that flood the cluster block no serving request":                    {requests: 1, change: good, more: slices.Repeat([]func(*testRequest){bootstrap}, 500), want: map[Decision]int{Approve: 1, Retry: 500}},
		"malformed requests count against the cap":                                     {requests: 4, change: rewrittenBy(emptied), maxPending: 3, want: map[Decision]int{Retry: 4}},
		"requests from before the resume do not count against the cap":                 {requests: 3, change: good, maxPending: 3, more: []func(*testRequest){old, old}, want: map[Decision]int{Approve: 3, Leave: 2}},
		"decided requests do not count against the cap":                                {requests: 3, change: good, maxPending: 3, more: []func(*testRequest){decided}, want: map[Decision]int{Approve: 3, Skip: 1}},
		"requests for another signer do not count against the cap":                     {requests: 3, change: good, maxPending: 3, more: []func(*testRequest){foreign}, want: map[Decision]int{Approve: 3, Leave: 1}},
		"requests that do not count against the cap keep their verdicts above the cap": {requests: 4, change: good, maxPending: 3, more: []func(*testRequest){old, decided}, want: map[Decision]int{Retry: 4, Leave: 1, Skip: 1}},
		"requests of unknown users do not count against the cap":                       {requests: 3, change: good, maxPending: 3, more: []func(*testRequest){stranger}, want: map[Decision]int{Approve: 3, Leave: 1}},
		"requests that wait for hours do not count against the cap":                    {requests: 3, change: good, maxPending: 3, more: []func(*testRequest){hourOld}, want: map[Decision]int{Approve: 4}},
		"empty list has no verdicts":                                                   {maxPending: 3, want: map[Decision]int{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var reqs []certificatesv1.CertificateSigningRequest
			inv := testInventory()
			for _, change := range append(slices.Repeat([]func(*testRequest){tc.change}, tc.requests), tc.more...) {
				a := servingRequest()
				change(a)
				inv.NotBefore = a.inv.NotBefore
				reqs = append(reqs, *a.finish(t))
			}
			inv.MaxPending = tc.maxPending
			got := map[Decision]int{}
			for _, v := range JudgeAll(reqs, inv) {
				got[v.Decision]++
				if v.Decision == Retry && (v.Rule != "pending-cap" || !limits.MatchString(v.Reason)) {
					t.Errorf("verdict %+v does not speak of the cap", v)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decisions differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodeNameIsOnlyThatOfAKnownMachine(t *testing.T) {
	cases := map[string]struct{ commonName, want string }{
		"common name of a node with a machine is the node name":    {"system:node:n1", "n1"},
		"common name without a machine is no node name":            {"system:node:orphan", ""},
		"common name without the prefix is no node name":           {"n1", ""},
		"common name with only the prefix is no node name":         {"system:node:", ""},
		"common name with two machines is the node name":           {"system:node:twin", "twin"},
		"common name of a machine without a node is the node name": {"system:node:fresh", "fresh"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := tokenRequest()
			a.template.Subject.CommonName = tc.commonName
			if got := JudgeRequest(a.finish(t), a.inv).NodeName; got != tc.want {
				t.Errorf("node name = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReasonsStayShort(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := map[string]struct {
		change func(*testRequest)
		want   string
	}{
		"long name is shortened": {withUser(long), `found "` + strings.Repeat("x", 80) + `"…`},
		"long list of groups is shortened": {func(a *testRequest) {
			for i := range 50 {
				a.Spec.Groups = append(a.Spec.Groups, fmt.Sprintf("a%02d", i))
			}
		}, `"a08", "a09", 42 more`},
		"name at the limit is not shortened": {withUser(long[:80]), `found "` + long[:80] + `"`},
		"list of groups at the limit is not shortened": {func(a *testRequest) {
			a.Spec.Groups = strings.Split("a0 a1 a2 a3 a4 a5 a6 a7 a8 a9", " ")
		}, `"a8", "a9"`},
		"control characters are escaped": {withUser("a\nb"), `found "a\nb"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := tokenRequest()
			tc.change(a)
			reason := JudgeRequest(a.finish(t), a.inv).Reason
			if !strings.HasSuffix(reason, tc.want) || len(reason) > 500 {
				t.Errorf("reason %q of %d bytes does not end in %q", reason, len(reason), tc.want)
			}
		})
	}
}

func TestJudgingChangesNothing(t *testing.T) {
	for name, a := range map[string]*testRequest{"client": openShiftRequest(), "serving": servingRequest()} {
		t.Run(name, func(t *testing.T) {
			req := a.finish(t)
			before, inv := req.DeepCopy(), testInventory()
			JudgeAll([]certificatesv1.CertificateSigningRequest{*req}, a.inv)
			if diff := cmp.Diff(before, req) + cmp.Diff(inv, a.inv); diff != "" {
				t.Errorf("the arguments changed:\n%s", diff)
			}
		})
	}
}

func emptied([]byte) []byte { return nil }

// breakSignature changes the last byte of the signature.
func breakSignature(finished []byte) []byte {
	block, _ := pem.Decode(finished)
	der := bytes.Clone(block.Bytes)
	der[len(der)-1] ^= 1
	return toPEM(der)
}

// rsaOf encodes an RSA public key of the given size without a private key.
func rsaOf(bits uint) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return must(x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}))
}

func exchangeKey() []byte {
	return must(x509.MarshalPKIXPublicKey(must(ecdh.X25519().GenerateKey(rand.Reader)).PublicKey()))
}
