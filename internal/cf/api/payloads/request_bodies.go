// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"encoding/json"
	"errors"
	"fmt"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// Relationship is a reference to another object.
type Relationship struct {
	Data struct {
		GUID string `json:"guid"`
	} `json:"data"`
}

// AppBody is the body of requests that create or change an app.
type AppBody struct {
	Name          string `json:"name"`
	State         string `json:"state"`
	Relationships struct {
		Space Relationship `json:"space"`
	} `json:"relationships"`
	Lifecycle struct {
		Type string `json:"type"`
		Data struct {
			Buildpacks []string `json:"buildpacks"`
			Stack      string   `json:"stack"`
		} `json:"data"`
	} `json:"lifecycle"`
	EnvironmentVariables map[string]string `json:"environment_variables"`
	Metadata             *Metadata         `json:"metadata"`
}

// ProcessPatch is the body of a request that changes a process. A nil field remains unchanged.
type ProcessPatch struct {
	Command     *string      `json:"command"`
	HealthCheck *HealthCheck `json:"health_check"`
	// ReadinessHealthCheck is only accepted with the type process.
	ReadinessHealthCheck *HealthCheck `json:"readiness_health_check"`
	Metadata             *Metadata    `json:"metadata"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *ProcessPatch) UnmarshalJSON(raw []byte) error {
	type withoutMethods ProcessPatch
	var parts map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(raw, (*withoutMethods)(p)), json.Unmarshal(raw, &parts)); err != nil {
		return err
	}
	p.Command = resetIfNull(parts, p.Command)
	return nil
}

// HealthCheck is the health check of a process. A nil field remains unchanged.
type HealthCheck struct {
	Type *string `json:"type"`
	Data struct {
		Endpoint          *string `json:"endpoint"`
		Timeout           *int32  `json:"timeout"`
		InvocationTimeout *int32  `json:"invocation_timeout"`
	} `json:"data"`
}

// ProcessScale is the request body of actions/scale. A nil field remains unchanged.
type ProcessScale struct {
	Instances *int32 `json:"instances"`
	MemoryMB  *int64 `json:"memory_in_mb"`
	DiskMB    *int64 `json:"disk_in_mb"`
	// LogRateLimit is only accepted with the value -1, which means no limit.
	LogRateLimit *int64 `json:"log_rate_limit_in_bytes_per_second"`
}

// ProcessLimits holds the operator's limits for processes.
type ProcessLimits struct{ MaxInstances int32 }

// Check rejects values above the limits, and limits of the log rate. It ignores nil fields.
func (l ProcessLimits) Check(wanted ProcessScale) error {
	if wanted.Instances != nil {
		if err := checkSize("instances", int64(*wanted.Instances), int64(l.MaxInstances), ""); err != nil {
			return err
		}
	}
	if l := wanted.LogRateLimit; l != nil && *l != -1 {
		return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected no limit of the log rate, because none is enforced; found %d; use -1, or omit the field", *l))
	}
	for name, size := range map[string]*int64{"memory_in_mb": wanted.MemoryMB, "disk_in_mb": wanted.DiskMB} {
		if size == nil {
			continue
		}
		if err := checkSize(name, *size, korifiv1alpha1.MaxMegabytes, ""); err != nil {
			return err
		}
	}
	return nil
}

func checkSize(name string, found, limit int64, unit string) error {
	if found <= limit {
		return nil
	}
	return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected %s of at most %d%s, found %d%s; request less, or ask the platform team for a higher limit", name, limit, unit, found, unit))
}

// PackageCreate is the body of POST /v3/packages.
type PackageCreate struct {
	Type          string `json:"type"`
	Relationships struct {
		App Relationship `json:"app"`
	} `json:"relationships"`
	Data struct {
		Image    string `json:"image"`
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"data"`
	Metadata *Metadata `json:"metadata"`
}

// BuildCreate is the body of POST /v3/builds.
type BuildCreate struct {
	Package struct {
		GUID string `json:"guid"`
	} `json:"package"`
}

// DeploymentCreate is the body of POST /v3/deployments.
type DeploymentCreate struct {
	Strategy      string `json:"strategy"`
	Relationships struct {
		App Relationship `json:"app"`
	} `json:"relationships"`
	Droplet struct {
		GUID string `json:"guid"`
	} `json:"droplet"`
	Revision struct {
		GUID string `json:"guid"`
	} `json:"revision"`
	Metadata *Metadata `json:"metadata"`
	Options  struct {
		MaxInFlight *int32 `json:"max_in_flight"`
		// WebInstances and ProcessScale scale the web process.
		WebInstances *int32 `json:"web_instances"`
		ProcessScale
		Canary struct {
			Steps []struct {
				InstanceWeight int32 `json:"instance_weight"`
			} `json:"steps"`
		} `json:"canary"`
	} `json:"options"`
}

// EnvVarsPatch is the body of a request that changes an app's environment variables. A nil value removes a variable.
type EnvVarsPatch struct {
	Var map[string]*string `json:"var"`
}

// OrgOrSpaceBody is the body of requests that create or change an org or a space.
type OrgOrSpaceBody struct {
	Name          string    `json:"name"`
	Metadata      *Metadata `json:"metadata"`
	Relationships struct {
		Organization Relationship `json:"organization"`
	} `json:"relationships"`
}

// RoleCreate is the body of POST /v3/roles. It identifies the user by name.
type RoleCreate struct {
	Type          string `json:"type"`
	Relationships struct {
		User struct {
			Data struct {
				Username string `json:"username"`
				GUID     string `json:"guid"`
			} `json:"data"`
		} `json:"user"`
		Organization Relationship `json:"organization"`
		Space        Relationship `json:"space"`
	} `json:"relationships"`
}
