// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestFirstServedSwitches installs a CRD with an old version, adds the new one, and takes it away again.
func TestFirstServedSwitches(t *testing.T) {
	s := startAPIServer(t)
	gk, versions := widgetKind().GroupKind(), []string{"v1", "v1beta1"}
	started := make(chan string, 100)
	setup := func(mgr manager.Manager) error {
		for _, version := range versions {
			_, err := mgr.GetRESTMapper().RESTMapping(gk, version)
			if meta.IsNoMatchError(err) {
				continue
			}
			if err != nil {
				return err
			}
			started <- version
			return watching(gk.WithVersion(version), make(chan string, 100))(mgr)
		}
		return errors.New("none of the versions is served")
	}
	mgr := s.newManagerFor(s.cfg)
	group, err := Setup(mgr, FirstServed(gk, versions...), setup)
	if err != nil {
		t.Fatal(err)
	}
	s.startManager(mgr)
	s.waitForState(group, False)

	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	def.Spec.Versions[0].Name = "v1beta1"
	s.installCRD(def)
	s.expectReconcile(started, "v1beta1")
	s.waitForPhase(group, Running)

	s.setServed(def, "v1", true)
	s.expectReconcile(started, "v1")
	s.waitForPhase(group, Running)

	s.setServed(def, "v1", false)
	s.expectReconcile(started, "v1beta1")
	s.waitForPhase(group, Running)

	s.uninstallCRD(def)
	s.waitForPhase(group, Dormant)
	if len(started) != 0 {
		t.Errorf("%d more starts than switches", len(started))
	}
}

// TestObjectIsFollowed switches a group by a ConfigMap, with the right to see only that one.
func TestObjectIsFollowed(t *testing.T) {
	s := startAPIServer(t)
	named := metav1.ObjectMeta{Namespace: "default", Name: "flags"}
	role := &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"flags"}, Verbs: []string{"list", "watch"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: named,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "flags"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "poor"}},
	}
	poor, err := s.env.AddUser(envtest.User{Name: "poor"}, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	mgr := s.newManagerFor(poor.Config())
	enabled := func(obj client.Object) bool {
		flags, ok := obj.(*corev1.ConfigMap)
		return ok && flags.Data["widgets"] == "on"
	}
	when := Object(&corev1.ConfigMap{}, client.ObjectKey{Namespace: "default", Name: "flags"}, enabled)
	group, err := Setup(mgr, when, func(manager.Manager) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.startManager(mgr)
	s.eventually("the watch is refused", func(context.Context) (bool, error) {
		c := group.Status().Condition
		return c.State == Unknown && c.Reason == "ObserveFailed", nil
	})
	c := s.newClient()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Create(t.Context(), role))
	must(c.Create(t.Context(), binding))
	s.waitForState(group, False) // It is absent.

	must(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "others"}, Data: map[string]string{"widgets": "on"}}))
	flags := &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"widgets": "on"}}
	must(c.Create(t.Context(), flags))
	s.waitForPhase(group, Running)

	flags.Data["widgets"] = "off"
	must(c.Update(t.Context(), flags))
	s.waitForPhase(group, Dormant)
	if got := group.Status().Condition.Reason; got != "ObjectFalse" {
		t.Errorf("reason is %q, want ObjectFalse", got)
	}
	flags.Data["widgets"] = "on"
	must(c.Update(t.Context(), flags))
	s.waitForPhase(group, Running)

	must(c.Delete(t.Context(), flags))
	s.waitForPhase(group, Dormant)
	if got := group.Status().Condition.Reason; got != "NotFound" {
		t.Errorf("reason is %q, want NotFound", got)
	}
}

// waitForState waits until the group's condition is in a state.
func (s *apiServer) waitForState(g *Group, state State) {
	s.t.Helper()
	s.eventually("the condition is "+state.String(), func(context.Context) (bool, error) {
		return g.Status().Condition.State == state, nil
	})
}

// setServed adds a version to a CRD, or changes whether it is served.
func (s *apiServer) setServed(def *apiextensionsv1.CustomResourceDefinition, version string, served bool) {
	s.t.Helper()
	s.eventually("the CRD is updated", func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.newClient().Get(ctx, client.ObjectKeyFromObject(def), &now); err != nil {
			return false, err
		}
		for i, v := range now.Spec.Versions {
			if v.Name == version {
				now.Spec.Versions[i].Served = served
				return s.newClient().Update(ctx, &now) == nil, nil
			}
		}
		added := *now.Spec.Versions[0].DeepCopy()
		added.Name, added.Served, added.Storage = version, served, false
		now.Spec.Versions = append(now.Spec.Versions, added)
		return s.newClient().Update(ctx, &now) == nil, nil
	})
}
