// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// DomainCreate is the body of POST /v3/domains.
type DomainCreate struct {
	Name          string    `json:"name"`
	Internal      bool      `json:"internal"`
	Metadata      *Metadata `json:"metadata"`
	Relationships struct {
		Organization *Relationship `json:"organization"`
	} `json:"relationships"`
}

// Validate rejects domains without a name, internal domains and domains that belong to an org, because all domains are
// shared.
func (d DomainCreate) Validate() error {
	switch {
	case d.Name == "":
		return apierrors.NewUnprocessableEntity("expected the name of a domain, found none; set name")
	case d.Internal, d.Relationships.Organization != nil:
		return apierrors.NewUnprocessableEntity("expected a shared domain, found an internal one or that of an organization; Torpor has shared domains only")
	default:
		return d.Metadata.Validate()
	}
}

// RouteCreate is the body of POST /v3/routes.
type RouteCreate struct {
	Host          string    `json:"host"`
	Path          string    `json:"path"`
	Port          *int32    `json:"port"`
	Metadata      *Metadata `json:"metadata"`
	Relationships struct {
		Space  Relationship `json:"space"`
		Domain Relationship `json:"domain"`
	} `json:"relationships"`
}

// Destinations is the body of requests that add or replace a route's destinations.
type Destinations struct {
	Destinations []Destination `json:"destinations"`
}

// Destination is an app that serves a route.
type Destination struct {
	App struct {
		GUID    string `json:"guid"`
		Process struct {
			Type string `json:"type"`
		} `json:"process"`
	} `json:"app"`
	Port     int32   `json:"port"`
	Weight   *int32  `json:"weight"`
	Protocol *string `json:"protocol"`
}

// Validate rejects destinations with invalid ports or with features that Torpor does not implement.
func (d Destination) Validate() error {
	switch {
	case d.Weight != nil:
		return apierrors.NewUnprocessableEntity("expected no weight, because requests are distributed in proportion to instances; remove the weight, and scale the apps")
	case d.Protocol != nil && *d.Protocol != korifiv1alpha1.HTTP1DestinationProtocol:
		return apierrors.NewUnprocessableEntity("expected the protocol http1, found " + *d.Protocol + "; remove the protocol")
	case d.Port < 0 || d.Port > 65535:
		return apierrors.NewUnprocessableEntity(
			"expected a port from 1 to 65535; leave the port out to use the app's own port")
	default:
		return nil
	}
}

// ProcessType returns the process type of the destination, by default web.
func (d Destination) ProcessType() string {
	return cmp.Or(d.App.Process.Type, korifiv1alpha1.WebProcess)
}

// ManifestRoute is a route in a manifest.
type ManifestRoute struct {
	Route    string `json:"route"`
	Protocol string `json:"protocol"`
	// Options are ignored with a warning.
	Options map[string]json.RawMessage `json:"options"`
}

// Validate rejects routes with features that Torpor does not implement, and paths that the schema of routes would reject
// only after other apps of the manifest have been applied.
func (r ManifestRoute) Validate() error {
	if r.Protocol != "" && r.Protocol != korifiv1alpha1.HTTP1DestinationProtocol {
		return fmt.Errorf("expected the protocol http1 of the route %s, found %q; remove the protocol", r.Route, r.Protocol)
	}
	if _, path := r.Split(); utf8.RuneCountInString(path) > maxPath {
		return fmt.Errorf("expected a path of at most %d characters, found %d in the route %s; choose a shorter path", maxPath, utf8.RuneCountInString(path), r.Route)
	}
	return nil
}

// Split returns the host name and the path of a route such as shop.apps.example.com/cart.
func (r ManifestRoute) Split() (name, path string) {
	name, path, found := strings.Cut(r.Route, "/")
	if found {
		path = "/" + path
	}
	return strings.ToLower(name), path
}
