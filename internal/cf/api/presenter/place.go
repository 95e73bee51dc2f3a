// SPDX-License-Identifier: Apache-2.0

package presenter

import "time"

// Version is that of CF v3 which clients take this API for: from 3.211.0 on they ask for processes with their instances.
const Version = "3.211.0"

// Root is what a client asks first.
type Root struct {
	Links map[string]RootLink `json:"links"`
	// CFOnK8s tells clients to log in with a kubeconfig.
	CFOnK8s bool `json:"cf_on_k8s"`
}

// RootLink is a place, perhaps with a version.
type RootLink struct {
	HRef string   `json:"href"`
	Meta LinkMeta `json:"meta"`
}

// LinkMeta is the version behind a link.
type LinkMeta struct {
	Version string `json:"version,omitempty"`
}

// RootOf shows where everything is: at the API's own address.
func RootOf(base string) Root {
	return Root{CFOnK8s: true, Links: map[string]RootLink{
		"self": {HRef: base}, "login": {HRef: base}, "log_cache": {HRef: base},
		"cloud_controller_v3": {HRef: base + "/v3", Meta: LinkMeta{Version: Version}},
	}}
}

// Place is an org or a space of CF v3.
type Place struct {
	GUID          string           `json:"guid"`
	CreatedAt     string           `json:"created_at"`
	UpdatedAt     string           `json:"updated_at"`
	Name          string           `json:"name"`
	Suspended     *bool            `json:"suspended,omitempty"`
	Relationships map[string]ToOne `json:"relationships"`
	Metadata      Metadata         `json:"metadata"`
	Links         Links            `json:"links"`
}

// OrgOf shows an org.
func OrgOf(base, guid, name string, created time.Time) Place {
	return Place{
		GUID: guid, CreatedAt: Stamp(created), UpdatedAt: Stamp(created), Name: name, Suspended: new(false),
		Relationships: map[string]ToOne{"quota": {}},
		Links:         Links{"self": {HRef: base + "/v3/organizations/" + guid}},
	}
}

// SpaceOf shows a space.
func SpaceOf(base, guid, name, org string, created time.Time) Place {
	return Place{
		GUID: guid, CreatedAt: Stamp(created), UpdatedAt: Stamp(created), Name: name,
		Relationships: map[string]ToOne{"organization": To(org), "quota": {}},
		Links:         Links{"self": {HRef: base + "/v3/spaces/" + guid}, "organization": {HRef: base + "/v3/organizations/" + org}},
	}
}

// Job is work that goes on after its request.
type Job struct {
	GUID      string     `json:"guid"`
	Operation string     `json:"operation"`
	State     string     `json:"state"`
	Errors    []struct{} `json:"errors"`
	Warnings  []struct{} `json:"warnings"`
	CreatedAt string     `json:"created_at"`
	UpdatedAt string     `json:"updated_at"`
	Links     Links      `json:"links"`
}

// JobOf shows a job.
func JobOf(base, guid, operation string, done bool, now time.Time) Job {
	state := "PROCESSING"
	if done {
		state = "COMPLETE"
	}
	return Job{
		GUID: guid, Operation: operation, State: state, Errors: []struct{}{}, Warnings: []struct{}{},
		CreatedAt: Stamp(now), UpdatedAt: Stamp(now), Links: Links{"self": {HRef: base + "/v3/jobs/" + guid}},
	}
}

// Role is what somebody may in an org or a space.
type Role struct {
	GUID          string           `json:"guid"`
	CreatedAt     string           `json:"created_at"`
	UpdatedAt     string           `json:"updated_at"`
	Type          string           `json:"type"`
	Relationships map[string]ToOne `json:"relationships"`
	Links         Links            `json:"links"`
}

// Given is a role of a user in a place, by its GUID; Org is empty if the place is an org.
type Given struct{ GUID, Type, User, Org, Place string }

// RoleOf shows a role that was just given.
func RoleOf(base string, g Given, now time.Time) Role {
	r := Role{
		GUID: g.GUID, CreatedAt: Stamp(now), UpdatedAt: Stamp(now), Type: g.Type, Links: Links{"self": {HRef: base + "/v3/roles/" + g.GUID}},
		Relationships: map[string]ToOne{"user": To(g.User), "organization": To(g.Place), "space": {}},
	}
	if g.Org != "" {
		r.Relationships["organization"], r.Relationships["space"] = ToOne{}, To(g.Place)
	}
	return r
}
