// SPDX-License-Identifier: Apache-2.0

// Package controller builds the droplets of CFBuilds with kpack if their packages contain source code.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the controller and its field manager.
const Name = "torpor-kpack"

// refusedClass is the error class of an Image that kpack's admission webhook rejects.
const refusedClass = "Refused"

// byPackage is the cache index of builds by their package.
const byPackage = "packageOfKpack"

// Controller reconciles CFBuilds.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard
	// Settings apply to all Images.
	Settings kpack.Settings

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds;cfpackages,verbs=get;list;watch
// +kubebuilder:rbac:groups=kpack.io,resources=images,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=kpack.io,resources=builds,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	packageOf := func(o client.Object) []string {
		if b, ok := o.(*korifiv1alpha1.CFBuild); ok {
			return []string{b.Spec.PackageRef.Name}
		}
		return nil
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &korifiv1alpha1.CFBuild{}, byPackage, packageOf)
	if err != nil {
		return fmt.Errorf("set up %s: index builds: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name).
		WithOptions(reconcile.WorkerOptions{Count: 2, PassTimeout: time.Minute}.Options()).
		For(&korifiv1alpha1.CFBuild{}).Owns(kpack.NewImage()).
		Watches(&korifiv1alpha1.CFPackage{}, handler.EnqueueRequestsFromMapFunc(c.buildsForPackage)).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFBuild, kpack.Observed, kpack.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New:     func() *korifiv1alpha1.CFBuild { return &korifiv1alpha1.CFBuild{} },
			Observe: c.observe,
			Decide:  kpack.Decide,
			Act:     c.act,
			Report:  c.report,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// buildsForPackage maps a package to its builds.
func (c Controller) buildsForPackage(ctx context.Context, pkg client.Object) []ctrl.Request {
	var list korifiv1alpha1.CFBuildList
	of := client.MatchingFields{byPackage: pkg.GetName()}
	if err := c.client.List(ctx, &list, client.InNamespace(pkg.GetNamespace()), of); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

func (c Controller) observe(ctx context.Context, obj *korifiv1alpha1.CFBuild) (kpack.Observed, error) {
	seen, pkg, image := kpack.Observed{Build: obj, Settings: c.Settings}, &korifiv1alpha1.CFPackage{}, kpack.NewImage()
	hasPackage, packageErr := c.find(ctx, obj.Spec.PackageRef.Name, obj.Namespace, pkg)
	hasImage, imageErr := c.find(ctx, obj.Name, obj.Namespace, image)
	if err := errors.Join(packageErr, imageErr); err != nil {
		return seen, fmt.Errorf("read the package and the Image: %w", err)
	}
	if hasPackage {
		seen.Package = pkg
	}
	if !hasImage {
		return seen, nil
	}
	var err error
	if seen.Image, err = kpack.ReadProgress(obj, image); err != nil || !kpack.LacksReason(seen.Image) {
		return seen, err
	}
	seen.Failure, err = c.readFailure(ctx, obj.Namespace, seen.Image.Status.LatestBuildRef)
	return seen, err
}

func (c Controller) find(ctx context.Context, name, namespace string, into client.Object) (bool, error) {
	err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	return err == nil, client.IgnoreNotFound(err)
}

// readFailure reads a Build from the API server, because Builds are not cached. It returns no message for a deleted
// Build.
func (c Controller) readFailure(ctx context.Context, namespace, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	build := &unstructured.Unstructured{}
	build.SetGroupVersionKind(kpack.BuildKind())
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, build); err != nil {
		if k8serrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("read the Build %s of kpack: %w", name, err)
	}
	return kpack.ReadFailure(build)
}

func (c Controller) act(ctx context.Context, seen kpack.Observed, plan kpack.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	switch plan.Do {
	case kpack.DoNothing:
	case kpack.CreateImage:
		return c.createImage(ctx, seen)
	case kpack.DeleteImage:
		image := kpack.NewImage()
		found, err := c.find(ctx, seen.Build.Name, seen.Build.Namespace, image)
		if err != nil || !found || !metav1.IsControlledBy(image, seen.Build) {
			return err
		}
		return reconcile.DeleteObserved(ctx, c.client, image)
	}
	return nil
}

func (c Controller) createImage(ctx context.Context, seen kpack.Observed) error {
	err := c.client.Create(ctx, kpack.BuildImage(seen.Build, seen.Package, seen.Settings), client.FieldOwner(Name))
	switch {
	case err == nil, k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case k8serrors.IsAlreadyExists(err):
		return reconcile.ErrStale
	case k8serrors.IsInvalid(err), k8serrors.IsBadRequest(err):
		return &reconcile.RefusedError{Class: refusedClass, Message: "kpack refused the Image: " + err.Error(), Err: err}
	default:
		return fmt.Errorf("create the Image: %w", err)
	}
}

// report writes only the fields that a builder has to write: the droplet or the failure. The controller of builds
// writes the rest of the status.
func (c Controller) report(obj *korifiv1alpha1.CFBuild, _ kpack.Observed, plan kpack.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	if refused != nil && refused.Class == refusedClass {
		plan.Failure = refused.Message
	}
	switch {
	case plan.Droplet != nil:
		obj.Status.Droplet = plan.Droplet
	case plan.Failure != "":
		obj.Status.State = korifiv1alpha1.FailedBuild
		reconcile.SetConditions(&obj.Status.Conditions, map[string]decision.Condition{
			korifiv1alpha1.SucceededCondition: decision.False(korifiv1alpha1.BuildFailedReason, plan.Failure),
		}, obj.Generation, c.Clock)
	}
	return reconcile.FollowUp{Rule: plan.Rule}
}
