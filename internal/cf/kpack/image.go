// SPDX-License-Identifier: Apache-2.0

package kpack

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// maxMessageBytes limits the part of a kpack message that is copied to a CFBuild's status.
const maxMessageBytes = 1024

// groupVersion is the version of kpack's API.
func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "kpack.io", Version: "v1alpha2"}
}

// ImageKind is the kpack kind that defines an image to build.
func ImageKind() schema.GroupVersionKind { return groupVersion().WithKind("Image") }

// BuildKind is the kpack kind of a single build of an Image.
func BuildKind() schema.GroupVersionKind { return groupVersion().WithKind("Build") }

// NewImage returns an empty Image. It is unstructured, so kpack's module is not needed for a few fields.
func NewImage() *unstructured.Unstructured {
	image := &unstructured.Unstructured{}
	image.SetGroupVersionKind(ImageKind())
	return image
}

// Progress is the part of an Image on which the decision depends.
type Progress struct {
	// IsOwned is true if the Image belongs to the CFBuild. Another object may have the same name.
	IsOwned bool
	// IsDeleted is true if the Image is being deleted.
	IsDeleted bool
	// IsCurrent is true if the status describes the latest spec.
	IsCurrent bool
	Status    ImageStatus
}

// ImageStatus holds the needed fields of kpack's status.
type ImageStatus struct {
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Conditions         []Condition `json:"conditions,omitempty"`
	// LatestBuildRef is the name of the newest Build.
	LatestBuildRef string `json:"latestBuildRef,omitempty"`
	// LatestImage is the newest built image, with its digest.
	LatestImage string `json:"latestImage,omitempty"`
	LatestStack string `json:"latestStack,omitempty"`
}

// Condition holds the needed fields of kpack's conditions.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Message string                 `json:"message,omitempty"`
}

// Ready returns the condition that reports whether the newest Build has succeeded. It returns the zero value if the
// condition is missing.
func (s ImageStatus) Ready() Condition { return s.find("Ready") }

func (s ImageStatus) find(kind string) Condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// ReadProgress reads the Image with the name of a CFBuild.
func ReadProgress(build *korifiv1alpha1.CFBuild, image *unstructured.Unstructured) (*Progress, error) {
	status, err := readStatus(image)
	if err != nil {
		return nil, err
	}
	return &Progress{
		IsOwned: metav1.IsControlledBy(image, build), IsDeleted: !image.GetDeletionTimestamp().IsZero(),
		IsCurrent: status.ObservedGeneration == image.GetGeneration(), Status: status,
	}, nil
}

// ReadFailure returns the failure message of a kpack Build, or "" if it has none.
func ReadFailure(build *unstructured.Unstructured) (string, error) {
	status, err := readStatus(build)
	return status.find("Succeeded").Message, err
}

// readStatus reads the status of an Image or the conditions of a Build.
func readStatus(from *unstructured.Unstructured) (ImageStatus, error) {
	var status ImageStatus
	fields, _, err := unstructured.NestedMap(from.Object, "status")
	if err == nil && fields != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status)
	}
	if err != nil {
		return status, fmt.Errorf("decode the status of the %s %s: expected a status of %s: %w; check the version of kpack",
			from.GetKind(), from.GetName(), groupVersion(), err)
	}
	return status, nil
}

// BuildImage returns the Image for a CFBuild. Each CFBuild has its own Image, so its droplet is always built from its
// own package, and never from a later one.
func BuildImage(build *korifiv1alpha1.CFBuild, pkg *korifiv1alpha1.CFPackage, s Settings) *unstructured.Unstructured {
	from := pkg.Spec.Source.Registry
	registry := map[string]any{"image": from.Image}
	if len(from.ImagePullSecrets) > 0 {
		var secrets []any
		for _, secret := range from.ImagePullSecrets {
			secrets = append(secrets, map[string]any{"name": secret.Name})
		}
		registry["imagePullSecrets"] = secrets
	}
	spec := map[string]any{
		// Each space has its own repository, because a developer can choose the names of builds and apps, but not the
		// name of the space.
		"tag":                s.Repository + "/" + build.Namespace + ":" + build.Name,
		"builder":            map[string]any{"kind": s.BuilderKind, "name": s.Builder},
		"serviceAccountName": s.ServiceAccount,
		"source":             map[string]any{"registry": registry},
	}
	if memory := build.Spec.StagingMemoryMB; memory > 0 {
		size := fmt.Sprintf("%dMi", memory)
		spec["build"] = map[string]any{"resources": map[string]any{
			"limits": map[string]any{"memory": size}, "requests": map[string]any{"memory": size},
		}}
	}
	image := NewImage()
	image.Object["spec"] = spec
	image.SetNamespace(build.Namespace)
	image.SetName(build.Name)
	image.SetLabels(map[string]string{korifiv1alpha1.AppGUIDLabel: build.Spec.AppRef.Name})
	owner := *metav1.NewControllerRef(build, korifiv1alpha1.CFBuildKind())
	// BlockOwnerDeletion would need a right to the finalizers of CFBuilds, and the order of deletion does not matter.
	owner.BlockOwnerDeletion = nil
	image.SetOwnerReferences([]metav1.OwnerReference{owner})
	return image
}

// limitMessage truncates a kpack message to maxMessageBytes.
func limitMessage(text string) string {
	text = strings.TrimSpace(text)
	return strings.ToValidUTF8(text[:min(len(text), maxMessageBytes)], "")
}
