// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"maps"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClientRequestsOnlyForMissingNodes tests every combination of the reasons not to approve an otherwise valid
// request. A serving request gets the same verdict in all of them.
func TestClientRequestsOnlyForMissingNodes(t *testing.T) {
	now := testInventory().Now
	for _, sleep := range []struct {
		name string
		from time.Time
		rule string
	}{{"after a hibernation", resumed(), ""}, {"after a drift", time.Time{}, "sleep"}, {"too early", now.Add(1), "grace"}, {"just in time", now, ""}} {
		for _, node := range []struct{ name, rule string }{{"n1", ""}, {"back", "missing"}} {
			for _, last := range []struct {
				name string
				ago  time.Duration
				rule string
			}{{"never approved", -1, ""}, {"approved just now", 0, "one-per-node"}, {"approved minutes ago", ApprovalPause, ""}} {
				t.Run(sleep.name+", "+node.name+", "+last.name, func(t *testing.T) {
					want := accepted().Rule
					for _, rule := range []string{last.rule, node.rule, sleep.rule} {
						if rule != "" {
							want = rule
						}
					}
					for _, fresh := range []func() *testRequest{tokenRequest, openShiftRequest, servingRequest} {
						a := fresh()
						a.renameNode(node.name)
						a.inv.ClientsFrom = sleep.from
						if a.Spec.SignerName == certificatesv1.KubeletServingSignerName {
							a.template.DNSNames, a.template.IPAddresses, want = []string{"n1"}, nil, accepted().Rule
						}
						if last.ago >= 0 {
							a.inv.LastApprovals = map[string]time.Time{node.name: now.Add(-last.ago)}
						}
						req := a.finish(t)
						if v := JudgeRequest(req, a.inv); v.Rule != want {
							t.Errorf("found %+v, want rule %q", v, want)
						}
						compareWithReference(t, req, a.inv)
					}
				})
			}
		}
	}
}

// TestApprovalsOfANode evaluates several requests of one node together.
func TestApprovalsOfANode(t *testing.T) {
	at := func(minutes float64) metav1.Time {
		return metav1.NewTime(resumed().Add(time.Duration(minutes * float64(time.Minute))))
	}
	approved := func(minutes float64) func(*testRequest) {
		return func(a *testRequest) {
			a.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, LastUpdateTime: at(minutes)}}
		}
	}
	created := func(minutes float64) func(*testRequest) {
		return func(a *testRequest) { a.CreationTimestamp = at(minutes) }
	}
	asleepAt := func(minutes float64) func(*testRequest) {
		return func(a *testRequest) { a.inv.ClientsFrom = at(minutes).Time }
	}
	both := func(changes ...func(*testRequest)) func(*testRequest) {
		return func(a *testRequest) {
			for _, change := range changes {
				change(a)
			}
		}
	}
	for name, row := range map[string]struct {
		now      float64
		requests map[string]func(*testRequest)
		want     map[string]string
	}{
		"newest of two requests is approved": {
			2, map[string]func(*testRequest){"a": created(1), "b": created(1.5)}, map[string]string{"a": "one-per-node", "b": "accepted"},
		},
		"one of two requests from the same second is approved": {
			2, map[string]func(*testRequest){"a": created(1), "b": created(1)}, map[string]string{"a": "one-per-node", "b": "accepted"},
		},
		"requests of different nodes are all approved": {
			2, map[string]func(*testRequest){"a": created(1), "b": ofNode("n2")}, map[string]string{"a": "accepted", "b": "accepted"},
		},
		"request made moments after an approval for the same node waits": {
			2, map[string]func(*testRequest){"a": approved(1.9), "b": created(2)}, map[string]string{"a": "undecided", "b": "one-per-node"},
		},
		"node that is still missing minutes later gets another certificate": {
			8, map[string]func(*testRequest){"a": approved(2), "b": created(7)}, map[string]string{"a": "undecided", "b": "accepted"},
		},
		"approval from before the resume does not delay a new request": {
			2, map[string]func(*testRequest){"a": both(created(-9), approved(-8)), "b": created(1)}, map[string]string{"a": "undecided", "b": "accepted"},
		},
		"approval from a cancelled resume does not delay a new request": {
			2, map[string]func(*testRequest){"a": both(created(0), approved(0.1), asleepAt(0.2)), "b": both(created(1), asleepAt(0.2))}, map[string]string{"a": "undecided", "b": "accepted"},
		},
		"approval without a time counts from the creation of its request": {
			2, map[string]func(*testRequest){"a": func(a *testRequest) {
				approved(1)(a)
				a.Status.Conditions[0].LastUpdateTime = metav1.Time{}
			}, "b": created(1.5)}, map[string]string{"a": "undecided", "b": "one-per-node"},
		},
		"approved serving request does not affect client requests": {
			2,
			map[string]func(*testRequest){"a": both(approved(1), withSigner(certificatesv1.KubeletServingSignerName)), "b": created(1.5)},
			map[string]string{"a": "undecided", "b": "accepted"},
		},
		"approvals above the cap prevent further approvals": {
			2, map[string]func(*testRequest){
				"a": both(ofNode("n2"), approved(1)), "b": both(ofNode("n2"), approved(1)), "c": both(ofNode("n2"), approved(1)), "d": both(ofNode("n2"), approved(1)), "e": created(1),
			}, map[string]string{"a": "undecided", "b": "undecided", "c": "undecided", "d": "undecided", "e": "pending-cap"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := testInventory()
			inv.MaxPending, inv.Now = 3, at(row.now).Time
			var requests []certificatesv1.CertificateSigningRequest
			for name, change := range row.requests {
				a := tokenRequest()
				a.Name = name
				change(a)
				inv.ClientsFrom = a.inv.ClientsFrom
				requests = append(requests, *a.finish(t))
			}
			got := map[string]string{}
			for _, v := range JudgeAll(requests, inv) {
				got[v.Name] = v.Rule
			}
			if !maps.Equal(got, row.want) {
				t.Errorf("found the rules %v, want %v", got, row.want)
			}
		})
	}
}

