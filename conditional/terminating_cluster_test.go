// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestStopOnTerminating asks for the deletion of a CRD that waits for an object: one group stops, the others go on,
// however they look at the API server.
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
		if groups[name], err = Setup(mgr, Served(widgetKind()), idle, Name(name), opt); err != nil {
			t.Fatal(err)
		}
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
