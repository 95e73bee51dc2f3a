// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestServedWhileACRDIsDeleted(t *testing.T) {
	const going = "the CRD waits for its objects"
	there := detect.Verdict{Presence: detect.Served, Reason: "Served", Identity: "a"}
	leaves := detect.Verdict{Presence: detect.Served, Reason: "Terminating", Message: going, Identity: "b", Terminating: true}
	absent := detect.Verdict{Presence: detect.Absent, Reason: "NotServed", Message: "absent"}
	unclear := detect.Verdict{Presence: detect.Unclear, Reason: "DiscoveryFailed", Message: "unclear"}
	cases := map[string]struct {
		verdicts    []detect.Verdict
		waits, stop Status
	}{
		"no CRD is being deleted: the reason is Served": {
			[]detect.Verdict{there, there},
			Status{State: True, Reason: "Served", Identity: "a,a"},
			Status{State: True, Reason: "Served", Identity: "a,a"},
		},
		"one of two CRDs is being deleted: the reason is Terminating": {
			[]detect.Verdict{there, leaves},
			Status{State: True, Reason: "Terminating", Message: going, Identity: "a,b"},
			Status{State: False, Reason: "Terminating", Message: going},
		},
		"a terminating CRD and a kind whose presence is unclear: unclear, unless the group stops on deletion": {
			[]detect.Verdict{leaves, unclear},
			Status{State: Unknown, Reason: "DiscoveryFailed", Message: "unclear"},
			Status{State: False, Reason: "Terminating", Message: going},
		},
		"a terminating CRD and an absent kind: absent": {
			[]detect.Verdict{absent, leaves},
			Status{State: False, Reason: "NotServed", Message: "absent"},
			Status{State: False, Reason: "NotServed", Message: "absent"},
		},
		"a kind whose presence is unclear and an absent kind: absent": {
			[]detect.Verdict{unclear, absent},
			Status{State: False, Reason: "NotServed", Message: "absent"},
			Status{State: False, Reason: "NotServed", Message: "absent"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.waits, allServedStatus(nil, c.verdicts)); diff != "" {
				t.Errorf("that waits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.stop, allServedStatus(nil, withoutTerminating(c.verdicts))); diff != "" {
				t.Errorf("that stops (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStopOnTerminating requests the deletion of a CRD that waits for an object. One group stops, and the others keep
// running, regardless of how they observe the API server.
func TestStopOnTerminating(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.installCRD(def)
	s.createWidgetIn("default", "held", "example.com/hold")
	idle := func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }))
	}
	mgr := s.newManagerFor(s.cfg)
	rec := events.NewFakeRecorder(100)
	groups := map[string]*Group{}
	for name, opt := range map[string]Option{
		"watches": Events(rec, &corev1.ConfigMap{}),
		"stops":   StopOnTerminating(),
		"polls":   Poll(100 * time.Millisecond),
		"named":   WatchNamed(def.Name),
	} {
		var err error
		groups[name], err = Setup(mgr, Served(widgetKind()), idle, Name(name), opt)
		testenv.Must(t, err)
	}
	s.startManager(mgr)
	for _, g := range groups {
		s.waitForPhase(g, Running)
	}
	s.uninstallCRD(def)
	s.waitForPhase(groups["stops"], Dormant)
	for name, g := range groups {
		s.eventually(name+" tells why", func(context.Context) (bool, error) { return g.Status().Condition.Reason == "Terminating", nil })
		if p := g.Status().Phase; name != "stops" && p != Running {
			t.Errorf("%s is %s while the CRD waits for its object", name, p)
		}
	}
	held := newWidget()
	s.eventually("the finalizer is off", func(ctx context.Context) (bool, error) {
		if err := s.newClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "held"}, held); err != nil {
			return false, err
		}
		held.SetFinalizers(nil)
		return s.newClient().Update(ctx, held) == nil, nil
	})
	for _, g := range groups {
		s.waitForPhase(g, Dormant)
	}
	for _, want := range []string{ControllerStarted, ControllerTerminating, ControllerStopped} {
		select {
		case line := <-rec.Events:
			if !strings.Contains(line, want) {
				t.Errorf("got event %q, want %s", line, want)
			}
		case <-time.After(patience):
			t.Fatalf("waited in vain for the event %s", want)
		}
	}
}
