// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	nodeUserPrefix = "system:node:"
	// ApprovalPause is the time a node has to use its certificate before its next request is approved.
	ApprovalPause = 5 * time.Minute
	// maxPendingOfNode is several times the number of requests that a kubelet makes in an hour.
	maxPendingOfNode = 20
	// recentlyPending is the age up to which a request counts as pending, as in OpenShift's own approver.
	recentlyPending = time.Hour
)

// judgedRequest is one request with all inputs of the checks.
type judgedRequest struct {
	req      *certificatesv1.CertificateSigningRequest
	inv      NodeInventory
	kind     CertificateKind
	parsed   *x509.CertificateRequest
	nodeName string         // X in the common name system:node:X, or "".
	machines []KnownMachine // machines that may use nodeName; normally one.
}

// namedCheck is a check with the name of its rule. failure returns "" if the check passes, otherwise the expected and
// the found value.
type namedCheck struct {
	rule      string
	otherwise Decision
	failure   func(judgedRequest) string
}

// JudgeAll evaluates every request and returns the verdicts sorted by name. Requests of a node that floods the cluster
// are neither approved nor counted. No serving request is approved while more than inv.MaxPending recent serving
// requests are undecided. The verdicts contain these reasons. New nodes share the identity of their bootstrap token, so
// client requests are counted by the node for which they would be approved, and those that fail a check block no
// others. After more than inv.MaxPending approvals of client requests in this resume, no further request is approved.
// Of several client requests for one node, only the newest is approved.
func JudgeAll(reqs []certificatesv1.CertificateSigningRequest, inv NodeInventory) []Verdict {
	verdicts := make([]Verdict, 0, len(reqs))
	undecided := make([]judgedRequest, 0, len(reqs))
	serving := pendingRequests{}
	for i := range reqs {
		c := newJudgedRequest(&reqs[i], inv)
		if v, failed := c.firstFailure(standingChecks()); failed {
			verdicts = append(verdicts, v)
			continue
		}
		if c.kind == Serving && c.isYoung() {
			serving[c.req.Spec.Username]++
		}
		undecided = append(undecided, c)
	}
	approvals, approved := inv.findApprovals(reqs)
	total, clients := serving.sumHonest(), pendingRequests{}
	for _, c := range undecided {
		reason := ""
		if c.kind == Serving {
			reason = serving.overflowReason(c, total)
		}
		if approved > inv.maxPending() {
			reason = fmt.Sprintf("expected at most %d approved client requests, found %d: no further request is approved", inv.maxPending(), approved)
		}
		if reason != "" {
			// The cluster is being flooded. If these requests were parsed, an attacker could choose the amount of
			// work.
			verdicts = append(verdicts, c.newVerdict(Retry, "pending-cap", reason))
			continue
		}
		c.inv.LastApprovals = approvals
		v := c.judgeContent()
		if v.Decision == Approve && v.Kind == Client && c.isYoung() {
			clients[v.NodeName]++
		}
		verdicts = append(verdicts, v)
	}
	clients.withholdFlooded(verdicts)
	keepNewestOfNode(verdicts, reqs)
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(a.Name, b.Name) })
	return verdicts
}

// pendingRequests counts the recent undecided requests of one kind, by their requester or by their node.
type pendingRequests map[string]int

// sumHonest returns the number of requests. It omits the requests of nodes that flood the cluster, so that they do not
// block other nodes.
func (p pendingRequests) sumHonest() (total int) {
	for _, n := range p {
		if n <= maxPendingOfNode {
			total += n
		}
	}
	return total
}

// overflowReason returns the reason why a serving request must not be parsed; empty if it may be parsed.
func (p pendingRequests) overflowReason(c judgedRequest, total int) string {
	own, most := p[c.req.Spec.Username], c.inv.maxPending()
	switch {
	case own > maxPendingOfNode:
		return fmt.Sprintf("expected at most %d undecided serving requests of one node, found %d: none of them is approved", maxPendingOfNode, own)
	case total > most:
		return fmt.Sprintf("expected at most %d undecided serving requests, found %d: none of them is approved", most, total)
	default:
		return ""
	}
}

// withholdFlooded leaves all client requests of a node pending if more of them would be approved than a kubelet
// sends.
func (p pendingRequests) withholdFlooded(verdicts []Verdict) {
	for i := range verdicts {
		v := &verdicts[i]
		if n := p[v.NodeName]; v.Decision == Approve && v.Kind == Client && n > maxPendingOfNode {
			v.Decision, v.Rule = Retry, "pending-cap"
			v.Reason = fmt.Sprintf("expected at most %d undecided client requests for node %s, found %d: none of them is approved", maxPendingOfNode, quoteBounded(v.NodeName), n)
		}
	}
}

func (c judgedRequest) isYoung() bool {
	return c.inv.Now.Sub(c.createdAt()) < recentlyPending
}

// createdAt returns the time of creation by the hub's clock.
func (c judgedRequest) createdAt() time.Time {
	return c.req.CreationTimestamp.Add(-c.inv.ClockAhead)
}

