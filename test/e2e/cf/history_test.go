// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// A new manager reconciles each app once, regardless of its history: 500 apps with their last 20 revisions have
// 10,000 builds and as many packages, and no request reads or writes any of them. Without TORPOR_E2E=full there are
// fewer apps.
func TestStartWithHistoryWritesNothing(t *testing.T) {
	t.Parallel()
	const buildsOfApp = 20
	apps := testenv.CountRepetitions(100, 500)
	const startLimit = 20 * time.Minute // Half a minute on an idle machine.
	through := &requestCounter{}
	w := newEnvOn(t, testenv.Start(t), through)
	space, guid := w.createSpace(t), manyAppGUID(0)
	w.createHistory(t, space, guid, buildsOfApp)
	through.waitUntilQuiet(t)
	if n := w.countBuilds(t, space); n != buildsOfApp {
		t.Fatalf("expected the builds of the last %d revisions, found %d", buildsOfApp, n)
	}
	// The apps are copied in etcd, because creating them through the API server would take minutes.
	w.manager.Stop(t)
	objects := objectsOfApp(w.readEtcd(t), space, guid)
	inParallel(t, apps-1, func(ctx context.Context, n int) error {
		return w.AskEtcd(ctx, "txn", copyApp(objects, guid, manyAppGUID(1+n)), nil)
	})
	// One transaction gives all objects of an app the same version. A list at that version may return only some of
	// these objects, and a watch from that version misses the others.
	testenv.EventuallyWithin(t, startLimit, "the API server serves all copies", func() error {
		var packages korifiv1alpha1.CFPackageList
		testenv.ExpectNoError(t, w.Client.List(t.Context(), &packages, client.InNamespace(space)))
		if builds := w.countBuilds(t, space); builds != apps*buildsOfApp || len(packages.Items) != builds {
			return fmt.Errorf("expected %d builds and packages, found %d and %d", apps*buildsOfApp, builds, len(packages.Items))
		}
		return nil
	})
	through.takeCounts()
	w.runManager(t, testenv.TorporPath(t))
	testenv.EventuallyWithin(t, startLimit, "the manager has reconciled all apps", func() error {
		if seen := len(readMetrics(t, w.managerMetrics, "torpor_app_revision{")); seen != apps {
			return fmt.Errorf("found %d apps", seen)
		}
		return testenv.ErrorIf(slices.Max(readMetrics(t, w.managerMetrics, "workqueue_depth{")) > 0, "it is still busy")
	})
	reads := 0
	counts, _ := through.waitUntilQuiet(t)
	for kind, n := range counts {
		verb, what, _ := strings.Cut(kind, " ")
		switch {
		case verb == "GET":
			reads += n
		case strings.HasPrefix(what, "cf") || strings.HasPrefix(what, "lrps"):
			t.Errorf("expected nothing to be written, found %s %d times", kind, n)
		}
	}
	if reads >= apps {
		t.Errorf("expected fewer reads than there are apps, found %d: %v", reads, counts)
	}
	if n := w.countBuilds(t, space); n != apps*buildsOfApp {
		t.Errorf("expected all %d builds to be there still, found %d", apps*buildsOfApp, n)
	}
}

// createHistory creates an app without instances and restarts it with several droplets, one after another.
func (w *env) createHistory(t *testing.T, space, guid string, revisions int) {
	t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: space, Name: name} }
	of, lifecycle := korifiv1alpha1.Reference{Name: guid}, korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}
	app := &korifiv1alpha1.CFApp{ObjectMeta: at(guid), Spec: korifiv1alpha1.CFAppSpec{DisplayName: "app", DesiredState: korifiv1alpha1.StoppedState, Lifecycle: lifecycle}}
	w.ExpectCreated(t, &korifiv1alpha1.CFProcess{ObjectMeta: at(revision.ProcessName(guid, korifiv1alpha1.WebProcess)), Spec: korifiv1alpha1.CFProcessSpec{
		AppRef: of, ProcessType: korifiv1alpha1.WebProcess, DesiredInstances: new(int32(0)), MemoryMB: 64, DiskQuotaMB: 64,
	}}, app)
	for i := range revisions {
		name := fmt.Sprintf("%s-%02d", guid, i)
		w.ExpectCreated(t, &korifiv1alpha1.CFPackage{ObjectMeta: at(name), Spec: korifiv1alpha1.CFPackageSpec{
			Type: korifiv1alpha1.DockerPackage, AppRef: of, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: fmt.Sprintf("shop:%d", i)}},
		}}, &korifiv1alpha1.CFBuild{ObjectMeta: at(name), Spec: korifiv1alpha1.CFBuildSpec{PackageRef: korifiv1alpha1.Reference{Name: name}, AppRef: of, Lifecycle: lifecycle}})
		testenv.ExpectPatched(t, w.Environment, app, func(a *korifiv1alpha1.CFApp) {
			a.Spec.DesiredState, a.Spec.CurrentDropletRef = korifiv1alpha1.StartedState, &korifiv1alpha1.Reference{Name: name}
		})
		testenv.Eventually(t, "the revision is recorded with its droplet", func() error {
			err := w.Client.Get(t.Context(), types.NamespacedName{Namespace: space, Name: guid}, app)
			known := revision.ListRestarts(app)
			if err == nil && (len(known) == 0 || known[0].Droplet != name) {
				err = fmt.Errorf("found %+v", known)
			}
			return err
		})
		if i+1 < revisions {
			testenv.ExpectPatched(t, w.Environment, app, func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StoppedState })
		}
	}
}

func (w *env) countBuilds(t *testing.T, space string) int {
	t.Helper()
	var builds korifiv1alpha1.CFBuildList
	testenv.ExpectNoError(t, w.Client.List(t.Context(), &builds, client.InNamespace(space)))
	return len(builds.Items)
}
