// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestAGroupFollowsItsRights has the rights of a group come and go, beside a group that is switched off.
func TestAGroupFollowsItsRights(t *testing.T) {
	s := startAPIServer(t)
	poor, err := s.env.AddUser(envtest.User{Name: "poor"}, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	mgr := s.newManagerFor(poor.Config())
	group := s.setUpAs(mgr, "rights", Allowed(100*time.Millisecond,
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
		authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "statefulsets", Subresource: "status"},
		authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "default", Name: "one"},
	))
	s.setUpAs(mgr, "off", Disabled())
	s.startManager(mgr)
	s.waitForShown("off", DisabledReason)
	s.waitForShown("rights", ForbiddenReason)

	c, named := s.newClient(), metav1.ObjectMeta{Name: "rights"}
	role := &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "poor"}},
	}
	if err := c.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	s.eventually("the right that is still missing is named", func(context.Context) (bool, error) {
		return strings.HasSuffix(group.Status().Condition.Message, "no right to patch statefulsets.apps/status"), nil
	})
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"statefulsets/status"}, Verbs: []string{"patch"}})
	if err := c.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	s.waitForShown("rights", string(Running))
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	s.waitForShown("rights", ForbiddenReason)
}

func TestAllowedNeedsAPeriodAndARight(t *testing.T) {
	for _, c := range []Condition{Allowed(0, authorizationv1.ResourceAttributes{Verb: "get"}), Allowed(time.Second)} {
		if _, err := Setup(newFakeManager(), c, func(manager.Manager) error { return nil }); err == nil || !strings.Contains(err.Error(), "pass both") {
			t.Errorf("expected an error that says what to pass, found %v", err)
		}
	}
}

func (s *apiServer) setUpAs(mgr manager.Manager, name string, when Condition) *Group {
	s.t.Helper()
	g, err := Setup(mgr, when, func(manager.Manager) error { return nil }, Name(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// waitForShown waits until a group's metric shows a state and no other.
func (s *apiServer) waitForShown(group, state string) {
	s.t.Helper()
	s.eventually(group+" shows "+state, func(context.Context) (bool, error) {
		families, err := metrics.Registry.Gather()
		if err != nil {
			return false, err
		}
		var shown []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if labels := m.GetLabel(); f.GetName() == "torpor_gate_state" && labels[0].GetValue() == group && m.GetGauge().GetValue() == 1 {
					shown = append(shown, labels[1].GetValue())
				}
			}
		}
		return len(shown) == 1 && shown[0] == state, nil
	})
}
