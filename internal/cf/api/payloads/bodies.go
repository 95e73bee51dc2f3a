// SPDX-License-Identifier: Apache-2.0

package payloads

// Relationship is a link to another object.
type Relationship struct {
	Data struct {
		GUID string `json:"guid"`
	} `json:"data"`
}

// App is the body of POST and PATCH of an app.
type App struct {
	Name          string `json:"name"`
	State         string `json:"state"`
	Relationships struct {
		Space Relationship `json:"space"`
	} `json:"relationships"`
	Lifecycle struct {
		Type string `json:"type"`
	} `json:"lifecycle"`
	EnvironmentVariables map[string]string `json:"environment_variables"`
}

// Process is the body of PATCH of a process; nil leaves a field as it is.
type Process struct {
	Command     *string      `json:"command"`
	HealthCheck *HealthCheck `json:"health_check"`
}

// HealthCheck is that of a process; nil leaves a field as it is.
type HealthCheck struct {
	Type *string `json:"type"`
	Data struct {
		Endpoint          *string `json:"endpoint"`
		Timeout           *int32  `json:"timeout"`
		InvocationTimeout *int32  `json:"invocation_timeout"`
	} `json:"data"`
}

// Scale is the body of actions/scale; nil leaves a field as it is.
type Scale struct {
	Instances *int32 `json:"instances"`
	MemoryMB  *int64 `json:"memory_in_mb"`
	DiskMB    *int64 `json:"disk_in_mb"`
}

// Package is the body of POST /v3/packages.
type Package struct {
	Type          string `json:"type"`
	Relationships struct {
		App Relationship `json:"app"`
	} `json:"relationships"`
	Data struct {
		Image    string `json:"image"`
		Username string `json:"username"`
	} `json:"data"`
}

// Build is the body of POST /v3/builds.
type Build struct {
	Package struct {
		GUID string `json:"guid"`
	} `json:"package"`
}

// Deployment is the body of POST /v3/deployments.
type Deployment struct {
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
	Options struct {
		MaxInFlight *int32 `json:"max_in_flight"`
		Canary      struct {
			Steps []struct {
				InstanceWeight int32 `json:"instance_weight"`
			} `json:"steps"`
		} `json:"canary"`
	} `json:"options"`
}

// Variables is the body of PATCH of an app's environment variables; nil takes one away.
type Variables struct {
	Var map[string]*string `json:"var"`
}

// Place is the body of POST of an org or a space.
type Place struct {
	Name          string `json:"name"`
	Relationships struct {
		Organization Relationship `json:"organization"`
	} `json:"relationships"`
}

// Role is the body of POST /v3/roles; users are meant by their name.
type Role struct {
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
