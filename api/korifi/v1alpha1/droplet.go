// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CFPackage is the source of a droplet: a container image, or source code.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfpackages,singular=cfpackage,scope=Namespaced
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".spec.source.registry.image"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CFPackage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFPackageSpec `json:"spec"`
	// +optional
	Status CFPackageStatus `json:"status,omitempty"`
}

// CFPackageList is a list of CFPackages.
//
// +kubebuilder:object:root=true
type CFPackageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFPackage `json:"items"`
}

// PackageType is bits or docker.
//
// +kubebuilder:validation:Enum=bits;docker
type PackageType string

const (
	// BitsPackage is a package with source code, which kpack or another external builder builds.
	BitsPackage PackageType = "bits"
	// DockerPackage is a package that references an image.
	DockerPackage PackageType = "docker"
)

// CFPackageSpec defines the content of a package.
//
// +kubebuilder:validation:XValidation:fieldPath=`.source`,rule=`self.type != 'docker' || (has(self.source) && has(self.source.registry) && size(self.source.registry.image) > 0)`,message=`expected registry.image, because the type of the package is docker; found none; set the image`
type CFPackageSpec struct {
	// Type is bits or docker.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a package has one type; found one; create a new CFPackage`
	Type PackageType `json:"type"`
	// AppRef references the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a package belongs to one app; found one; create a new CFPackage`
	AppRef Reference `json:"appRef"`
	// Source identifies the content of the package.
	// +optional
	Source PackageSource `json:"source,omitzero"`
}

// PackageSource identifies the content of a package.
type PackageSource struct {
	// Registry identifies the image.
	// +optional
	Registry Registry `json:"registry,omitzero"`
}

// Registry identifies an image, and the Secrets for pulling it.
type Registry struct {
	// Image is the name of the image.
	Image string `json:"image"`
	// ImagePullSecrets are the Secrets that the image is pulled with.
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// CFPackageStatus is the observed state of a package.
type CFPackageStatus struct {
	// Conditions hold Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CFBuild builds a droplet from a package. The droplet has the name of the CFBuild.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfbuilds,singular=cfbuild,scope=Namespaced
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".status.droplet.registry.image"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Succeeded')].message",priority=1
type CFBuild struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFBuildSpec `json:"spec"`
	// +optional
	Status CFBuildStatus `json:"status,omitempty"`
}

// CFBuildList is a list of CFBuilds.
//
// +kubebuilder:object:root=true
type CFBuildList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFBuild `json:"items"`
}

// CFBuildSpec is the desired state of a build.
type CFBuildSpec struct {
	// PackageRef references the CFPackage.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a build is made from one package; found one; create a new CFBuild`
	PackageRef Reference `json:"packageRef"`
	// AppRef references the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a build belongs to one app; found one; create a new CFBuild`
	AppRef Reference `json:"appRef"`
	// StagingMemoryMB limits the memory of the build, in MiB.
	// +kubebuilder:validation:Minimum=0
	StagingMemoryMB int `json:"stagingMemoryMB"`
	// StagingDiskMB limits the disk of the build, in MiB. Torpor does not use it.
	// +kubebuilder:validation:Minimum=0
	StagingDiskMB int `json:"stagingDiskMB"`
	// Lifecycle defines how the droplet is built.
	Lifecycle Lifecycle `json:"lifecycle"`
}

// BuildState is the progress of a build.
//
// +kubebuilder:validation:Enum=STAGING;STAGED;FAILED
type BuildState string

// These are the states of a build.
const (
	StagingBuild BuildState = "STAGING"
	StagedBuild  BuildState = "STAGED"
	FailedBuild  BuildState = "FAILED"
)

// CFBuildStatus is the observed state of a build. The droplet is immutable, so that a revision always references the
// same image.
//
// +kubebuilder:validation:XValidation:fieldPath=`.droplet`,rule=`!has(oldSelf.droplet) || (has(self.droplet) && self.droplet == oldSelf.droplet)`,message=`expected no change to the droplet, because revisions of the app run it; found one; create a new CFBuild`
type CFBuildStatus struct {
	// Conditions hold Staging, Succeeded and Pinned.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is the progress of the build.
	// +optional
	State BuildState `json:"state,omitempty"`
	// Droplet is the result of the build.
	// +optional
	Droplet *Droplet `json:"droplet,omitempty"`
}

// Droplet is a runnable image and its process types.
type Droplet struct {
	// Registry identifies the image.
	Registry Registry `json:"registry"`
	// Stack is the name of the stack that the droplet was built with.
	// +optional
	Stack string `json:"stack,omitempty"`
	// ProcessTypes are the processes that the droplet can run.
	// +optional
	// +listType=map
	// +listMapKey=type
	ProcessTypes []ProcessType `json:"processTypes,omitempty"`
	// Ports are the ports that the image declares.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
}

// ProcessType is a process that a droplet can run.
type ProcessType struct {
	// Type is the type of the process, such as web.
	Type string `json:"type"`
	// Command is the command of the process. Empty means the image's own command.
	// +optional
	Command string `json:"command"`
}
