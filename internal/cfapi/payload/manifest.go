// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/cfapi/fault"
)

// Manifest is what cf push sends of a manifest. Routes and services are read over: Torpor has none.
type Manifest struct {
	Applications []ManifestApp `json:"applications"`
}

// ManifestApp is one app of a manifest; what it says of a process is for web.
type ManifestApp struct {
	Name   string `json:"name"`
	Docker *struct {
		Image    string `json:"image"`
		Username string `json:"username"`
	} `json:"docker"`
	Env             map[string]any `json:"env"`
	ManifestProcess `json:",inline"`
	Processes       []ManifestProcess `json:"processes"`
}

// ManifestProcess is one process of a manifest; nil and empty leave a field as it is.
type ManifestProcess struct {
	Type                         string  `json:"type"`
	Instances                    *int32  `json:"instances"`
	Memory                       string  `json:"memory"`
	DiskQuota                    string  `json:"disk_quota"`
	Command                      *string `json:"command"`
	HealthCheckType              string  `json:"health-check-type"`
	HealthCheckHTTPEndpoint      string  `json:"health-check-http-endpoint"`
	HealthCheckInvocationTimeout *int32  `json:"health-check-invocation-timeout"`
	Timeout                      *int32  `json:"timeout"`
}

// ManifestOf reads a manifest.
func ManifestOf(body io.Reader) (Manifest, error) {
	raw, err := all(body)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := yaml.Unmarshal(raw, &m); err != nil {
		return Manifest{}, fault.BadBody("Request invalid due to parse error: " + err.Error())
	}
	for _, app := range m.Applications {
		if app.Name == "" {
			return Manifest{}, fault.Unprocessable("For application at index 0: Name must not be empty")
		}
		if app.Docker != nil && app.Docker.Username != "" {
			return Manifest{}, fault.Unprocessable("For application '" + app.Name + "': expected no docker.username, because registries are let in by image pull secrets; leave it out and ask the platform team for one")
		}
	}
	return m, nil
}

// Variables are the app's environment as text.
func (a ManifestApp) Variables() map[string]string {
	vars := map[string]string{}
	for name, value := range a.Env {
		vars[name] = fmt.Sprint(value)
	}
	return vars
}

// MB reads a size such as 256M or 1G in MiB; 0 if there is none.
func MB(size string) (int64, error) {
	if size == "" {
		return 0, nil
	}
	upper := strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(size)), "B")
	factors := map[byte]int64{'M': 1, 'G': 1 << 10, 'T': 1 << 20}
	factor, ok := factors[upper[max(0, len(upper)-1)]]
	n, err := strconv.ParseInt(upper[:max(0, len(upper)-1)], 10, 64)
	if !ok || err != nil || n < 1 || n > 1<<30 {
		return 0, fault.Unprocessable("expected a size such as 256M or 1G, found " + strconv.Quote(size))
	}
	return n * factor, nil
}
