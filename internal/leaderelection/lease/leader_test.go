// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func testTime() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// buildPart returns the Lease of a part, which was renewed some time before testTime.
func buildPart(part, holder string, scope Scope, renewed time.Duration) *coordinationv1.Lease {
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
		AcquireTime: new(metav1.NewMicroTime(testTime().Add(-time.Hour))), RenewTime: new(metav1.NewMicroTime(testTime().Add(-renewed))),
	}}
	l.Namespace, l.Name, l.Labels = "torpor-system", NamePart(part, scope.Namespaces), map[string]string{torporv1alpha1.PartLabel: part}
	scope.Write(l)
	return l
}

func TestNamePart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		namespaces []string
		want       string
	}{{nil, "torpor-apps"}, {[]string{"a", "b"}, "torpor-apps-1eb7c54d"}, {[]string{"b", "a", "b"}, "torpor-apps-1eb7c54d"}} {
		if found := NamePart("apps", row.namespaces); found != row.want {
			t.Errorf("%v: expected %s, found %s", row.namespaces, row.want, found)
		}
	}
	if NamePart("apps", []string{"a", "b"}) == NamePart("apps", []string{"a"}) {
		t.Error("expected different names for different namespaces")
	}
}

func TestReadLeaders(t *testing.T) {
	t.Parallel()
	acts := buildPart("clusters", "torpor-manager-7d4b9c8f6d-x2k9z_1234", Scope{Controllers: []string{"sync"}, Deployment: "torpor-manager"}, time.Second)
	acts.Annotations[torporv1alpha1.ManagerActsAnnotation] = "true"
	released := buildPart("apps", "", Scope{Controllers: []string{"lrp"}}, time.Second)
	ended := buildPart("apps", "laptop_5678", Scope{Controllers: []string{"lrp"}, Namespaces: []string{"a"}}, time.Hour)
	other := buildPart("apps", "someone", Scope{}, time.Second)
	other.Labels = nil
	want := []Leader{
		{
			Part: "apps", Lease: ended.Name, Pod: "laptop", Since: testTime().Add(-time.Hour), EndedAt: testTime().Add(15*time.Second - time.Hour),
			Scope: &Scope{Controllers: []string{"lrp"}, Namespaces: []string{"a"}},
		},
		{
			Part: "clusters", Lease: "torpor-clusters", Pod: "torpor-manager-7d4b9c8f6d-x2k9z", Since: testTime().Add(-time.Hour), Acts: true,
			Scope: &Scope{Controllers: []string{"sync"}, Deployment: "torpor-manager"},
		},
	}
	found := ReadLeaders([]coordinationv1.Lease{*acts, *released, *other, *ended}, testTime())
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("leaders (-want +found):\n%s", diff)
	}
	if names := []string{found[0].Name(), found[1].Name(), found[0].DescribeScope(), (Leader{}).DescribeScope()}; names[0] != "laptop" || names[1] != "torpor-manager" ||
		names[2] != "the controllers lrp in the namespaces a" || names[3] != "unknown controllers" {
		t.Errorf("expected the names and scopes of both, found %q", names)
	}
}

// TestDescribeGapOfParts reads the scopes of several managers.
func TestDescribeGapOfParts(t *testing.T) {
	t.Parallel()
	leader := func(renewed time.Duration, controllers string, namespaces ...string) Leader {
		return ReadLeader(buildPart("apps", "pod_uid", Scope{Controllers: strings.Split(controllers, ","), Namespaces: namespaces}, renewed), testTime())
	}
	unknown := Leader{Part: "apps", Pod: "pod"}
	for name, row := range map[string]struct {
		leaders                []Leader
		controllers, namespace string
		want                   string
	}{
		"one of the managers handles the object: no reason":                                          {[]Leader{leader(0, "sync"), leader(0, "lrp,tasks", "a"), leader(0, "lrp,tasks", "b")}, "lrp", "b", ""},
		"no manager has the controllers: reported":                                                   {[]Leader{leader(0, "sync"), leader(0, "lrp", "a")}, "tasks", "a", "runs without the controllers tasks"},
		"the controllers watch other namespaces: reported":                                           {[]Leader{leader(0, "sync"), leader(0, "lrp", "a")}, "lrp", "b", "does not watch the namespace b"},
		"a cluster-scoped object: reported":                                                          {[]Leader{leader(0, "slumber", "a"), leader(0, "slumber", "b")}, "slumber", "", "handles no cluster-scoped objects"},
		"the manager of the namespace has ended: reported":                                           {[]Leader{leader(0, "lrp", "a"), leader(time.Hour, "lrp", "b")}, "lrp", "b", "no manager has renewed the Lease torpor-system/torpor-apps-"},
		"a manager that has ended, and a running one that handles the object: no reason":             {[]Leader{leader(time.Hour, "lrp", "b"), leader(0, "lrp")}, "lrp", "b", ""},
		"a manager that may have ended: no reason":                                                   {[]Leader{leader(time.Minute, "lrp", "b")}, "lrp", "b", ""},
		"a manager with an unknown scope: no reason":                                                 {[]Leader{leader(0, "sync"), unknown}, "lrp", "b", ""},
		"the only manager has ended and lacks the controllers: the missing controllers are reported": {[]Leader{leader(time.Hour, "sync")}, "lrp", "b", "runs without the controllers lrp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := ""
			if gap := (Acting{Installation: "torpor-system", Leaders: row.leaders}).DescribeGap(row.controllers, row.namespace); gap != nil {
				found = gap.String()
			}
			expectText(t, "gap", row.want, found)
		})
	}
}

