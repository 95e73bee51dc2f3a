// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// LastOperation is the last operation of a service or a binding. It always reports a successful creation, because
// changes are complete before the response.
type LastOperation struct {
	Type        string `json:"type"`
	State       string `json:"state"`
	Description string `json:"description"`
	CreatedAt   string `json:"created_at"`
	UpdatedAt   string `json:"updated_at"`
}

func succeededAt(at time.Time) LastOperation {
	return LastOperation{Type: "create", State: "succeeded", Description: "Operation succeeded", CreatedAt: FormatTime(at), UpdatedAt: FormatTime(at)}
}

// ServiceInstanceResponse is a service instance of CF v3.
type ServiceInstanceResponse struct {
	Resource
	Name          string                  `json:"name"`
	Type          string                  `json:"type"`
	Tags          []string                `json:"tags"`
	SyslogDrain   *string                 `json:"syslog_drain_url"`
	RouteService  *string                 `json:"route_service_url"`
	LastOperation LastOperation           `json:"last_operation"`
	Relationships map[string]Relationship `json:"relationships"`
	Metadata      Metadata                `json:"metadata"`
	Links         Links                   `json:"links"`
}

// ForServiceInstance returns the CF v3 response for a service, without the service's credentials.
func ForServiceInstance(base string, s *korifiv1alpha1.CFServiceInstance) ServiceInstanceResponse {
	self := base + "/v3/service_instances/" + s.Name
	return ServiceInstanceResponse{
		Resource: newResource(s.Name, s.CreationTimestamp.Time), Name: s.Spec.DisplayName, Type: string(s.Spec.Type), Tags: append([]string{}, s.Spec.Tags...),
		LastOperation: succeededAt(s.CreationTimestamp.Time), Relationships: map[string]Relationship{"space": RelationshipTo(s.Namespace)}, Metadata: metadataOf(s),
		Links: Links{
			"self": {HRef: self}, "space": {HRef: base + "/v3/spaces/" + s.Namespace}, "credentials": {HRef: self + "/credentials"},
			"service_credential_bindings": {HRef: base + "/v3/service_credential_bindings?service_instance_guids=" + s.Name},
		},
	}
}

// BindingResponse is a service credential binding of CF v3.
type BindingResponse struct {
	Resource
	Name          *string                 `json:"name"`
	Type          string                  `json:"type"`
	LastOperation LastOperation           `json:"last_operation"`
	Relationships map[string]Relationship `json:"relationships"`
	Metadata      Metadata                `json:"metadata"`
	Links         Links                   `json:"links"`
}

// ForBinding returns the CF v3 response for the binding of a service to an app.
func ForBinding(base string, b *korifiv1alpha1.CFServiceBinding) BindingResponse {
	self := base + "/v3/service_credential_bindings/" + b.Name
	shown := BindingResponse{
		Resource: newResource(b.Name, b.CreationTimestamp.Time), Type: "app", LastOperation: succeededAt(b.CreationTimestamp.Time),
		Relationships: map[string]Relationship{"app": RelationshipTo(b.Spec.AppRef.Name), "service_instance": RelationshipTo(b.Spec.Service.Name)},
		Metadata:      metadataOf(b),
		Links: Links{
			"self": {HRef: self}, "details": {HRef: self + "/details"}, "app": {HRef: base + "/v3/apps/" + b.Spec.AppRef.Name},
			"service_instance": {HRef: base + "/v3/service_instances/" + b.Spec.Service.Name},
		},
	}
	if b.Spec.DisplayName != "" {
		shown.Name = new(b.Spec.DisplayName)
	}
	return shown
}
