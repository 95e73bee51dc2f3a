// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

func TestConditionsHaveNames(t *testing.T) {
	served, flag := Served(widgetKind()), channelChild("flag", nil)
	for want, c := range map[string]Condition{
		"FirstServed(Widget.example.com,v1,v1beta1)": FirstServed(widgetKind().GroupKind(), "v1", "v1beta1"),
		"FirstServed(Node,v1)":                       FirstServed(schema.GroupKind{Kind: "Node"}, "v1"),
		"All(Widget.v1.example.com,Not(flag))":       All(served, Not(flag)),
		"Any(flag,Not(flag))":                        Any(flag, Not(flag)),
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
	flag := channelChild("flag", nil)
	for name, c := range map[string]struct {
		when Condition
		want string
	}{
		"All without conditions: rejected":            {All(), "condition All combines nothing"},
		"Any without conditions: rejected":            {Any(), "condition Any combines nothing"},
		"nested Any without conditions: rejected":     {All(flag, Not(Any())), "condition Any combines nothing"},
		"nested Served without kinds: rejected":       {Not(Any(flag, Served())), "condition Served needs a kind"},
		"All with a nil condition: rejected":          {All(flag, nil), "nil as its condition number 2"},
		"Not of nil: rejected":                        {Not(nil), "condition Not got nil"},
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

// TestFirstServedPrefers covers every combination of the presence of two versions.
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
		{detect.Unclear, detect.Served}:  {Unknown, ""}, // An unclear verdict must not cause a switch to the other version.
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

// TestFirstServedSwitches installs a CRD with an old version, then adds a new version, and then removes the new
// version.
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
