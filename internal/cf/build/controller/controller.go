// SPDX-License-Identifier: Apache-2.0

// Package controller sets the droplets of images, and reports whether droplets can be built from a package.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/build"
	"github.com/torpor-dev/torpor/internal/cf/imagemetadata"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the event reporter. The names of the controllers are Name-builds and Name-packages.
const Name = "torpor-spaces"

// byPackage is the cache index of builds by their package.
const byPackage = "builtPackage"

// Controller reconciles CFBuilds and CFPackages.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard
	// Registries defines which registries may be contacted.
	Registries imagemetadata.Policy
	// UsesKpack is true if kpack builds source code.
	UsesKpack bool

	client client.Client
	images *imagemetadata.Service
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds/status;cfpackages/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds;cfpackages,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	c.images = imagemetadata.NewService(c.Registries, c.Clock, nil)
	c.images.ReadSecret = c.readSecret
	options := reconcile.WorkerOptions{Count: 5, PassTimeout: time.Minute}.Options()
	if err := mgr.Add(c.images); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &korifiv1alpha1.CFBuild{}, byPackage, func(o client.Object) []string {
		if b, ok := o.(*korifiv1alpha1.CFBuild); ok {
			return []string{b.Spec.PackageRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up %s: index builds: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name+"-builds").WithOptions(options).
		For(&korifiv1alpha1.CFBuild{}).Watches(&korifiv1alpha1.CFPackage{}, handler.EnqueueRequestsFromMapFunc(c.buildsForPackage)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			c.images.Enqueue = func(build types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: build}) }
			return nil
		})).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFBuild, build.Observed, build.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New:     func() *korifiv1alpha1.CFBuild { return &korifiv1alpha1.CFBuild{} },
			Forget:  c.images.ForgetBuild,
			Observe: c.observeBuild,
			Decide:  build.Decide,
			Report:  c.reportBuild,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name + "-packages").WithOptions(options).
		For(&korifiv1alpha1.CFPackage{}).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFPackage, *korifiv1alpha1.CFPackage, decision.Condition]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New: func() *korifiv1alpha1.CFPackage { return &korifiv1alpha1.CFPackage{} },
			// The status of a package depends only on the package.
			Observe: func(_ context.Context, pkg *korifiv1alpha1.CFPackage) (*korifiv1alpha1.CFPackage, error) {
				return pkg, nil
			},
			Decide: build.DecidePackageReady,
			Report: c.reportPackage,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// buildsForPackage maps a package to its builds.
func (c Controller) buildsForPackage(ctx context.Context, pkg client.Object) []ctrl.Request {
	var list korifiv1alpha1.CFBuildList
	if err := c.client.List(ctx, &list, client.InNamespace(pkg.GetNamespace()), client.MatchingFields{byPackage: pkg.GetName()}); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// observeBuild reads the package, and requests the image's metadata from the registry. The build is enqueued again when
// the response arrives.
func (c Controller) observeBuild(ctx context.Context, obj *korifiv1alpha1.CFBuild) (build.Observed, error) {
	var pkg korifiv1alpha1.CFPackage
	err := c.client.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.PackageRef.Name}, &pkg)
	switch {
	case k8serrors.IsNotFound(err):
		return build.Observed{Build: obj, UsesKpack: c.UsesKpack}, nil
	case err != nil:
		return build.Observed{}, fmt.Errorf("read the package: %w", err)
	}
	seen := build.Observed{Build: obj, Package: &pkg, UsesKpack: c.UsesKpack}
	if seen.IsAboutImage() {
		answer, isKnown := c.images.RequestAnswer(imagemetadata.Question{Build: client.ObjectKeyFromObject(obj), UID: obj.UID, Registry: pkg.Spec.Source.Registry})
		if !isKnown {
			return build.Observed{}, reconcile.ErrPending
		}
		seen.Answer = answer
	}
	return seen, nil
}

// readSecret reads a Secret from the API server, because Secrets are not cached.
func (c Controller) readSecret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := c.client.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("read the Secret: %w", err)
	}
	return &secret, nil
}

func (c Controller) reportBuild(obj *korifiv1alpha1.CFBuild, _ build.Observed, plan build.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	status := &obj.Status
	status.Droplet, status.State, status.ObservedGeneration = plan.Droplet, plan.State, obj.Generation
	conditions := map[string]decision.Condition{korifiv1alpha1.SucceededCondition: plan.Succeeded, korifiv1alpha1.StagingCondition: plan.Staging}
	if plan.Pinned != nil {
		conditions[korifiv1alpha1.PinnedCondition] = *plan.Pinned
	}
	reconcile.SetConditions(&status.Conditions, conditions, obj.Generation, c.Clock)
	// The registry's response is kept until the status is saved, so a conflict does not cause another request.
	built := client.ObjectKeyFromObject(obj)
	return reconcile.FollowUp{Rule: plan.Succeeded.Reason, AfterSave: func() { c.images.ForgetBuild(built) }}
}

func (c Controller) reportPackage(pkg, _ *korifiv1alpha1.CFPackage, ready decision.Condition, _ *reconcile.RefusedError) reconcile.FollowUp {
	pkg.Status.ObservedGeneration = pkg.Generation
	reconcile.SetConditions(&pkg.Status.Conditions, map[string]decision.Condition{korifiv1alpha1.ReadyCondition: ready}, pkg.Generation, c.Clock)
	return reconcile.FollowUp{Rule: ready.Reason}
}
