// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// Builds and packages are cached by separate watches, so a build may be missing from the cache. A package must be kept
// if a droplet in use was built from it, even if its build is missing.
func TestPackagesOfUnseenBuildsAreKept(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	c := Controller{client: hub.Client, live: hub.Client, Clock: clock.RealClock{}}
	for name, row := range map[string]struct {
		change   func(seen *observation)
		isStale  bool
		packages int
	}{
		"the package of a build in use is kept":                                         {func(*observation) {}, false, 6},
		"a build in use that is missing from the cache delays the deletion of packages": {func(o *observation) { o.Builds = nil }, true, 7},
		"a deleted build does not delay the deletion of packages": {func(o *observation) {
			o.App.Status.Restarts = []korifiv1alpha1.Restart{{Revision: 1, Droplet: "deleted"}}
		}, false, 6},
	} {
		t.Run(name, func(t *testing.T) {
			seen := createPushedApp(t, hub)
			row.change(seen)
			err := c.act(t.Context(), seen, app.Decide(seen.Observed))
			if isStale := errors.Is(err, reconcile.ErrStale); isStale != row.isStale || err != nil && !isStale {
				t.Errorf("expected a stale view: %t, found %v", row.isStale, err)
			}
			var left korifiv1alpha1.CFPackageList
			testenv.ExpectNoError(t, hub.Client.List(t.Context(), &left, client.InNamespace(seen.App.Namespace)))
			if len(left.Items) != row.packages {
				t.Errorf("expected %d packages, found %d", row.packages, len(left.Items))
			}
		})
	}
}

// createPushedApp creates and observes an app with seven packages. The app runs the droplet of the oldest package. The
// other packages have no build, and retention keeps five of them.
func createPushedApp(t *testing.T, hub *testenv.Environment) *observation {
	t.Helper()
	namespace := hub.CreateNamespace(t)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	of, lifecycle := korifiv1alpha1.Reference{Name: "app"}, korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}
	build := &korifiv1alpha1.CFBuild{ObjectMeta: in("1"), Spec: korifiv1alpha1.CFBuildSpec{PackageRef: korifiv1alpha1.Reference{Name: "1"}, AppRef: of, Lifecycle: lifecycle}}
	seen := &observation{Observed: app.Observed{App: &korifiv1alpha1.CFApp{ObjectMeta: in("app"), Spec: korifiv1alpha1.CFAppSpec{
		DisplayName: "app", DesiredState: korifiv1alpha1.StartedState, Lifecycle: lifecycle, CurrentDropletRef: &korifiv1alpha1.Reference{Name: "1"},
	}}}}
	hub.ExpectCreated(t, build, seen.App)
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		pkg := &korifiv1alpha1.CFPackage{ObjectMeta: in(name), Spec: korifiv1alpha1.CFPackageSpec{
			Type: korifiv1alpha1.DockerPackage, AppRef: of, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "example.com/app:" + name}},
		}}
		hub.ExpectCreated(t, pkg)
		seen.Packages = append(seen.Packages, *pkg)
	}
	seen.Builds = []korifiv1alpha1.CFBuild{*build}
	return seen
}
