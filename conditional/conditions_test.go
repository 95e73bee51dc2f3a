// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func yes(context.Context) (bool, error) { return true, nil }

func flags() client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: "flags"} }

func present(client.Object) bool { return true }

func TestConditionsHaveNames(t *testing.T) {
	served, signal := Served(widgetKind()), Signal("flag", make(chan bool))
	for want, c := range map[string]Condition{
		"FirstServed(Widget.example.com,v1,v1beta1)": FirstServed(widgetKind().GroupKind(), "v1", "v1beta1"),
		"FirstServed(Node,v1)":                       FirstServed(schema.GroupKind{Kind: "Node"}, "v1"),
		"All(Widget.v1.example.com,Not(flag))":       All(served, Not(signal)),
		"Any(flag,Not(probe))":                       Any(signal, Not(Func("probe", time.Second, yes))),
		"v1.ConfigMap:default:flags":                 Object(&corev1.ConfigMap{}, flags(), present),
		"Widget.v1.example.com::one":                 Object(newWidget(), client.ObjectKey{Name: "one"}, present),
	} {
		if c.String() != want {
			t.Errorf("got %q, want %q", c, want)
		}
		g, err := Setup(newFakeManager(), c, func(manager.Manager) error { return nil })
		if err != nil {
			t.Errorf("%s, with its default name: %v", c, err)
			continue
		}
		g.release()
	}
}

func TestConditionsRefuseBadUse(t *testing.T) {
	signal := Signal("flag", make(chan bool))
	for name, c := range map[string]struct {
		when Condition
		want string
	}{
		"All without conditions: rejected":            {All(), "condition All combines nothing"},
		"Any without conditions: rejected":            {Any(), "condition Any combines nothing"},
		"nested Any without conditions: rejected":     {All(signal, Not(Any())), "condition Any combines nothing"},
		"nested Served without kinds: rejected":       {Not(Any(signal, Served())), "names no kind"},
		"All with a nil condition: rejected":          {All(signal, nil), "nil as its condition number 2"},
		"Not of nil: rejected":                        {Not(nil), "condition Not got nil"},
		"Func without a function: rejected":           {Func("probe", time.Second, nil), "condition Func needs"},
		"Func without a period: rejected":             {Func("probe", 0, yes), "condition Func needs"},
		"Func without a name: rejected":               {Func("", time.Second, yes), "condition Func needs"},
		"Signal without a channel: rejected":          {Signal("flag", nil), "condition Signal needs"},
		"Signal without a name: rejected":             {Signal("", make(chan bool)), "condition Signal needs"},
		"Object without an object: rejected":          {Object(nil, flags(), present), "condition Object needs"},
		"Object without a name: rejected":             {Object(&corev1.ConfigMap{}, client.ObjectKey{}, present), "condition Object needs"},
		"Object without a function: rejected":         {Object(&corev1.ConfigMap{}, flags(), nil), "condition Object needs"},
		"Object of an unknown kind: rejected":         {Object(&appsv1.Deployment{}, flags(), present), "AddToScheme"},
		"FirstServed without a version: rejected":     {FirstServed(widgetKind().GroupKind()), "condition FirstServed needs"},
		"FirstServed with an empty version: rejected": {FirstServed(widgetKind().GroupKind(), "v1", ""), "condition FirstServed needs"},
		"FirstServed without a kind: rejected":        {FirstServed(schema.GroupKind{}, "v1"), "condition FirstServed needs"},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := newFakeManager()
			_, err := Setup(mgr, c.when, func(manager.Manager) error { return nil }, Name("group"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if len(mgr.added) != 0 {
				t.Error("bad use added a runnable")
			}
		})
	}
}

