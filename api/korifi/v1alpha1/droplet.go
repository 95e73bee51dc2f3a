// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CFPackage is what a droplet is made from: for docker, an image.
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

// PackageType is what a package holds.
//
// +kubebuilder:validation:Enum=bits;docker
type PackageType string

const (
	// BitsPackage holds code; Torpor keeps it and builds nothing.
	BitsPackage PackageType = "bits"
	// DockerPackage names an image.
	DockerPackage PackageType = "docker"
)

// CFPackageSpec is what a package holds.
//
// +kubebuilder:validation:XValidation:fieldPath=`.source`,rule=`self.type != 'docker' || (has(self.source) && has(self.source.registry) && size(self.source.registry.image) > 0)`,message=`expected registry.image of a package of type docker; found none; name the image`
type CFPackageSpec struct {
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay; found it changed; make a new CFPackage`
	Type PackageType `json:"type"`
	// AppRef names the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a package belongs to one app; found it changed; make a new CFPackage`
	AppRef Reference `json:"appRef"`
	// +optional
	Source PackageSource `json:"source,omitzero"`
}

// PackageSource is where a package comes from.
type PackageSource struct {
	// +optional
	Registry Registry `json:"registry,omitzero"`
}

// Registry is an image and what is needed to pull it.
type Registry struct {
	Image string `json:"image"`
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// CFPackageStatus is what is known of a package.
type CFPackageStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CFBuild makes a droplet from a package; its name is the droplet's too.
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

// CFBuildSpec is what a build starts from.
type CFBuildSpec struct {
	// PackageRef names the CFPackage.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a build is made from one package; found it changed; make a new CFBuild`
	PackageRef Reference `json:"packageRef"`
	// AppRef names the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a build belongs to one app; found it changed; make a new CFBuild`
	AppRef Reference `json:"appRef"`
	// StagingMemoryMB is what a build may use, in MiB.
	// +kubebuilder:validation:Minimum=0
	StagingMemoryMB int `json:"stagingMemoryMB"`
	// StagingDiskMB is what a build may use, in MiB.
	// +kubebuilder:validation:Minimum=0
	StagingDiskMB int `json:"stagingDiskMB"`
	// Lifecycle is how the droplet is made.
	Lifecycle Lifecycle `json:"lifecycle"`
}

// BuildState is how far a build is.
//
// +kubebuilder:validation:Enum=STAGING;STAGED;FAILED
type BuildState string

// The states.
const (
	StagingBuild BuildState = "STAGING"
	StagedBuild  BuildState = "STAGED"
	FailedBuild  BuildState = "FAILED"
)

// CFBuildStatus is what a build made. A droplet never changes, so that a revision runs the same for ever.
//
// +kubebuilder:validation:XValidation:fieldPath=`.droplet`,rule=`!has(oldSelf.droplet) || (has(self.droplet) && self.droplet == oldSelf.droplet)`,message=`expected the droplet to stay, because revisions run it; found it changed; make a new CFBuild`
type CFBuildStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	State BuildState `json:"state,omitempty"`
	// Droplet is what runs.
	// +optional
	Droplet *Droplet `json:"droplet,omitempty"`
}

// Droplet is an image and what it runs.
type Droplet struct {
	Registry Registry `json:"registry"`
	// +optional
	Stack string `json:"stack,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	ProcessTypes []ProcessType `json:"processTypes,omitempty"`
	// Ports the image says it listens on.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
}

// ProcessType is a process that a droplet can run.
type ProcessType struct {
	Type string `json:"type"`
	// Command is empty where the image's own is run.
	// +optional
	Command string `json:"command"`
}
