// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// Version is the CF v3 version that the API reports. From version 3.211.0 on, clients request processes together with
// their instances.
const Version = "3.211.0"

// APIRoot is the response to a client's first request.
type APIRoot struct {
	Links map[string]RootLink `json:"links"`
	// CFOnK8s makes clients authenticate with a kubeconfig.
	CFOnK8s bool `json:"cf_on_k8s"`
}

// RootLink is the address of an API, with its version if it has one.
type RootLink struct {
	HRef string   `json:"href"`
	Meta LinkMeta `json:"meta"`
}

// LinkMeta holds the version of a linked API.
type LinkMeta struct {
	Version string `json:"version,omitempty"`
}

// ForRoot returns the addresses of all APIs that clients use.
func ForRoot(base string) APIRoot {
	// Clients follow these links. All of them point to this API, because there is no separate login or log server.
	return APIRoot{CFOnK8s: true, Links: map[string]RootLink{
		"self": {HRef: base}, "login": {HRef: base}, "log_cache": {HRef: base},
		"cloud_controller_v3": {HRef: base + "/v3", Meta: LinkMeta{Version: Version}},
	}}
}

// ForResources returns the response to GET /v3: the links to the resources of the API.
func ForResources(base string) map[string]Links {
	links := Links{"self": {HRef: base + "/v3"}}
	for _, resource := range []string{"apps", "builds", "deployments", "domains", "droplets", "organizations", "packages", "processes", "roles", "routes", "service_instances", "spaces", "tasks"} {
		links[resource] = Link{HRef: base + "/v3/" + resource}
	}
	return map[string]Links{"links": links}
}

// OrgOrSpaceResponse is an org or a space of CF v3.
type OrgOrSpaceResponse struct {
	Resource
	Name          string                  `json:"name"`
	Suspended     *bool                   `json:"suspended,omitempty"`
	Relationships map[string]Relationship `json:"relationships"`
	Metadata      Metadata                `json:"metadata"`
	Links         Links                   `json:"links"`
}

// ForOrg returns the CF v3 response for an org.
func ForOrg(base string, org repositories.OrgOrSpace) OrgOrSpaceResponse {
	return OrgOrSpaceResponse{
		Resource: newResource(org.GUID, org.Created), Name: org.Name, Suspended: new(false),
		Relationships: map[string]Relationship{"quota": RelationshipTo(OrgQuotaGUID)}, Metadata: ownMetadata(org.Labels, org.Annotations),
		Links: Links{"self": {HRef: base + "/v3/organizations/" + org.GUID}},
	}
}

// OrgQuotaGUID is the GUID and the name of the only quota. The cf client requests the quota of every org that it shows.
const OrgQuotaGUID = "unlimited"

// OrgQuotaResponse is a quota of CF v3. An absent limit means unlimited.
type OrgQuotaResponse struct {
	GUID     string   `json:"guid"`
	Name     string   `json:"name"`
	Apps     struct{} `json:"apps"`
	Services struct{} `json:"services"`
	Routes   struct{} `json:"routes"`
	Domains  struct{} `json:"domains"`
	Links    Links    `json:"links"`
}

// ForOrgQuota returns the CF v3 response for the only quota.
func ForOrgQuota(base string) OrgQuotaResponse {
	return OrgQuotaResponse{GUID: OrgQuotaGUID, Name: OrgQuotaGUID, Links: Links{"self": {HRef: base + "/v3/organization_quotas/" + OrgQuotaGUID}}}
}

// ForSpace returns the CF v3 response for a space.
func ForSpace(base string, space repositories.OrgOrSpace) OrgOrSpaceResponse {
	return OrgOrSpaceResponse{
		Resource: newResource(space.GUID, space.Created), Name: space.Name,
		Relationships: map[string]Relationship{"organization": RelationshipTo(space.Org), "quota": {}}, Metadata: ownMetadata(space.Labels, space.Annotations),
		Links: Links{"self": {HRef: base + "/v3/spaces/" + space.GUID}, "organization": {HRef: base + "/v3/organizations/" + space.Org}},
	}
}

// JobResponse is a job of CF v3, which tracks work that continues after its request.
type JobResponse struct {
	GUID      string     `json:"guid"`
	Operation string     `json:"operation"`
	State     string     `json:"state"`
	Errors    []struct{} `json:"errors"`
	Warnings  []struct{} `json:"warnings"`
	CreatedAt string     `json:"created_at"`
	UpdatedAt string     `json:"updated_at"`
	Links     Links      `json:"links"`
}

// ForJob returns the CF v3 response for a job.
func ForJob(base, guid, operation string, done bool, now time.Time) JobResponse {
	state := "PROCESSING"
	if done {
		state = "COMPLETE"
	}
	return JobResponse{
		GUID: guid, Operation: operation, State: state, Errors: []struct{}{}, Warnings: []struct{}{},
		CreatedAt: FormatTime(now), UpdatedAt: FormatTime(now), Links: Links{"self": {HRef: base + "/v3/jobs/" + guid}},
	}
}

// RoleResponse is a role in CF v3. A user has it in an org or a space.
type RoleResponse struct {
	Resource
	Type          string                  `json:"type"`
	Relationships map[string]Relationship `json:"relationships"`
	Links         Links                   `json:"links"`
}

// ForRole returns the CF v3 response for a role.
func ForRole(base string, g repositories.RoleAssignment) RoleResponse {
	r := RoleResponse{
		Resource: newResource(g.GUID, g.Created), Type: g.Type, Links: Links{"self": {HRef: base + "/v3/roles/" + g.GUID}},
		Relationships: map[string]Relationship{"user": RelationshipTo(g.User), "organization": RelationshipTo(g.In.GUID), "space": {}},
	}
	// A role belongs either to an org or to a space. The relationship to the other kind is null.
	if g.In.Org != "" {
		r.Relationships["organization"], r.Relationships["space"] = Relationship{}, RelationshipTo(g.In.GUID)
	}
	return r
}

// UserResponse is a user of CF v3, identified by the Kubernetes user name.
type UserResponse struct {
	GUID             string `json:"guid"`
	Username         string `json:"username"`
	PresentationName string `json:"presentation_name"`
	Origin           string `json:"origin"`
}

// ForUser returns the CF v3 response for a user. Every name counts as a user, because Kubernetes does not store users.
func ForUser(name string) UserResponse {
	return UserResponse{GUID: name, Username: name, PresentationName: name, Origin: "kubernetes"}
}