// TestFirstServedPrefers covers every combination of presences of two versions.
func TestFirstServedPrefers(t *testing.T) {
	kinds := []schema.GroupVersionKind{widgetKind(), widgetKind().GroupKind().WithVersion("v1beta1")}
	type answer struct {
		State    State
		Identity string
	}
	want := map[[2]detect.Presence]answer{
		{detect.Served, detect.Served}:   {True, "id0"},
		{detect.Served, detect.Absent}:   {True, "id0"},
		{detect.Served, detect.Unclear}:  {True, "id0"},
		{detect.Absent, detect.Served}:   {True, "id1"},
		{detect.Absent, detect.Absent}:   {False, ""},
		{detect.Absent, detect.Unclear}:  {Unknown, ""},
		{detect.Unclear, detect.Served}:  {Unknown, ""}, // Uncertainty must not switch versions.
		{detect.Unclear, detect.Absent}:  {Unknown, ""},
		{detect.Unclear, detect.Unclear}: {Unknown, ""},
	}
	for world, want := range want {
		verdicts := []detect.Verdict{
			{Presence: world[0], Reason: "R", Identity: "id0"},
			{Presence: world[1], Reason: "R", Identity: "id1"},
		}
		got := firstServedStatus(kinds, verdicts)
		if diff := cmp.Diff(want, answer{got.State, got.Identity}); diff != "" {
			t.Errorf("%v (-want +got):\n%s", world, diff)
		}
		if got.Reason == "" || got.Message == "" {
			t.Errorf("%v: incomplete report %+v", world, got)
		}
	}
}

// TestGroupWithManyConditions drives a group with every condition that needs no API server.
func TestGroupWithManyConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flag, maintenance := make(chan bool), make(chan bool)
		when := All(
			Func("probe", time.Minute, yes),
			Not(Signal("maintenance", maintenance)),
			Any(Signal("flag", flag), Not(Func("same-probe", time.Minute, yes))),
		)
		mgr := newFakeManager()
		close(mgr.elected)
		g := mustSetUp(t, mgr, when, func(manager.Manager) error { return nil }, Name("many"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.added[0].Start(ctx) }()
		want := func(what string, phase Phase, message string) {
			t.Helper()
			synctest.Wait()
			got := g.Status()
			if got.Phase != phase || !strings.Contains(got.Condition.Message, message) {
				t.Errorf("%s: got %s because of %+v, want %s because of %q", what, got.Phase, got.Condition, phase, message)
			}
		}
		want("no signal yet", Dormant, "nothing has been signalled yet")
		maintenance <- false
		flag <- true
		want("it holds", Running, "probe is True")
		maintenance <- true
		want("maintenance", Dormant, "Not(maintenance) is False: maintenance is True")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFirstServedSwitches installs a CRD with an old version, adds the new one, and removes it again.
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
	group := mustSetUp(t, mgr, FirstServed(gk, versions...), setup)
	s.startManager(mgr)
	s.waitForCondition(group, False, "")

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

// TestObjectIsFollowed switches a group by a ConfigMap, with the right to read only that one.
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
	testenv.Must(t, err)
	mgr := s.newManagerFor(poor.Config())
	enabled := func(obj client.Object) bool {
		flags, ok := obj.(*corev1.ConfigMap)
		return ok && flags.Data["widgets"] == "on"
	}
	when := Object(&corev1.ConfigMap{}, client.ObjectKey{Namespace: "default", Name: "flags"}, enabled)
	group := mustSetUp(t, mgr, when, func(manager.Manager) error { return nil })
	s.startManager(mgr)
	s.eventually("the watch is refused", func(context.Context) (bool, error) {
		c := group.Status().Condition
		return c.State == Unknown && c.Reason == "ObserveFailed" && strings.Contains(c.Message, "default/flags"), nil
	})
	c := s.newClient()
	must := func(err error) {
		t.Helper()
		testenv.Must(t, err)
	}
	must(c.Create(t.Context(), role))
	must(c.Create(t.Context(), binding))
	s.waitForCondition(group, False, "") // The ConfigMap is absent.

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
