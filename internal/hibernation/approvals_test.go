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

// TestApprovalsFollowTheSleep is every sort of record: who may open the time of approvals, when it begins and when it ends.
func TestApprovalsFollowTheSleep(t *testing.T) {
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
		"a cluster that never hibernated":                 {nil, false, false},
		"a resume of a complete sleep":                    {asleep(resumingRecord(time.Second)), true, true},
		"a resume of a sleep that was never complete":     {resumingRecord(time.Second), true, false},
		"the same once nodes have had time to report":     {resumingRecord(reportGrace), true, true},
		"a machine that was switched off":                 {repair(asleep(resumingRecord(time.Hour))), false, false},
		"the care after a resume":                         {asleep(resumedRecord(time.Minute)), true, true},
		"the time after the care":                         {asleep(resumedRecord(aftercareWindow)), false, true},
		"the last moment of a resume that does not end":   {asleep(resumingRecord(approvalWindow - time.Second)), true, true},
		"a resume that has not ended after the last hour": {asleep(resumingRecord(approvalWindow + time.Second)), false, true},
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

func TestMessageSaysWhatBlocksApprovals(t *testing.T) {
	blocked := func(requests ...BlockedRequest) func(*Observed) {
		return func(o *Observed) { o.Blocked = requests }
	}
	for name, row := range map[string]struct {
		resumedFor time.Duration
		change     func(*Observed)
		want       string
	}{
		"nothing is known":                          {time.Minute, blocked(), "were started: n0"},
		"a request of a missing node":               {time.Minute, blocked(BlockedRequest{"n9", "no"}, BlockedRequest{"n0", "expected a"}), "n0; a certificate request is not approved: expected a"},
		"a request that is of no node":              {time.Minute, blocked(BlockedRequest{"", "expected b"}), "not approved: expected b"},
		"a request of a node that nobody waits for": {time.Minute, blocked(BlockedRequest{"n9", "no"}), "were started: n0"},
		"the time of approvals has ended":           {approvalWindow + time.Second, blocked(), "because the resume began more than 4h0m0s ago: approve them by hand"},
		"machines were only switched off":           {approvalWindow + time.Second, func(o *Observed) { o.Record.Repair = true }, "were started: n0"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster("", resumingRecord(row.resumedFor), actuator.Running, apiWithNodes(ObservedNode{RecordedNode: readyNode("n0").RecordedNode}), row.change)
			if got := Decide(o).Ready; got.Status != metav1.ConditionFalse || !strings.HasSuffix(got.Message, row.want) {
				t.Errorf("found %+v, want a message that ends in %q", got, row.want)
			}
		})
	}
}
