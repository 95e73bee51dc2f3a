// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// ProcessResponse is a process of CF v3.
type ProcessResponse struct {
	Resource
	Version          string               `json:"version"`
	Type             string               `json:"type"`
	Command          *string              `json:"command"`
	Instances        int32                `json:"instances"`
	MemoryInMB       int64                `json:"memory_in_mb"`
	DiskInMB         int64                `json:"disk_in_mb"`
	LogRateLimit     int                  `json:"log_rate_limit_in_bytes_per_second"`
	HealthCheck      HealthCheck          `json:"health_check"`
	Relationships    ProcessRelationships `json:"relationships"`
	Metadata         Metadata             `json:"metadata"`
	Links            ProcessLinks         `json:"links"`
	ProcessInstances []ProcessInstance    `json:"process_instances,omitempty"`
}

// ProcessLinks holds the links of a process.
type ProcessLinks struct {
	Self  Link `json:"self"`
	App   Link `json:"app"`
	Stats Link `json:"stats"`
}

// ProcessRelationships holds the reference to the app of a process.
type ProcessRelationships struct {
	App Relationship `json:"app"`
}

// ProcessInstance describes an instance embedded in a process.
type ProcessInstance struct {
	Index int32  `json:"index"`
	State string `json:"state"`
	// Since is the number of seconds that the instance has been in its current state.
	Since int64 `json:"since"`
}

// HealthCheck is the health check of a process.
type HealthCheck struct {
	Type string          `json:"type"`
	Data HealthCheckData `json:"data"`
}

// HealthCheckData holds the settings of a health check. Unset timeouts are null, and an unset endpoint is omitted.
type HealthCheckData struct {
	Timeout           *int32  `json:"timeout"`
	InvocationTimeout *int32  `json:"invocation_timeout"`
	Endpoint          *string `json:"endpoint,omitempty"`
}

// ForProcess returns the CF v3 response for a process.
func ForProcess(base string, p *korifiv1alpha1.CFProcess) ProcessResponse {
	self := base + "/v3/processes/" + p.Name
	command := p.Spec.Command
	if command == "" {
		command = p.Spec.DetectedCommand
	}
	shown := ProcessResponse{
		Resource: newUpdatedResource(p), Version: p.Name, Type: p.Spec.ProcessType,
		Instances: process.DesiredInstances(p), MemoryInMB: p.Spec.MemoryMB, DiskInMB: p.Spec.DiskQuotaMB, LogRateLimit: -1,
		HealthCheck:   healthCheckOf(p),
		Relationships: ProcessRelationships{App: RelationshipTo(p.Spec.AppRef.Name)},
		Metadata:      metadataOf(p),
		Links: ProcessLinks{
			Self: Link{HRef: self}, App: Link{HRef: base + "/v3/apps/" + p.Spec.AppRef.Name}, Stats: Link{HRef: self + "/stats"},
		},
	}
	if command != "" {
		shown.Command = &command
	}
	return shown
}

// WithInstances returns the process with the states of its instances.
func (p ProcessResponse) WithInstances(all []InstanceReport, now time.Time) ProcessResponse {
	for _, i := range all {
		row := ProcessInstance{Index: i.Index, State: string(i.State)}
		if !i.Since.IsZero() {
			// The clock of the node may be ahead of the API's clock.
			row.Since = max(0, int64(now.Sub(i.Since).Seconds()))
		}
		p.ProcessInstances = append(p.ProcessInstances, row)
	}
	return p
}

func healthCheckOf(p *korifiv1alpha1.CFProcess) HealthCheck {
	check := p.Spec.HealthCheck
	kind := check.Type
	// By default, CF checks the port of web processes, and only the process itself for other types.
	switch {
	case kind == "" && p.Spec.ProcessType == korifiv1alpha1.WebProcess:
		kind = korifiv1alpha1.PortHealthCheck
	case kind == "":
		kind = korifiv1alpha1.ProcessHealthCheck
	}
	h := HealthCheck{Type: string(kind)}
	if check.Data.TimeoutSeconds > 0 {
		h.Data.Timeout = new(check.Data.TimeoutSeconds)
	}
	if check.Data.InvocationTimeoutSeconds > 0 {
		h.Data.InvocationTimeout = new(check.Data.InvocationTimeoutSeconds)
	}
	if check.Data.HTTPEndpoint != "" && kind == korifiv1alpha1.HTTPHealthCheck {
		h.Data.Endpoint = new(check.Data.HTTPEndpoint)
	}
	return h
}
