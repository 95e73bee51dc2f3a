// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const nodeUserPrefix = "system:node:"

// judgedRequest is one request with everything the checks look at.
type judgedRequest struct {
	req      *certificatesv1.CertificateSigningRequest
	inv      NodeInventory
	kind     CertificateKind
	parsed   *x509.CertificateRequest
	nodeName string         // the X of the common name system:node:X, or "".
	machines []KnownMachine // the machines that may take nodeName; one, if all is well.
}

// namedCheck is one named condition. failure returns "" if it holds, otherwise what was expected and found.
type namedCheck struct {
	rule      string
	otherwise Decision
	failure   func(judgedRequest) string
}

// JudgeAll judges every request and returns the verdicts sorted by name. If more node requests are undecided than
// inv.MaxPending allows, none of them is approved and each verdict says so. Requests older than inv.NotBefore do not count.
func JudgeAll(reqs []certificatesv1.CertificateSigningRequest, inv NodeInventory) []Verdict {
	verdicts := make([]Verdict, 0, len(reqs))
	undecided := make([]judgedRequest, 0, len(reqs))
	for i := range reqs {
		c := newJudgedRequest(&reqs[i], inv)
		if v, failed := c.firstFailure(standingChecks()); failed {
			verdicts = append(verdicts, v)
			continue
		}
		undecided = append(undecided, c)
	}
	flooded := len(undecided) > inv.maxPending()
	reason := fmt.Sprintf("expected at most %d undecided node requests, found %d: none is approved",
		inv.maxPending(), len(undecided))
	for _, c := range undecided {
		if flooded {
			// Something floods the cluster. To read the requests would be work that an attacker chooses the amount of.
			verdicts = append(verdicts, c.newVerdict(Retry, "pending-cap", reason))
			continue
		}
		verdicts = append(verdicts, c.judgeContent())
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(a.Name, b.Name) })
	return verdicts
}

// JudgeRequest judges one request, which must not be nil. The cap on pending requests is left to JudgeAll, which knows the
// other requests.
func JudgeRequest(req *certificatesv1.CertificateSigningRequest, inv NodeInventory) Verdict {
	c := newJudgedRequest(req, inv)
	if v, failed := c.firstFailure(standingChecks()); failed {
		return v
	}
	return c.judgeContent()
}

func newJudgedRequest(req *certificatesv1.CertificateSigningRequest, inv NodeInventory) judgedRequest {
	return judgedRequest{req: req, inv: inv, kind: kindOf(req.Spec.SignerName)}
}

// judgeContent judges a request that is undecided, ours and young enough.
func (c judgedRequest) judgeContent() Verdict {
	parsed, problem := parseRequest(c.req.Spec.Request)
	if problem != "" {
		return c.newVerdict(Leave, "request", problem)
	}
	c.parsed = parsed
	if name, ok := strings.CutPrefix(parsed.Subject.CommonName, nodeUserPrefix); ok {
		c.nodeName = name
	}
	c.machines = c.inv.machinesFor(c.nodeName)

	checks := clientChecks()
	if c.kind == Serving {
		checks = servingChecks()
	}
	if v, failed := c.firstFailure(checks); failed {
		return v
	}
	return c.newVerdict(Approve, "accepted", fmt.Sprintf("every check of a %s request passed for node %s", c.kind, quoteBounded(c.nodeName)))
}

func (c judgedRequest) firstFailure(checks []namedCheck) (Verdict, bool) {
	for _, check := range checks {
		if reason := check.failure(c); reason != "" {
			return c.newVerdict(check.otherwise, check.rule, reason), true
		}
	}
	return Verdict{}, false
}

func (c judgedRequest) newVerdict(decision Decision, rule, reason string) Verdict {
	v := Verdict{Name: c.req.Name, Decision: decision, Rule: rule, Reason: reason, Kind: c.kind}
	if len(c.machines) > 0 {
		v.NodeName = c.nodeName
	}
	return v
}

// standingChecks need nothing but the object around the request. What they reject is never parsed.
func standingChecks() []namedCheck {
	return []namedCheck{
		{"undecided", Skip, requireUndecided},
		{"signer", Leave, requireNodeSigner},
		{"resume-start", Retry, requireResumeStart},
		{"age", Leave, requireCreatedSinceResume},
	}
}

func kindOf(signer string) CertificateKind {
	switch signer {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return Client
	case certificatesv1.KubeletServingSignerName:
		return Serving
	default:
		return ""
	}
}

func requireUndecided(c judgedRequest) string {
	for _, condition := range c.req.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return fmt.Sprintf("expected an undecided request, found the condition %s", condition.Type)
		}
	}
	if len(c.req.Status.Certificate) > 0 {
		return "expected an undecided request, found an issued certificate"
	}
	return ""
}

func requireNodeSigner(c judgedRequest) string {
	if c.kind != "" {
		return ""
	}
	return fmt.Sprintf("expected the signer %q or %q, found %s", certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName, quoteBounded(c.req.Spec.SignerName))
}

func requireResumeStart(c judgedRequest) string {
	if c.inv.NotBefore.IsZero() {
		return "expected to know when the resume started, found no time"
	}
	return ""
}

func requireCreatedSinceResume(c judgedRequest) string {
	// Creation times have whole seconds, so a fraction of the start would reject a request of the same second.
	if c.req.CreationTimestamp.Time.Before(c.inv.NotBefore.Truncate(time.Second)) {
		return "expected a request created since the resume started, found an older one"
	}
	return ""
}
