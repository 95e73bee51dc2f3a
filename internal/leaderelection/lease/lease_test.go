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

func TestRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	held := func(by string, seconds int32, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NewMicroTime(now.Add(-ago)))}}
	}
	for name, row := range map[string]struct {
		lease *coordinationv1.Lease
		want  Acting
	}{
		"a Lease that was never held: no active installation is known":                         {&coordinationv1.Lease{}, Acting{}},
		"a Lease that was never renewed: no active installation is known":                      {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(60))}}, Acting{}},
		"a Lease that is about to expire: an installation is active":                           {held("a", 60, 59*time.Second), Acting{Installation: "a"}},
		"a Lease that has just expired: no active installation is known":                       {held("a", 60, time.Minute), Acting{}},
		"a Lease that has expired only by the reader's clock: no active installation is known": {held("a", 60, 6*time.Minute), Acting{}},
		"a Lease that has expired by any clock: the installation has ended":                    {held("a", 60, 6*time.Minute+time.Second), Acting{EndedAt: now.Add(-5*time.Minute - time.Second)}},
		"a Lease that was released: no active installation is known":                           {held("", 60, time.Second), Acting{}},
		"a Lease with a longer duration: an installation is active":                            {held("a", 600, 5*time.Minute), Acting{Installation: "a"}},
		"a holder whose clock is ahead: an installation is active":                             {held("a", 60, -time.Minute), Acting{Installation: "a"}},
		"a Lease without controllers: an installation with an unknown scope is active":         {annotate(held("a", 60, 0), torporv1alpha1.WatchNamespacesAnnotation, ""), Acting{Installation: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, Read(row.lease, now)); diff != "" {
				t.Errorf("what acts (-want +found):\n%s", diff)
			}
		})
	}
}

func annotate(l *coordinationv1.Lease, names ...string) *coordinationv1.Lease {
	l.Annotations = map[string]string{}
	for i := 0; i < len(names); i += 2 {
		l.Annotations[names[i]] = names[i+1]
	}
	return l
}

// TestWriteReplacesScope lets several managers write their scopes in sequence. The Lease then contains only the last one.
func TestWriteReplacesScope(t *testing.T) {
	t.Parallel()
	l := &coordinationv1.Lease{}
	tooMany := make([]string, 0, 1000)
	for i := range cap(tooMany) {
		tooMany = append(tooMany, strings.Repeat("a", 30)+strings.Repeat("b", i/33)+strings.Repeat("c", i%33))
	}
	for _, row := range []struct {
		scope Scope
		want  *Scope
	}{
		{Scope{Controllers: []string{"sync", "hibernation"}, Namespaces: []string{"y", "x", "y"}, Deployment: "one"}, &Scope{Controllers: []string{"hibernation", "sync"}, Namespaces: []string{"x", "y"}, Deployment: "one"}},
		{Scope{Controllers: []string{"workloads"}, Version: "v1.2.3+dirty"}, &Scope{Controllers: []string{"workloads"}, Version: "v1.2.3+dirty"}},
		{Scope{Controllers: []string{"workloads"}, Version: "a\x1b[2J"}, &Scope{Controllers: []string{"workloads"}}},
		{Scope{Controllers: []string{"workloads"}, Namespaces: tooMany, Deployment: "one"}, nil},
		{Scope{Controllers: []string{"workloads"}, Deployment: "two"}, &Scope{Controllers: []string{"workloads"}, Deployment: "two"}},
		{Scope{}, nil},
	} {
		row.scope.Write(l)
		if diff := cmp.Diff(row.want, readScope(l.Annotations)); diff != "" {
			t.Errorf("after %s (-want +found):\n%s", row.scope, diff)
		}
	}
}

// TestTakeRemovesTheScope takes the Lease of a manager of an earlier release, which has recorded its scope there.
func TestTakeRemovesTheScope(t *testing.T) {
	t.Parallel()
	now, l := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), &coordinationv1.Lease{}
	l.Annotations = map[string]string{"example.com/theirs": "kept"}
	scope := Scope{Controllers: []string{"sync"}, Deployment: "one", Version: "v1"}
	scope.Write(l)
	for i, installation := range []string{"a", "a", "b"} {
		Take(l, installation, time.Minute, now)
		if diff := cmp.Diff(Acting{Installation: installation}, Read(l, now)); diff != "" || *l.Spec.LeaseTransitions != int32(1+i/2) {
			t.Errorf("after %s, found %d transitions, and (-want +found):\n%s", installation, *l.Spec.LeaseTransitions, diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"example.com/theirs": "kept"}, l.Annotations); diff != "" {
		t.Errorf("annotations (-want +found):\n%s", diff)
	}
}

