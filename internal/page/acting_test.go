// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

func holdLease(scope lease.Scope) *coordinationv1.Lease {
	held := &coordinationv1.Lease{}
	held.Namespace, held.Name = lease.Namespace, lease.Name
	lease.Take(held, "torpor-system", time.Hour, time.Now())
	scope.Write(held)
	return held
}

// TestPageReportsObjectsWithoutAController covers a manager that runs without the controllers for ClusterDeployments
// and does not watch one of the namespaces.
func TestPageReportsObjectsWithoutAController(t *testing.T) {
	const watched, unwatched = "watched", "unwatched"
	e := newPageEnvWith(t, holdLease(lease.Scope{Controllers: []string{"restart"}, Namespaces: []string{watched}}))
	asked := buildCluster(watched, "asked")
	asked.Spec.PowerState = hivev1.PowerStateHibernating
	for _, namespace := range []string{watched, unwatched} {
		e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	e.ExpectCreated(t, asked, buildCluster(watched, "calm"), buildApp(watched, "handled"), buildApp(unwatched, "forgotten"))
	_, token := e.createAccount(t, watched, "viewer", "list")
	_, strangersToken := e.createAccount(t, unwatched, "viewer", "list")
	viewer, stranger := e.openBrowser(t), e.openBrowser(t)
	viewer.logIn(t, token)
	stranger.logIn(t, strangersToken)
	const gap = "the manager in the namespace torpor-system runs without the controllers hibernation"
	viewer.expectShown(t, "/?q=asked", []string{"<strong class=\"stuck\">Stuck:</strong> no controller acts on it: " + gap + "<", "ClusterDeployment objects: no controller acts on them: " + gap + "; install the feature"}, []string{unwatched})
	viewer.expectShown(t, "/?q=calm", []string{"<span class=\"next\">no controller acts on it: " + gap}, nil)
	viewer.expectShown(t, "/?state=stuck", []string{">asked<"}, []string{">calm<", ">handled<"})
	viewer.expectShown(t, "/?q=handled", []string{">handled<"}, []string{"no controller acts on it"})
	stranger.expectShown(t, "/", []string{">forgotten<", "does not watch the namespace unwatched; add the namespace to --watch-namespaces"}, []string{"hibernation"})
}

// TestChangeOfTheActingManagerIsAnnounced checks that the page announces a change of the active manager.
func TestChangeOfTheActingManagerIsAnnounced(t *testing.T) {
	t.Parallel()
	i := newInventory()
	acting := lease.Read(holdLease(lease.Scope{Controllers: []string{"restart"}}), time.Now())
	for _, row := range []struct {
		acting  lease.Acting
		changes bool
	}{{lease.Acting{}, false}, {acting, true}, {acting, false}, {lease.Acting{EndedAt: time.Now()}, true}} {
		before := i.changeChannel()
		i.setActing(row.acting)
		if hasChanged := before != i.changeChannel(); hasChanged != row.changes {
			t.Errorf("%+v: expected a change %t, found %t", row.acting, row.changes, hasChanged)
		}
	}
}

func TestGapReasonsAreBounded(t *testing.T) {
	t.Parallel()
	gaps := gapReasons{}
	for n := range 100 {
		gaps[fmt.Sprintf("reason %02d", n)] = true
	}
	found := gaps.list(lease.Acting{EndedAt: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)})
	if len(found) != maxGaps+2 || !strings.Contains(found[0], "kube-system/torpor, which ended at 2026-01-02T00:00:00Z") || !strings.Contains(found[maxGaps+1], "95 more") {
		t.Errorf("expected the end of the Lease, %d reasons and how many more there are, found %q", maxGaps, found)
	}
}
