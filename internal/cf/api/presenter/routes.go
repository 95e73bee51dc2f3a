// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/route"
)

// DomainResponse is a domain of CF v3.
type DomainResponse struct {
	Resource
	Name               string         `json:"name"`
	Internal           bool           `json:"internal"`
	RouterGroup        *Reference     `json:"router_group"`
	SupportedProtocols []string       `json:"supported_protocols"`
	Relationships      map[string]any `json:"relationships"`
	Metadata           Metadata       `json:"metadata"`
	Links              Links          `json:"links"`
}

// ForDomain returns the CF v3 response for a domain, which all orgs share.
func ForDomain(base string, domain *korifiv1alpha1.CFDomain) DomainResponse {
	self := base + "/v3/domains/" + domain.Name
	return DomainResponse{
		Resource: newResource(domain.Name, domain.CreationTimestamp.Time), Name: domain.Spec.Name, SupportedProtocols: []string{string(korifiv1alpha1.HTTPRouteProtocol)},
		Relationships: map[string]any{"organization": Relationship{}, "shared_organizations": map[string][]Reference{"data": {}}},
		Metadata:      metadataOf(domain),
		Links:         Links{"self": {HRef: self}, "route_reservations": {HRef: self + "/route_reservations"}},
	}
}

// RouteResponse is a route of CF v3.
type RouteResponse struct {
	Resource
	Protocol      string                  `json:"protocol"`
	Host          string                  `json:"host"`
	Path          string                  `json:"path"`
	Port          *int32                  `json:"port"`
	URL           string                  `json:"url"`
	Destinations  []DestinationResponse   `json:"destinations"`
	Relationships map[string]Relationship `json:"relationships"`
	Metadata      Metadata                `json:"metadata"`
	Links         Links                   `json:"links"`
}

// DestinationResponse is an app that serves a route.
type DestinationResponse struct {
	GUID     string         `json:"guid"`
	App      DestinationApp `json:"app"`
	Weight   *int32         `json:"weight"`
	Port     int32          `json:"port"`
	Protocol string         `json:"protocol"`
}

// DestinationApp identifies an app and one of its processes.
type DestinationApp struct {
	GUID    string                   `json:"guid"`
	Process DestinationProcessOfType `json:"process"`
}

// DestinationProcessOfType identifies a process by its type.
type DestinationProcessOfType struct {
	Type string `json:"type"`
}

// RouteWithDomain is a route with its domain. The domain is nil if it was deleted.
type RouteWithDomain struct {
	Route  *korifiv1alpha1.CFRoute
	Domain *korifiv1alpha1.CFDomain
}

// FormatURL returns the URL of a route without a scheme, such as shop.example.com/cart. If the domain was deleted, it
// returns the URI in the route's status, which may be empty.
func (r RouteWithDomain) FormatURL() string {
	if r.Domain == nil {
		return r.Route.Status.URI
	}
	return route.FQDN(r.Route.Spec, r.Domain) + r.Route.Spec.Path
}

// ForRoute returns the CF v3 response for a route.
func ForRoute(base string, r RouteWithDomain) RouteResponse {
	self, spec := base+"/v3/routes/"+r.Route.Name, r.Route.Spec
	return RouteResponse{
		Resource: newResource(r.Route.Name, r.Route.CreationTimestamp.Time), Protocol: string(korifiv1alpha1.HTTPRouteProtocol),
		Host: route.HostOf(spec), Path: spec.Path, URL: r.FormatURL(), Destinations: destinationsOf(r.Route),
		Relationships: map[string]Relationship{"space": RelationshipTo(r.Route.Namespace), "domain": RelationshipTo(spec.DomainRef.Name)},
		Metadata:      metadataOf(r.Route),
		Links: Links{
			"self": {HRef: self}, "space": {HRef: base + "/v3/spaces/" + r.Route.Namespace},
			"domain": {HRef: base + "/v3/domains/" + spec.DomainRef.Name}, "destinations": {HRef: self + "/destinations"},
		},
	}
}

// DestinationsResponse is the list of a route's destinations.
type DestinationsResponse struct {
	Destinations []DestinationResponse `json:"destinations"`
	Links        Links                 `json:"links"`
}

// ForDestinations returns the CF v3 response for the destinations of a route.
func ForDestinations(base string, r *korifiv1alpha1.CFRoute) DestinationsResponse {
	self := base + "/v3/routes/" + r.Name
	return DestinationsResponse{Destinations: destinationsOf(r), Links: Links{"self": {HRef: self + "/destinations"}, "route": {HRef: self}}}
}

func destinationsOf(r *korifiv1alpha1.CFRoute) []DestinationResponse {
	all := []DestinationResponse{}
	for _, d := range r.Spec.Destinations {
		all = append(all, DestinationResponse{
			GUID: d.GUID, Port: cmp.Or(d.Port, process.DefaultPort), Protocol: cmp.Or(d.Protocol, korifiv1alpha1.HTTP1DestinationProtocol),
			App: DestinationApp{GUID: d.AppRef.Name, Process: DestinationProcessOfType{Type: d.ProcessType}},
		})
	}
	return all
}
