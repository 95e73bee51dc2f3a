// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// eventRights returns the optional rights to record events.
func eventRights() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}
}

// waitForCRDEvent waits until a group has recorded an event with the reason about the CRD of Widget, and returns the
// event's note.
func (s *apiServer) waitForCRDEvent(def *apiextensionsv1.CustomResourceDefinition, group, reason string, needsUID bool) (note string) {
	s.t.Helper()
	s.eventually(group+" has the event "+reason, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		var found eventsv1.EventList
		if err := errors.Join(s.newClient().Get(ctx, client.ObjectKeyFromObject(def), &crd), s.newClient().List(ctx, &found, client.InNamespace(metav1.NamespaceDefault))); err != nil {
			return false, err
		}
		at := slices.IndexFunc(found.Items, func(e eventsv1.Event) bool {
			return e.Reason == reason && strings.HasPrefix(e.Note, "group "+group+": ") && e.ReportingController == recorderName &&
				e.Regarding.Kind == "CustomResourceDefinition" && e.Regarding.Name == crd.Name && (e.Regarding.UID == crd.UID || !needsUID && e.Regarding.UID == "")
		})
		if at >= 0 {
			note = found.Items[at].Note
		}
		return at >= 0, nil
	})
	return note
}

// TestCRDsHaveEventsAboutHolds holds back groups whose options do not specify an object for events.
func TestCRDsHaveEventsAboutHolds(t *testing.T) {
	s := startAPIServer(t)
	watch := watchCRDs()
	mgr := s.newManagerFor(s.newUser("records", watch, eventRights()))
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	limited := mustSetUp(t, mgr, Served(widgetKind()), doNothing, Name("limited"), RestartLimit(1, wait.Backoff{Duration: time.Hour}))
	poor := mustSetUp(t, mgr, All(Served(widgetKind()), Allowed(time.Second, authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"})),
		doNothing, Name("poor"))
	release := make(chan struct{})
	returnNow := sync.OnceFunc(func() { close(release) })
	t.Cleanup(returnNow)
	hanging := mustSetUp(t, mgr, Served(widgetKind()), func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(context.Context) error { <-release; return nil }))
	}, Name("hanging"), DrainTimeout(time.Millisecond))
	degraded := s.newManagerFor(s.newUser("polls", eventRights()))
	late := mustSetUp(t, degraded, Served(widgetKind()), doNothing, Name("late"))
	silent := s.newManagerFor(s.newUser("silent", watch))
	quiet := mustSetUp(t, silent, Served(widgetKind()), doNothing, Name("quiet"), RestartLimit(1, wait.Backoff{Duration: time.Hour}))
	s.installCRD(def)
	for _, m := range []manager.Manager{mgr, degraded, silent} {
		s.startManager(m)
	}
	s.waitForPhase(limited, Running)
	s.waitForPhase(quiet, Running)
	s.waitForCRDEvent(def, "poor", ControllerForbidden, true)
	s.waitForCRDEvent(def, "late", ControllerWatchForbidden, false)
	expectHeldBy(t, poor, "a right is missing", string(HeldByRights))
	expectHeldBy(t, late, "a watch is forbidden", string(HeldByForbiddenWatch))

	for _, g := range []*Group{limited, quiet} {
		g.Restart()
		s.eventually("a start is held back", func(context.Context) (bool, error) { return !g.Status().HeldUntil.IsZero(), nil })
	}
	if note := s.waitForCRDEvent(def, "limited", ControllerHeldBack, true); !strings.Contains(note, "restart limit") {
		t.Errorf("expected an event that names the restart limit, found %q", note)
	}
	s.waitForPhase(hanging, Running)
	hanging.Restart()
	if note := s.waitForCRDEvent(def, "hanging", ControllerStuck, true); !strings.Contains(note, "within the drain timeout") {
		t.Errorf("expected an event that names the drain timeout, found %q", note)
	}
	expectHeldBy(t, hanging, "a stop that hangs", string(HeldByDrain))
	returnNow()
	expectHeldBy(t, limited, "a restart", string(HeldByRestartLimit))
	expectHeldBy(t, quiet, "a restart", string(HeldByRestartLimit))
	var found eventsv1.EventList
	testenv.Must(t, s.newClient().List(t.Context(), &found))
	for _, e := range found.Items {
		if strings.HasPrefix(e.Note, "group quiet: ") {
			t.Errorf("a group without the right to record events recorded %q", e.Note)
		}
	}
	if quiet.mayRecordEvents(t.Context()) || !limited.mayRecordEvents(t.Context()) {
		t.Error("expected only the user with rights to record events")
	}
	s.grantRight("watch", "polls", watch)
	s.eventually("the watch is allowed", func(context.Context) (bool, error) { return len(late.HeldBack()) == 0, nil })
	s.uninstallCRD(def)
}

func doNothing(manager.Manager) error { return nil }