func TestDescribeSplitAndOverlap(t *testing.T) {
	t.Parallel()
	scope := func(deployment, controllers string, namespaces ...string) Scope {
		return Scope{Controllers: strings.Split(controllers, ","), Namespaces: namespaces, Deployment: deployment}
	}
	for name, row := range map[string]struct {
		leading, waiting Scope
		split, overlap   string
	}{
		"two replicas of one Deployment: no split and no overlap":                      {scope("torpor", "sync"), scope("torpor", "sync"), "", ""},
		"a rollout that changes the controllers: no split and no overlap":              {scope("torpor", "sync"), scope("torpor", "sync,hibernation"), "", ""},
		"an unknown Deployment of the leader: no split and no overlap":                 {scope("", "sync"), scope("two", "hibernation"), "", ""},
		"an unknown Deployment of the waiting replica: no split and no overlap":        {scope("one", "sync"), scope("", "hibernation"), "", ""},
		"two Deployments with the same scope: an overlap, but no split":                {scope("one", "sync", "a", "b"), scope("two", "sync", "b", "a"), "", "one leads with the controllers sync in the namespaces a,b"},
		"two Deployments with different controllers: a split and an overlap":           {scope("one", "sync"), scope("two", "hibernation"), "one leads with the controllers sync in all namespaces, and that this replica of two waits with the controllers hibernation", "one leads"},
		"one Deployment with some and one with all namespaces: a split and an overlap": {scope("one", "sync", "a"), scope("two", "sync"), "one leads", "one leads with the controllers sync in the namespaces a, and that this replica of two waits with the controllers sync in all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leader := Leader{Part: "clusters", Scope: &row.leading}
			expectText(t, "split", row.split, leader.DescribeSplit(row.waiting))
			expectText(t, "overlap", row.overlap, leader.DescribeOverlap(row.waiting))
		})
	}
}

// expectText expects a text that contains the words, or no text.
func expectText(t *testing.T, what, words, found string) {
	t.Helper()
	if (found == "") != (words == "") || !strings.Contains(found, words) {
		t.Errorf("%s: expected %q, found %q", what, words, found)
	}
}

// TestSightings observes Leases by a clock that differs from those of their holders.
func TestSightings(t *testing.T) {
	t.Parallel()
	now, seen := testTime(), Sightings{}
	for _, row := range []struct {
		what  string
		lease *coordinationv1.Lease
		after time.Duration
		want  bool
	}{
		{"a Lease that was never held: not held", &coordinationv1.Lease{}, 0, false},
		{"a Lease that was released: not held", buildPart("apps", "", Scope{}, 0), 0, false},
		{"a Lease that ended an hour ago: not held", buildPart("apps", "a", Scope{}, time.Hour), 0, false},
		{"a Lease that has ended by the reader's clock: held at first", buildPart("apps", "a", Scope{}, time.Minute), 0, true},
		{"the same Lease before its duration has passed: held", buildPart("apps", "a", Scope{}, time.Minute), 14 * time.Second, true},
		{"the same Lease after its duration: not held", buildPart("apps", "a", Scope{}, time.Minute), time.Second, false},
		{"the Lease of another holder: held", buildPart("apps", "b", Scope{}, time.Minute), 0, true},
		{"a renewed Lease: held", buildPart("apps", "b", Scope{}, 50*time.Second), 14 * time.Second, true},
		{"a Lease that was renewed in the future: held at first", buildPart("apps", "b", Scope{}, -time.Hour), 0, true},
		{"the future Lease after its duration: not held", buildPart("apps", "b", Scope{}, -time.Hour), 15 * time.Second, false},
	} {
		now = now.Add(row.after)
		if found := seen.IsHeld(row.lease, now); found != row.want {
			t.Errorf("%s: expected held %t, found %t", row.what, row.want, found)
		}
	}
}

func TestNewContender(t *testing.T) {
	t.Parallel()
	l := buildPart("apps", "a", Scope{Controllers: []string{"lrp"}, Namespaces: []string{"x"}}, 0)
	want := Contender{Name: l.Name, Namespaces: []string{"x"}, AcquiredAt: testTime().Add(-time.Hour)}
	if diff := cmp.Diff(want, NewContender(l)); diff != "" {
		t.Errorf("contender (-want +found):\n%s", diff)
	}
	l.Annotations = map[string]string{torporv1alpha1.ManagerActsAnnotation: "true"}
	want.Namespaces, want.Acts = nil, true
	if diff := cmp.Diff(want, NewContender(l)); diff != "" {
		t.Errorf("contender with unknown namespaces (-want +found):\n%s", diff)
	}
}
