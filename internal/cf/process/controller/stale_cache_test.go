// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/reconcile"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// Races a and p of ADR 0010: an action that was decided on a stale view is not performed. No LRP is deleted that the
// app may still need, and no second revision is created next to an unobserved one.
func TestAStaleDecisionIsNotActedOn(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	c := Controller{client: hub.Client, live: hub.Client, Clock: clock.RealClock{}}
	for name, row := range map[string]struct {
		do     process.Action
		change func(seen *observation)
		stale  bool
		lrps   int
	}{
		"an LRP of an unchanged app is deleted":                                         {process.DeleteLRPs{Names: []string{"lrp"}}, func(*observation) {}, false, 0},
		"an LRP is kept if the app has another revision":                                {process.DeleteLRPs{Names: []string{"lrp"}}, func(o *observation) { revise(o.app, "6") }, true, 1},
		"an LRP is kept if the app is no longer stopped":                                {process.DeleteLRPs{Names: []string{"lrp"}}, func(o *observation) { o.app.Spec.DesiredState = korifiv1alpha1.StoppedState }, true, 1},
		"an LRP is kept if the app was replaced by another app of the same name":        {process.DeleteLRPs{Names: []string{"lrp"}}, func(o *observation) { o.app.UID = "another" }, true, 1},
		"an LRP is kept if it is a newer object than the observed LRP of the same name": {process.DeleteLRPs{Names: []string{"lrp"}}, func(o *observation) { o.lrps[0].UID = "another" }, true, 1},
		"an LRP of an unchanged app is created":                                         {process.CreateLRP{Name: "new", Revision: 7, Instances: 1}, func(*observation) {}, false, 2},
		"no LRP is created if the app has another revision":                             {process.CreateLRP{Name: "new", Revision: 7, Instances: 1}, func(o *observation) { revise(o.app, "6") }, true, 1},
		"no LRP is created next to one that is missing from the cache":                  {process.CreateLRP{Name: "new", Revision: 7, Instances: 1}, func(o *observation) { o.lrps = nil }, true, 1},
		"no LRP is created from an outdated process": {process.CreateLRP{Name: "new", Revision: 7, Instances: 1}, func(o *observation) {
			o.process.Spec.MemoryMB, o.process.Generation = 64, o.process.Generation-1
		}, true, 1},
		"no LRP is created if the process was replaced by another one of the same name": {process.CreateLRP{Name: "new", Revision: 7, Instances: 1}, func(o *observation) { o.process.UID, o.lrps[0].UID = "another", "another" }, true, 1},
		"an LRP that has changed is not scaled":                                         {process.ScaleLRP{Name: "lrp", Instances: 5}, func(o *observation) { o.lrps[0].ResourceVersion = "1" }, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := hub.CreateNamespace(t)
			seen := seenIn(t, hub, namespace)
			row.change(seen)
			err := c.act(t.Context(), seen, process.Plan{Do: row.do})
			if stale := errors.Is(err, reconcile.ErrStale); stale != row.stale || err != nil && !stale {
				t.Errorf("expected a stale view: %t, found %v", row.stale, err)
			}
			var left eiriniv1.LRPList
			if err := hub.Client.List(t.Context(), &left, client.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
			if len(left.Items) != row.lrps {
				t.Errorf("expected %d LRPs, found %d", row.lrps, len(left.Items))
			}
			for _, l := range left.Items {
				if l.Spec.Instances != 1 {
					t.Errorf("expected one instance of %s, found %d", l.Name, l.Spec.Instances)
				}
			}
		})
	}
}

func revise(app *korifiv1alpha1.CFApp, revision string) {
	app.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: revision, korifiv1alpha1.LastStopRevisionAnnotation: revision}
}

// seenIn creates and observes a started app at revision 7 with a process and one LRP.
func seenIn(t *testing.T, hub *testenv.Environment, namespace string) *observation {
	t.Helper()
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	o := &observation{
		app: &korifiv1alpha1.CFApp{ObjectMeta: in("app"), Spec: korifiv1alpha1.CFAppSpec{
			DisplayName: "app", DesiredState: korifiv1alpha1.StartedState, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
		}},
		process: &korifiv1alpha1.CFProcess{ObjectMeta: in("process"), Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: "app"}, ProcessType: korifiv1alpha1.WebProcess, MemoryMB: 1, DiskQuotaMB: 1,
		}},
		droplet: &korifiv1alpha1.Droplet{Registry: korifiv1alpha1.Registry{Image: "example.com/app:1"}},
	}
	revise(o.app, "7")
	for _, obj := range []client.Object{o.app, o.process} {
		if err := hub.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	lrp := process.BuildLRP(process.LRPSource{App: o.app, Process: o.process, Droplet: o.droplet, Settings: &corev1.Secret{}}, process.CreateLRP{Name: "lrp", Revision: 4, Instances: 1})
	lrp.Finalizers = nil
	if err := hub.Client.Create(t.Context(), lrp); err != nil {
		t.Fatal(err)
	}
	o.lrps = []eiriniv1.LRP{*lrp}
	return o
}
