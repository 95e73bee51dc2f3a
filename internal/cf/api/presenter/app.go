// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// AppResponse is an app in CF v3, with its revision, a field that Torpor adds.
type AppResponse struct {
	Resource
	Name          string           `json:"name"`
	State         string           `json:"state"`
	Revision      int64            `json:"revision"`
	Lifecycle     AppLifecycle     `json:"lifecycle"`
	Relationships AppRelationships `json:"relationships"`
	Metadata      Metadata         `json:"metadata"`
	Links         AppLinks         `json:"links"`
}

// AppLinks holds the links of an app. A struct is faster than a map for lists of thousands of apps.
type AppLinks struct {
	Self      Link `json:"self"`
	Space     Link `json:"space"`
	Processes Link `json:"processes"`
}

// AppRelationships holds the references to the space and the current droplet of an app.
type AppRelationships struct {
	Space          Relationship `json:"space"`
	CurrentDroplet Relationship `json:"current_droplet"`
}

// AppLifecycle describes how droplets are created.
type AppLifecycle struct {
	Type string        `json:"type"`
	Data LifecycleData `json:"data"`
}

// LifecycleData holds the buildpack settings. It is empty for docker.
type LifecycleData struct {
	Buildpacks []string `json:"buildpacks,omitempty"`
	Stack      string   `json:"stack,omitempty"`
}

// ForApp returns the CF v3 response for an app. base is the API's URL.
func ForApp(base string, app *korifiv1alpha1.CFApp) AppResponse {
	self := base + "/v3/apps/" + app.Name
	current, _, _ := revision.ReadRevision(app)
	return AppResponse{
		Resource: newUpdatedResource(app), Name: app.Spec.DisplayName,
		State: string(app.Spec.DesiredState), Revision: current, Lifecycle: lifecycleOf(app.Spec.Lifecycle),
		Relationships: AppRelationships{Space: RelationshipTo(app.Namespace), CurrentDroplet: RelationshipTo(currentDroplet(app))},
		Metadata:      appMetadata(app),
		Links:         AppLinks{Self: Link{HRef: self}, Space: Link{HRef: base + "/v3/spaces/" + app.Namespace}, Processes: Link{HRef: self + "/processes"}},
	}
}

// appMetadata returns the client's labels and annotations, and the revision in the same form as Korifi.
func appMetadata(app *korifiv1alpha1.CFApp) Metadata {
	m := metadataOf(app)
	if text, ok := app.Annotations[korifiv1alpha1.RevisionAnnotation]; ok {
		m.Annotations[korifiv1alpha1.RevisionAnnotation] = text
	}
	return m
}

func lifecycleOf(l korifiv1alpha1.Lifecycle) AppLifecycle {
	return AppLifecycle{Type: string(l.Type), Data: LifecycleData{Buildpacks: l.Data.Buildpacks, Stack: l.Data.Stack}}
}

// AppRevision is a revision of an app.
type AppRevision struct {
	GUID          string        `json:"guid"`
	Version       int64         `json:"version"`
	CreatedAt     string        `json:"created_at"`
	UpdatedAt     string        `json:"updated_at"`
	Description   string        `json:"description"`
	Deployable    bool          `json:"deployable"`
	Droplet       Reference     `json:"droplet"`
	Relationships struct{}      `json:"relationships"`
	Metadata      EmptyMetadata `json:"metadata"`
	Links         Links         `json:"links"`
}

// RevisionGUID returns the GUID of an app's revision.
func RevisionGUID(app string, number int64) string {
	return app + "-" + revision.FormatRevision(number)
}

// ForRevisions returns the CF v3 responses for the recorded revisions and the current revision of an app, newest first.
func ForRevisions(base string, app *korifiv1alpha1.CFApp) []AppRevision {
	var all []AppRevision
	for _, r := range KnownRevisions(app) {
		all = append(all, ForRevision(base, app, r))
	}
	return all
}

// ForRevision returns the CF v3 response for a revision of an app.
func ForRevision(base string, app *korifiv1alpha1.CFApp, r korifiv1alpha1.Restart) AppRevision {
	description := "Initial revision."
	if r.Cause != "" && r.Cause != korifiv1alpha1.CausedByCreation {
		description = revision.DescribeCause(r)
	}
	guid := RevisionGUID(app.Name, r.Revision)
	self := base + "/v3/revisions/" + guid
	return AppRevision{
		GUID: guid, Version: r.Revision, CreatedAt: FormatTime(r.At.Time), UpdatedAt: FormatTime(r.At.Time), Description: description,
		Deployable: r.Droplet != "", Droplet: Reference{GUID: r.Droplet},
		Links: Links{"self": {HRef: self}, "app": {HRef: base + "/v3/apps/" + app.Name}, "environment_variables": {HRef: self + "/environment_variables"}},
	}
}

// KnownRevisions returns the recorded revisions and the current revision of an app, newest first.
func KnownRevisions(app *korifiv1alpha1.CFApp) []korifiv1alpha1.Restart {
	known, current := revision.ListRestarts(app), revision.DescribeCurrent(app)
	// The controller may not have recorded the current revision yet.
	if len(known) == 0 || known[0].Revision < current.Revision {
		current.Droplet = cmp.Or(current.Droplet, currentDroplet(app))
		known = slices.Insert(known, 0, current)
	}
	return known[:min(len(known), revision.MaxRestarts)]
}

func currentDroplet(app *korifiv1alpha1.CFApp) string {
	if app.Spec.CurrentDropletRef == nil {
		return ""
	}
	return app.Spec.CurrentDropletRef.Name
}