// findApprovals returns the times of the last approved client requests in this resume, by node name, and the number
// of all approved client requests. Requests remain for an hour after their approval, so this is known even after a
// restart of the manager.
func (inv NodeInventory) findApprovals(reqs []certificatesv1.CertificateSigningRequest) (map[string]time.Time, int) {
	last, approved := maps.Clone(inv.LastApprovals), 0
	if last == nil {
		last = map[string]time.Time{}
	}
	for i := range reqs {
		c := newJudgedRequest(&reqs[i], inv)
		at, ok := c.approvedAt()
		// An approval from before the machines stopped belonged to a cancelled resume.
		if !ok || c.kind != Client || requireCreatedSinceResume(c) != "" || at.Before(inv.ClientsFrom.Truncate(time.Second)) {
			continue
		}
		if approved++; approved > inv.maxPending() {
			continue
		}
		parsed, problem := parseRequest(c.req.Spec.Request)
		if problem != "" {
			continue
		}
		if name, ok := strings.CutPrefix(parsed.Subject.CommonName, nodeUserPrefix); ok && at.After(last[name]) {
			last[name] = at
		}
	}
	return last, approved
}

func (c judgedRequest) approvedAt() (time.Time, bool) {
	for _, condition := range c.req.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved {
			return latest(condition.LastUpdateTime.Add(-c.inv.ClockAhead), c.createdAt()), true
		}
	}
	return time.Time{}, false
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keepNewestOfNode withholds all but the newest of a node's approvable client requests, because a kubelet waits only
// for its last one.
func keepNewestOfNode(verdicts []Verdict, reqs []certificatesv1.CertificateSigningRequest) {
	created := map[string]time.Time{}
	for i := range reqs {
		created[reqs[i].Name] = reqs[i].CreationTimestamp.Time
	}
	newest := map[string]*Verdict{}
	for i := range verdicts {
		v := &verdicts[i]
		if v.Decision != Approve || v.Kind != Client {
			continue
		}
		other, older := newest[v.NodeName], v
		if other == nil {
			newest[v.NodeName] = v
			continue
		}
		if c := created[v.Name].Compare(created[other.Name]); c > 0 || c == 0 && v.Name > other.Name {
			newest[v.NodeName], older = v, other
		}
		older.Decision, older.Rule = Retry, "one-per-node"
		older.Reason = fmt.Sprintf("expected one client request of node %s at a time, found a newer request", quoteBounded(v.NodeName))
	}
}

// JudgeRequest evaluates one request, which must not be nil. JudgeAll applies the cap on pending requests, because
// the cap depends on the other requests.
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

// judgeContent evaluates a request that is undecided, has a known signer and is recent enough.
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
	v := Verdict{Name: c.req.Name, UID: c.req.UID, Decision: decision, Rule: rule, Reason: reason, Kind: c.kind}
	if len(c.machines) > 0 {
		v.NodeName = c.nodeName
	}
	return v
}

// standingChecks evaluate the CertificateSigningRequest object, but not the PKCS #10 request in it. A request that
// fails one of these checks is never parsed.
func standingChecks() []namedCheck {
	return []namedCheck{
		{"undecided", Skip, requireUndecided},
		{"signer", Leave, requireNodeSigner},
		{"resume-start", Retry, requireResumeStart},
		{"age", Leave, requireCreatedSinceResume},
		{"window", Leave, requireOpenWindow},
		{"user", Leave, requireNodeOrBootstrapUser},
		{"sent", Retry, requireNotSent},
	}
}

func requireOpenWindow(c judgedRequest) string {
	if c.inv.Now.After(c.inv.NotAfter) {
		return "expected a request within the approval period after the resume, found that the period has ended"
	}
	return ""
}

func requireNodeOrBootstrapUser(c judgedRequest) string {
	if c.kind == Client {
		return requireBootstrapUser(c)
	}
	if !strings.HasPrefix(c.req.Spec.Username, nodeUserPrefix) {
		return fmt.Sprintf("expected the user name %q followed by a node name, found %s", nodeUserPrefix, quoteBounded(c.req.Spec.Username))
	}
	return ""
}

// requireNotSent prevents endless approvals for a cluster that accepts approvals but does not show them.
func requireNotSent(c judgedRequest) string {
	if at, ok := c.inv.SentApprovals[c.req.UID]; ok && c.inv.Now.Sub(at) < ApprovalPause {
		return fmt.Sprintf("expected the cluster to show the approval that was sent less than %s ago, found the request undecided", ApprovalPause)
	}
	return ""
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
		return "expected a recorded start of the resume, found none"
	}
	return ""
}

func requireCreatedSinceResume(c judgedRequest) string {
	// Creation times have whole seconds, so a fraction of the start would reject a request from the same second.
	if c.createdAt().Before(c.inv.NotBefore.Truncate(time.Second)) {
		return "expected a request created since the resume started, found an older request"
	}
	return ""
}