func TestReadScope(t *testing.T) {
	t.Parallel()
	known := func(controllers, namespaces string) map[string]string {
		return map[string]string{torporv1alpha1.ControllersAnnotation: controllers, torporv1alpha1.WatchNamespacesAnnotation: namespaces}
	}
	for name, row := range map[string]struct {
		annotations map[string]string
		want        *Scope
	}{
		"a Lease written by an earlier version: no scope":         {nil, nil},
		"a Lease without a list of namespaces: no scope":          {map[string]string{torporv1alpha1.ControllersAnnotation: "sync"}, nil},
		"a Lease without a list of controllers: no scope":         {map[string]string{torporv1alpha1.WatchNamespacesAnnotation: "a"}, nil},
		"an empty list of controllers: no scope":                  {known("", ""), nil},
		"controllers for all namespaces: read as a scope":         {known("sync,workloads", ""), &Scope{Controllers: []string{"sync", "workloads"}}},
		"controllers for some namespaces: read as a scope":        {known("sync", "a,b"), &Scope{Controllers: []string{"sync"}, Namespaces: []string{"a", "b"}}},
		"unknown controllers of a later version: read as a scope": {known("sync,dreams", ""), &Scope{Controllers: []string{"sync", "dreams"}}},
		"an invalid name in a list: no scope":                     {known("sync", "a,,b"), nil},
		"a list in another project's format: no scope":            {known("sync", `["a"]`), nil},
		"an overlong list: no scope":                              {known("sync", strings.Repeat("a,", maxListBytes)+"a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, readScope(row.annotations)); diff != "" {
				t.Errorf("scope (-want +found):\n%s", diff)
			}
		})
	}
}

func TestDescribeGap(t *testing.T) {
	t.Parallel()
	some := &Scope{Controllers: []string{"hibernation"}, Namespaces: []string{"watched"}}
	for name, row := range map[string]struct {
		scope                  *Scope
		controllers, namespace string
		want                   string
	}{
		"an object that the manager handles: no reason":                                     {some, "hibernation", "watched", ""},
		"a manager for all namespaces: no reason":                                           {&Scope{Controllers: []string{"hibernation"}}, "hibernation", "any", ""},
		"an unknown scope: no reason":                                                       {nil, "hibernation", "other", ""},
		"missing controllers: reported":                                                     {some, "workloads", "watched", "the manager in the namespace torpor-system runs without the controllers workloads; install the feature that contains these controllers, or add them to --controllers"},
		"an unwatched namespace: reported":                                                  {some, "hibernation", "other", "the manager in the namespace torpor-system does not watch the namespace other; add the namespace to --watch-namespaces"},
		"a cluster-scoped object and a manager for some namespaces: reported":               {some, "hibernation", "", "the manager in the namespace torpor-system watches only some namespaces, and handles no cluster-scoped objects; run a manager without --watch-namespaces"},
		"missing controllers and an unwatched namespace: only the controllers are reported": {some, "workloads", "other", "the manager in the namespace torpor-system runs without the controllers workloads; install the feature that contains these controllers, or add them to --controllers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := ""
			if gap := (Acting{Installation: "torpor-system", Scope: row.scope}).DescribeGap(row.controllers, row.namespace); gap != nil {
				found = gap.String()
			}
			if diff := cmp.Diff(row.want, found); diff != "" {
				t.Errorf("gap (-want +found):\n%s", diff)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 1000 {
		all = append(all, strings.Repeat("n", 30)+strings.Repeat("a", i/33)+strings.Repeat("b", i%33))
	}
	text := Scope{Controllers: []string{"sync"}, Namespaces: all}.String()
	if !strings.HasSuffix(text, " and 980 more") || len(text) > 2000 {
		t.Errorf("expected twenty namespaces and how many more there are, found %d bytes: %s", len(text), text)
	}
}

func TestFindDeployment(t *testing.T) {
	t.Parallel()
	for pod, want := range map[string]string{
		"torpor-manager-7d4b9c8f6d-x2k9z":                   "torpor-manager",
		"torpor-66b8d4-x2k9z":                               "torpor",
		"a-b-c-5f7d8b9c4d-bcdfg":                            "a-b-c",
		"torpor-manager-0":                                  "", // A StatefulSet.
		"torpor-manager-x2k9z":                              "", // A ReplicaSet or a DaemonSet.
		"cluster-x7k2z-worker-b-bqz4f":                      "", // A node: a Pod with the host network has the host name of its node.
		"torpor-manager-7d4b9c8f6d-x2k9":                    "",
		"torpor-manager-7d4b9c8f6dd-x2k9z":                  "",
		"torpor-manager-7d4b9c8f6a-x2k9z":                   "", // The hash contains an unused letter.
		"7d4b9c8f6d-x2k9z":                                  "",
		"-7d4b9c8f6d-x2k9z":                                 "",
		"laptop":                                            "",
		"":                                                  "",
		strings.Repeat("n", 46) + "-7d4b9c8f6d-x2k9z":       "", // 63 characters: the name may be truncated.
		strings.Repeat("n", 45) + "-7d4b9c8f6d-x2k9z":       strings.Repeat("n", 45),
		strings.Repeat("n", 50) + "-7d4b9c" + "x2k9z":       "",
		"torpor-manager-7d4b9c8f6d-x2k9z.torpor-system.pod": "",
	} {
		if found := FindDeployment(pod); found != want {
			t.Errorf("%s: expected %q, found %q", pod, want, found)
		}
	}
}
