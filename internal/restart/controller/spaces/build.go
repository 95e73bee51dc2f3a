// SPDX-License-Identifier: Apache-2.0

package spaces

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// stepPackage says whether droplets can be made from a package.
func (c Controller) stepPackage(_ context.Context, pkg *korifiv1alpha1.CFPackage) (reconcile.Outcome, error) {
	is := metav1.Condition{
		Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.SourceReadyReason,
		Message: "droplets are made from the image in spec.source.registry",
	}
	if pkg.Spec.Source.Registry.Image == "" {
		is.Status, is.Reason = metav1.ConditionFalse, korifiv1alpha1.SourceMissingReason
		is.Message = "expected the image that holds the code in spec.source.registry.image, found none; whoever uploads the code names it"
	}
	pkg.Status.ObservedGeneration = pkg.Generation
	reconcile.SetCondition(&pkg.Status.Conditions, is, pkg.Generation, c.Clock)
	return reconcile.Outcome{Why: is.Reason}, nil
}

// stepBuild makes the droplet of an image, which is the image itself. What others have filled in stays.
func (c Controller) stepBuild(ctx context.Context, build *korifiv1alpha1.CFBuild) (reconcile.Outcome, error) {
	var pkg korifiv1alpha1.CFPackage
	err := c.client.Get(ctx, client.ObjectKey{Namespace: build.Namespace, Name: build.Spec.PackageRef.Name}, &pkg)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Outcome{}, fmt.Errorf("read the package: %w", err)
	}
	status := &build.Status
	if status.Droplet == nil && err == nil && pkg.Spec.Type == korifiv1alpha1.DockerPackage {
		status.Droplet = &korifiv1alpha1.Droplet{
			Registry: pkg.Spec.Source.Registry, ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
		}
	}
	state, succeeded := outcome(build, k8serrors.IsNotFound(err))
	staging := metav1.Condition{Type: korifiv1alpha1.StagingCondition, Status: metav1.ConditionFalse, Reason: succeeded.Reason, Message: succeeded.Message}
	if state == korifiv1alpha1.StagingBuild {
		staging.Status = metav1.ConditionTrue
	}
	status.State, status.ObservedGeneration = state, build.Generation
	for _, is := range []metav1.Condition{succeeded, staging} {
		reconcile.SetCondition(&status.Conditions, is, build.Generation, c.Clock)
	}
	return reconcile.Outcome{Why: succeeded.Reason}, nil
}

// outcome is how far a build is, and why.
func outcome(build *korifiv1alpha1.CFBuild, noPackage bool) (korifiv1alpha1.BuildState, metav1.Condition) {
	is := metav1.Condition{Type: korifiv1alpha1.SucceededCondition, Status: metav1.ConditionUnknown}
	switch {
	case build.Status.Droplet != nil:
		is.Status, is.Reason, is.Message = metav1.ConditionTrue, korifiv1alpha1.StagedReason, "the droplet is there"
		return korifiv1alpha1.StagedBuild, is
	case build.Status.State == korifiv1alpha1.FailedBuild:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, korifiv1alpha1.BuildFailedReason, "whoever builds the droplet says that it failed; make a new CFBuild"
		return korifiv1alpha1.FailedBuild, is
	case noPackage:
		is.Reason = korifiv1alpha1.PackageMissingReason
		is.Message = "expected the CFPackage " + build.Spec.PackageRef.Name + ", found none; it is waited for"
	default:
		is.Reason, is.Message = korifiv1alpha1.BuiltByOthersReason, "the package holds code; somebody else has to fill in status.droplet"
	}
	return korifiv1alpha1.StagingBuild, is
}
