// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"encoding/json"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// maxCredentials is the maximum size of a service's credentials. A Secret must have room for them and its other keys.
const maxCredentials = 512 << 10

// ServiceInstanceBody is the body of requests that create or change a service instance. An omitted field remains
// unchanged.
type ServiceInstanceBody struct {
	Type          string          `json:"type"`
	Name          string          `json:"name"`
	Credentials   json.RawMessage `json:"credentials"`
	Tags          []string        `json:"tags"`
	SyslogDrain   string          `json:"syslog_drain_url"`
	RouteService  string          `json:"route_service_url"`
	Metadata      *Metadata       `json:"metadata"`
	Relationships struct {
		Space Relationship `json:"space"`
	} `json:"relationships"`
}

// Validate rejects services and settings that Torpor does not implement, and invalid credentials.
func (s ServiceInstanceBody) Validate() error {
	var object map[string]json.RawMessage
	switch {
	case s.Type != "" && s.Type != "user-provided":
		return apierrors.NewUnprocessableEntity("expected the type user-provided, found " + s.Type + "; there are no service brokers: create a user-provided service with the credentials")
	case s.SyslogDrain != "" || s.RouteService != "":
		return apierrors.NewUnprocessableEntity("expected neither syslog_drain_url nor route_service_url: Torpor does not support them; leave both out")
	case len(s.Credentials) > maxCredentials || len(s.Credentials) > 0 && string(s.Credentials) != "null" && json.Unmarshal(s.Credentials, &object) != nil:
		return apierrors.NewUnprocessableEntity("expected credentials as a JSON object of at most 512 KiB; found another value")
	default:
		return s.Metadata.Validate()
	}
}

// BindingCreate is the body of a request that creates a service credential binding.
type BindingCreate struct {
	Type          string    `json:"type"`
	Name          string    `json:"name"`
	Metadata      *Metadata `json:"metadata"`
	Relationships struct {
		ServiceInstance Relationship `json:"service_instance"`
		App             Relationship `json:"app"`
	} `json:"relationships"`
}
