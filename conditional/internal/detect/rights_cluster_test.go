// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func testRightToOneCRD(t *testing.T, c *testCluster) {
	gvk := kindIn("named.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.user(t, "one-crd", mayWatchCRDs(def.Name)))
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}, CRDs: []string{def.Name}})
	f.expect("absence", is(Absent), Served)
	before := v.count("GET /apis/named.example.com/v1")
	c.install(t, def)
	if got := f.expect("service", is(Served)); got.UID == "" {
		t.Errorf("verdict %+v, want the UID that the watch tells", got)
	}
	if before != 1 || len(v.lines()) != 0 {
		t.Errorf("%d looks before the CRD came and the log %q, want one look and an empty log", before, v.lines())
	}
	c.uninstall(t, def.DeepCopy())
	f.expect("the end", is(Absent))

	all := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	all.expect("the known verdict", is(Absent), Served)
	v.wantOneLine("the watch of all CRDs")
}

func testNoRight(t *testing.T, c *testCluster) {
	gvk := kindIn("blind.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.user(t, "no-right"))
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	f.expect("absence", is(Absent), Served)
	c.install(t, def)
	if got := f.expect("service", is(Served)); got.UID != "" || got.Plural != "widgets" {
		t.Errorf("verdict %+v, want the plural and no UID", got)
	}
	c.uninstall(t, def.DeepCopy())
	f.expect("the end", is(Absent))
	v.wantOneLine("the watch of all CRDs")
	if n := v.count(crdResource); n > 2 {
		t.Errorf("%d attempts to watch what is forbidden, want at most 2", n)
	}
}

func testRevokedRight(t *testing.T, c *testCluster) {
	gvk := kindIn("revoked.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.user(t, "revoked", mayWatchCRDs()))
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	f.expect("absence", is(Absent), Served)
	c.install(t, def)
	served := f.expect("service", is(Served))
	c.uninstall(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "revoked"}})
	v.cut() // A right is only asked for when a watch begins: a server leaves the one under way alone.
	for len(v.lines()) == 0 {
		select { // The authorizer hears of the change a moment later.
		case got := <-f.verdicts:
			if got.Presence == Absent || got.Presence == Served && got.Identity != served.Identity {
				t.Fatalf("got %+v after %+v", got, served)
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		default:
			v.cut()
		}
	}
	if got, ok := v.KnownVerdict(gvk); !ok || got.Presence == Absent {
		t.Errorf("known %+v, want that what was served is kept", got)
	}
	c.uninstall(t, def.DeepCopy())
	f.expect("the end, found by a poll", is(Absent))
	v.wantOneLine("the watch of all CRDs")
}

func (v *detectorLog) wantOneLine(what string) {
	v.t.Helper()
	eventually(v.t, "the log has a line", func(context.Context) bool { return len(v.lines()) > 0 })
	if lines := v.lines(); len(lines) != 1 || !strings.Contains(lines[0], "polling discovery") {
		v.t.Errorf("log %q, want one line about %s", lines, what)
	}
}
