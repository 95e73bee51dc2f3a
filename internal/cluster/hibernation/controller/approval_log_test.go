// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
)

// TestOnlyARefusedClientApprovalEndsItsPause approves a client request of a node, and then receives the result of
// another approval.
func TestOnlyARefusedClientApprovalEndsItsPause(t *testing.T) {
	const node = "worker-0"
	now := time.Now()
	for name, row := range map[string]struct {
		kind             csr.CertificateKind
		pausedFor        time.Duration
		isMade, isPaused bool
	}{
		"refused approval of a serving request does not end the pause":  {csr.Serving, time.Second, false, true},
		"accepted approval of a serving request does not end the pause": {csr.Serving, time.Second, true, true},
		"refused approval of a client request ends the pause":           {csr.Client, csr.ApprovalPause, false, false},
		"accepted approval of a client request does not end the pause":  {csr.Client, csr.ApprovalPause, true, true},
	} {
		r := &resumeApprovals{sent: map[types.UID]time.Time{}, byNode: map[string]time.Time{}, pending: map[types.UID]csr.Verdict{}}
		answer := func(uid types.UID, kind csr.CertificateKind, isMade bool, at time.Time) {
			r.noteSent(csr.Verdict{UID: uid, Kind: kind, NodeName: node}, at)
			a := targetcluster.Approval{Request: &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{UID: uid}}, IsMade: isMade}
			if !isMade {
				a.Err = errors.New("no")
			}
			r.noteAnswers([]targetcluster.Approval{a})
		}
		answer("first", csr.Client, true, now.Add(-row.pausedFor))
		answer("second", row.kind, row.isMade, now)
		if _, isPaused := r.byNode[node]; isPaused != row.isPaused {
			t.Errorf("%s: expected client approvals of the node to be paused: %t, found %t", name, row.isPaused, isPaused)
		}
	}
}
