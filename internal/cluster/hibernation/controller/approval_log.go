// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
)

const (
	// maxApprovalsPerPass limits approvals. The next pass runs half a second later.
	maxApprovalsPerPass = 50
	// maxToldVerdicts limits the number of reported requests that are not approved in one resume, because users of the
	// cluster determine how many there are.
	maxToldVerdicts = 500
	// maxResumeAge exceeds the approval period of any resume.
	maxResumeAge = 24 * time.Hour
)

// approvalLog stores the decisions on certificate requests of resuming clusters, independently of what the clusters
// report. After a restart, most of the decisions can be read from the requests.
type approvalLog struct {
	mu      sync.Mutex
	resumes map[types.UID]*resumeApprovals
}

// resumeApprovals are the decisions of one resume. Only the pass of the cluster uses them.
type resumeApprovals struct {
	startedAt time.Time
	sent      map[types.UID]time.Time
	byNode    map[string]time.Time
	// pending are the submitted approvals without a result.
	pending map[types.UID]csr.Verdict
	told    map[toldVerdict]bool
	// unreported are decisions whose events and counts are emitted after the next status update.
	unreported []csr.Verdict
}

type toldVerdict struct {
	uid  types.UID
	rule string
}

// ofResume returns the decisions of a cluster's current resume, and drops the decisions of earlier resumes. It returns
// nil while no request may be approved.
func (l *approvalLog) ofResume(uid types.UID, o hibernation.Observed) *resumeApprovals {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Old entries are also dropped, so nothing remains of deleted clusters.
	maps.DeleteFunc(l.resumes, func(_ types.UID, old *resumeApprovals) bool { return o.Now.Sub(old.startedAt) > maxResumeAge })
	if !o.Now.Before(hibernation.ApprovalsUntil(o.Record)) {
		delete(l.resumes, uid)
		return nil
	}
	startedAt := o.Record.ResumeStartedAt.Time
	known := l.resumes[uid]
	if known == nil || !known.startedAt.Equal(startedAt) {
		known = &resumeApprovals{startedAt: startedAt, sent: map[types.UID]time.Time{}, byNode: map[string]time.Time{}, pending: map[types.UID]csr.Verdict{}, told: map[toldVerdict]bool{}}
		l.resumes[uid] = known
	}
	return known
}

// noteSent records an approval before it is sent, so it is not sent twice.
func (r *resumeApprovals) noteSent(v csr.Verdict, at time.Time) {
	r.sent[v.UID], r.pending[v.UID] = at, v
	if v.Kind == csr.Client {
		r.byNode[v.NodeName] = at
	}
}

// noteAnswers stores the results of approvals, and returns the error of a failed approval.
func (r *resumeApprovals) noteAnswers(answers []targetcluster.Approval) (failed string) {
	for _, a := range answers {
		if a.Err != nil {
			failed = "Certificate requests cannot be approved: " + targetcluster.DescribeError(a.Err)
		}
		if r == nil {
			continue
		}
		v, isPending := r.pending[a.Request.UID]
		delete(r.pending, a.Request.UID)
		switch {
		case !isPending:
		case a.IsMade:
			r.unreported = append(r.unreported, v)
		default:
			delete(r.sent, v.UID)
			if v.Kind == csr.Client { // Only approvals of client requests start a pause.
				delete(r.byNode, v.NodeName)
			}
		}
	}
	return failed
}

// noteRefusals stores new verdicts on requests that were not approved.
func (r *resumeApprovals) noteRefusals(verdicts []csr.Verdict) {
	for _, v := range verdicts {
		told := toldVerdict{v.UID, v.Rule}
		if v.Decision == csr.Approve || !isWorthTelling(v) || r.told[told] || len(r.told) >= maxToldVerdicts {
			continue
		}
		r.told[told] = true
		r.unreported = append(r.unreported, v)
	}
}

// isWorthTelling reports whether a verdict is reported. It is false for requests that are decided or do not concern
// this resume.
func isWorthTelling(v csr.Verdict) bool {
	switch v.Rule {
	case "undecided", "signer", "age", "sent":
		return false
	default:
		return true
	}
}
