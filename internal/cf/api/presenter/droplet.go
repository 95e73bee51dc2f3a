// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// PackageResponse is a package of CF v3.
type PackageResponse struct {
	Resource
	Type          string          `json:"type"`
	State         string          `json:"state"`
	Data          PackageData     `json:"data"`
	Relationships AppRelationship `json:"relationships"`
	Metadata      Metadata        `json:"metadata"`
	Links         Links           `json:"links"`
}

// PackageData is the image of a package of type docker.
type PackageData struct {
	Image string `json:"image,omitempty"`
}

// AppRelationship refers to the app of a resource.
type AppRelationship struct {
	App Relationship `json:"app"`
}

// ReadyPackage is the state of a package from which a droplet can be built.
const ReadyPackage = "READY"

// PackageStateOf returns the state of a package. A package of code is ready once the builder has set the image that
// contains the code.
func PackageStateOf(p *korifiv1alpha1.CFPackage) string {
	if p.Spec.Type != korifiv1alpha1.DockerPackage && p.Spec.Source.Registry.Image == "" {
		return "AWAITING_UPLOAD"
	}
	return ReadyPackage
}

// ForPackage returns the CF v3 response for a package.
func ForPackage(base string, p *korifiv1alpha1.CFPackage) PackageResponse {
	data := PackageData{}
	if p.Spec.Type == korifiv1alpha1.DockerPackage {
		data.Image = p.Spec.Source.Registry.Image
	}
	return PackageResponse{
		Resource: newResource(p.Name, p.CreationTimestamp.Time), Type: string(p.Spec.Type), State: PackageStateOf(p),
		Data: data, Relationships: AppRelationship{App: RelationshipTo(p.Spec.AppRef.Name)}, Metadata: metadataOf(p),
		Links: Links{"self": {HRef: base + "/v3/packages/" + p.Name}, "upload": {HRef: base + "/v3/packages/" + p.Name + "/upload", Method: "POST"}, "app": {HRef: base + "/v3/apps/" + p.Spec.AppRef.Name}},
	}
}

// BuildResponse is a build of CF v3.
type BuildResponse struct {
	Resource
	State         string          `json:"state"`
	Error         *string         `json:"error"`
	Lifecycle     AppLifecycle    `json:"lifecycle"`
	Package       Reference       `json:"package"`
	Droplet       *Reference      `json:"droplet"`
	Relationships AppRelationship `json:"relationships"`
	Metadata      EmptyMetadata   `json:"metadata"`
	Links         Links           `json:"links"`
}

// ForBuild returns the CF v3 response for a build.
func ForBuild(base string, b *korifiv1alpha1.CFBuild) BuildResponse {
	shown := BuildResponse{
		Resource: newResource(b.Name, b.CreationTimestamp.Time), State: string(BuildStateOf(b)), Lifecycle: lifecycleOf(b.Spec.Lifecycle),
		Package: Reference{GUID: b.Spec.PackageRef.Name}, Relationships: AppRelationship{App: RelationshipTo(b.Spec.AppRef.Name)},
		Links: Links{"self": {HRef: base + "/v3/builds/" + b.Name}, "app": {HRef: base + "/v3/apps/" + b.Spec.AppRef.Name}},
	}
	switch BuildStateOf(b) {
	case korifiv1alpha1.StagedBuild:
		shown.Droplet = &Reference{GUID: b.Name}
		shown.Links["droplet"] = Link{HRef: base + "/v3/droplets/" + b.Name}
	case korifiv1alpha1.FailedBuild:
		// Other controllers can stage builds, so the condition can have any type.
		why := "BuildFail - no reason was reported"
		for _, c := range b.Status.Conditions {
			if c.Message != "" {
				why = "BuildFail - " + c.Message
			}
		}
		shown.Error = &why
	case korifiv1alpha1.StagingBuild:
	}
	return shown
}

// BuildStateOf returns the state of a build.
func BuildStateOf(b *korifiv1alpha1.CFBuild) korifiv1alpha1.BuildState {
	switch {
	case b.Status.Droplet != nil:
		return korifiv1alpha1.StagedBuild
	// A build without a state counts as being staged, because no controller has processed it yet.
	case b.Status.State == "":
		return korifiv1alpha1.StagingBuild
	default:
		return b.Status.State
	}
}

// DropletResponse is a droplet of CF v3.
type DropletResponse struct {
	Resource
	State         string            `json:"state"`
	Error         *string           `json:"error"`
	Image         *string           `json:"image"`
	Stack         *string           `json:"stack"`
	Lifecycle     AppLifecycle      `json:"lifecycle"`
	ProcessTypes  map[string]string `json:"process_types"`
	Buildpacks    []struct{}        `json:"buildpacks"`
	Relationships AppRelationship   `json:"relationships"`
	Metadata      Metadata          `json:"metadata"`
	Links         Links             `json:"links"`
}

// ForDroplet returns the CF v3 response for the droplet of a staged build.
func ForDroplet(base string, b *korifiv1alpha1.CFBuild) DropletResponse {
	shown := DropletResponse{
		Resource: newResource(b.Name, b.CreationTimestamp.Time), State: "STAGED", Lifecycle: lifecycleOf(b.Spec.Lifecycle),
		ProcessTypes: map[string]string{}, Buildpacks: []struct{}{}, Relationships: AppRelationship{App: RelationshipTo(b.Spec.AppRef.Name)}, Metadata: metadataOf(b),
		Links: Links{
			"self": {HRef: base + "/v3/droplets/" + b.Name}, "app": {HRef: base + "/v3/apps/" + b.Spec.AppRef.Name},
			"package":                {HRef: base + "/v3/packages/" + b.Spec.PackageRef.Name},
			"assign_current_droplet": {HRef: base + "/v3/apps/" + b.Spec.AppRef.Name + "/relationships/current_droplet", Method: "PATCH"},
		},
	}
	if d := b.Status.Droplet; d != nil {
		if b.Spec.Lifecycle.Type == korifiv1alpha1.DockerLifecycle {
			shown.Image = &d.Registry.Image
		}
		if d.Stack != "" {
			shown.Stack = &d.Stack
		}
		for _, p := range d.ProcessTypes {
			shown.ProcessTypes[p.Type] = p.Command
		}
	}
	return shown
}
