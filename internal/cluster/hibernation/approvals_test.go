// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// TestApprovalsFollowTheHibernationRecord checks for every kind of record whether, and in which period, certificate
// requests are approved.
func TestApprovalsFollowTheHibernationRecord(t *testing.T) {
	asleep := func(r *hivev1.HibernationRecord) *hivev1.HibernationRecord {
		r.AsleepAt = new(secondsAgo(12 * time.Hour))
		return r
	}
	repair := func(r *hivev1.HibernationRecord) *hivev1.HibernationRecord {
		r.Repair = true
		return r
	}
	now := modelTime()
	for name, row := range map[string]struct {
		record            *hivev1.HibernationRecord
		isNeeded, clients bool
	}{
		"cluster that never hibernated evaluates no requests":                                  {nil, false, false},
		"resume of a complete hibernation evaluates all requests":                              {asleep(resumingRecord(time.Second)), true, true},
		"resume of an incomplete hibernation approves no client requests in its first seconds": {resumingRecord(time.Second), true, false},
		"resume of an incomplete hibernation approves client requests after a minute":          {resumingRecord(reportGrace), true, true},
		"restart of a machine that was switched off evaluates no requests":                     {repair(asleep(resumingRecord(time.Hour))), false, false},
		"resumed cluster evaluates all requests for ten minutes":                               {asleep(resumedRecord(time.Minute)), true, true},
		"resumed cluster evaluates no requests after ten minutes":                              {asleep(resumedRecord(aftercareWindow)), false, true},
		"unfinished resume evaluates all requests until the approval window ends":              {asleep(resumingRecord(approvalWindow - time.Second)), true, true},
		"unfinished resume evaluates no requests after the approval window":                    {asleep(resumingRecord(approvalWindow + time.Second)), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster("", row.record, actuator.Running, apiWithNodes(staleNode("n0")))
			if got := NeedsCertificateRequests(o); got != row.isNeeded {
				t.Errorf("requests are judged: %t, want %t", got, row.isNeeded)
			}
			from := ClientApprovalsFrom(row.record)
			if got := !from.IsZero() && !now.Before(from); got != row.clients {
				t.Errorf("client requests are approved from %s on, which is %t now, want %t", from, got, row.clients)
			}
		})
	}
}

func TestMessageReportsBlockedApprovals(t *testing.T) {
	blocked := func(requests ...BlockedRequest) func(*Observed) {
		return func(o *Observed) { o.Blocked = requests }
	}
	for name, row := range map[string]struct {
		resumedFor time.Duration
		change     func(*Observed)
		want       string
	}{
		"message without a refused request names the node":                    {time.Minute, blocked(), "of the machines: n0"},
		"message with a refused request of a missing node shows the problem":  {time.Minute, blocked(BlockedRequest{"n9", "no"}, BlockedRequest{"n0", "expected a"}), "n0; a certificate request is not approved: expected a"},
		"message with a refused request without a node shows the problem":     {time.Minute, blocked(BlockedRequest{"", "expected b"}), "not approved: expected b"},
		"message with a refused request of a returned node hides the problem": {time.Minute, blocked(BlockedRequest{"n9", "no"}), "of the machines: n0"},
		"message after the approval window advises approval by hand":          {approvalWindow + time.Second, blocked(), "because the resume began more than 4h0m0s ago: approve them by hand"},
		"message about machines that were switched off names the node":        {approvalWindow + time.Second, func(o *Observed) { o.Record.Repair = true }, "of the machines: n0"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster("", resumingRecord(row.resumedFor), actuator.Running, apiWithNodes(ObservedNode{RecordedNode: readyNode("n0").RecordedNode}), row.change)
			if got := Decide(o).Ready; got.Status != metav1.ConditionFalse || !strings.HasSuffix(got.Message, row.want) {
				t.Errorf("found %+v, want a message that ends in %q", got, row.want)
			}
		})
	}
}
