// SPDX-License-Identifier: Apache-2.0

package spaces

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/kit"
)

// stepBuild makes the droplet of an image, which is the image itself. What others have filled in stays.
func (c Controller) stepBuild(ctx context.Context, build *korifiv1alpha1.CFBuild) (kit.Outcome, error) {
	var pkg korifiv1alpha1.CFPackage
	err := c.client.Get(ctx, client.ObjectKey{Namespace: build.Namespace, Name: build.Spec.PackageRef.Name}, &pkg)
	if client.IgnoreNotFound(err) != nil {
		return kit.Outcome{}, fmt.Errorf("read the package: %w", err)
	}
	is := metav1.Condition{Type: korifiv1alpha1.SucceededCondition, Status: metav1.ConditionUnknown}
	status := &build.Status
	switch {
	case status.Droplet != nil:
		is.Status, is.Reason, is.Message = metav1.ConditionTrue, korifiv1alpha1.StagedReason, "the droplet is there"
		status.State = korifiv1alpha1.StagedBuild
	case apierrors.IsNotFound(err):
		is.Reason = korifiv1alpha1.PackageMissingReason
		is.Message = "expected the CFPackage " + build.Spec.PackageRef.Name + ", found none; it is waited for"
	case pkg.Spec.Type == korifiv1alpha1.DockerPackage:
		status.State = korifiv1alpha1.StagedBuild
		status.Droplet = &korifiv1alpha1.Droplet{
			Registry: pkg.Spec.Source.Registry, ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
		}
		is.Status, is.Reason, is.Message = metav1.ConditionTrue, korifiv1alpha1.StagedReason, "the droplet is the package's image"
	default:
		is.Reason, is.Message = korifiv1alpha1.BuiltByOthersReason, "the package holds code; somebody else has to fill in status.droplet"
	}
	status.ObservedGeneration = build.Generation
	kit.SetCondition(&status.Conditions, is, build.Generation, c.Clock)
	return kit.Outcome{Why: is.Reason}, nil
}