// TestFloodsOfOneTokenDoNotDelayOtherNodes floods the cluster with requests of one bootstrap token, which all new
// nodes share.
func TestFloodsOfOneTokenDoNotDelayOtherNodes(t *testing.T) {
	const flood = 500
	otherNode := func(a *testRequest) { a.renameNode("n2") }
	for name, row := range map[string]struct {
		change func(*testRequest)
		rule   string // rule of the flood's verdicts
		honest string
	}{
		"flood of requests for an unknown node does not delay the node's request":                 {func(a *testRequest) { a.renameNode("stranger") }, "machine", "accepted"},
		"flood of requests for a healthy node does not delay the node's request":                  {func(a *testRequest) { a.renameNode("back") }, "missing", "accepted"},
		"flood of requests for another missing node does not delay the node's request":            {otherNode, "pending-cap", "accepted"},
		"flood of requests with broken signatures for the node does not delay the node's request": {rewrittenBy(breakSignature), "signature", "accepted"},
		"flood of unreadable requests does not delay the node's request":                          {rewrittenBy(emptied), "request", "accepted"},
		"flood of valid requests for the node delays the node's request":                          {func(*testRequest) {}, "pending-cap", "pending-cap"},
	} {
		t.Run(name, func(t *testing.T) {
			bogus := tokenRequest()
			row.change(bogus)
			template, inv := *bogus.finish(t), testInventory()
			honest := tokenRequest()
			honest.Name, honest.Spec.Username = "honest", "system:bootstrap:ghijkl"
			requests := []certificatesv1.CertificateSigningRequest{*honest.finish(t)}
			for range flood {
				requests = append(requests, template)
			}
			rules := map[string]int{}
			for _, v := range JudgeAll(requests, inv) {
				if v.Name == "honest" {
					if v.Rule != row.honest {
						t.Errorf("found %+v, want rule %q", v, row.honest)
					}
					continue
				}
				rules[v.Rule]++
			}
			if rules[row.rule] != flood {
				t.Errorf("found the rules %v of the flood, want %q", rules, row.rule)
			}
		})
	}
}

// TestTimesOfAClusterWithAWrongClock uses requests and approvals with times of the cluster's clock, which differs from
// the hub's clock.
func TestTimesOfAClusterWithAWrongClock(t *testing.T) {
	for name, row := range map[string]struct {
		ahead             time.Duration
		created, approved time.Duration // created is the request's age by the hub's clock; approved is the age of an earlier request's approval, zero for none.
		want              string
	}{
		"new request is approved if the clock is correct":                                                       {0, time.Minute, 0, "accepted"},
		"new request is approved if the clock is behind":                                                        {-time.Hour, time.Minute, 0, "accepted"},
		"new request is approved if the clock is ahead":                                                         {time.Hour, time.Minute, 0, "accepted"},
		"request from before the resume is not approved if the clock is ahead":                                  {time.Hour, 20 * time.Minute, 0, "age"},
		"request evaluated a minute after the node's last approval waits if the clock is behind":                {-time.Hour, 30 * time.Second, time.Minute, "one-per-node"},
		"request evaluated a minute after the node's last approval waits if the clock is ahead":                 {time.Hour, 30 * time.Second, time.Minute, "one-per-node"},
		"request evaluated one ApprovalPause after the node's last approval is approved if the clock is ahead":  {time.Hour, 30 * time.Second, ApprovalPause, "accepted"},
		"request evaluated one ApprovalPause after the node's last approval is approved if the clock is behind": {-time.Hour, 30 * time.Second, ApprovalPause, "accepted"},
		"new request is approved if the clock is years behind":                                                  {-20 * 365 * 24 * time.Hour, time.Minute, 0, "accepted"},
		"request from before the resume is not approved if the clock is years ahead":                            {20 * 365 * 24 * time.Hour, 20 * time.Minute, 0, "age"},
	} {
		t.Run(name, func(t *testing.T) {
			a := tokenRequest()
			a.inv.Now, a.inv.ClockAhead = resumed().Add(10*time.Minute), row.ahead
			by := func(before time.Duration) metav1.Time { return metav1.NewTime(a.inv.Now.Add(row.ahead - before)) }
			a.Name, a.CreationTimestamp = "judged", by(row.created)
			requests := []certificatesv1.CertificateSigningRequest{*a.finish(t)}
			if row.approved > 0 {
				earlier := tokenRequest()
				earlier.CreationTimestamp = by(row.approved)
				earlier.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, LastUpdateTime: by(row.approved)}}
				requests = append(requests, *earlier.finish(t))
			}
			for _, v := range JudgeAll(requests, a.inv) {
				if v.Name == "judged" && v.Rule != row.want {
					t.Errorf("found %+v, want rule %q", v, row.want)
				}
			}
		})
	}
}
