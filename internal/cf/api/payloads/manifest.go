// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// Manifest is a manifest as cf push sends it. Fields that Torpor does not know are ignored.
type Manifest struct {
	Applications []ManifestApp `json:"applications"`
}

// ManifestApp is one app of a manifest; fields of a process beside its name are those of web.
type ManifestApp struct {
	Name   string `json:"name"`
	Docker *struct {
		Image    string `json:"image"`
		Username string `json:"username"`
	} `json:"docker"`
	Env             map[string]json.RawMessage `json:"env"`
	ManifestProcess `json:",inline"`
	Processes       []ManifestProcess `json:"processes"`
	Routes          []ManifestRoute   `json:"routes"`
	// NoRoute takes all addresses away; RandomRoute and DefaultRoute give one to an app that has none.
	NoRoute      bool `json:"no-route"`
	RandomRoute  bool `json:"random-route"`
	DefaultRoute bool `json:"default-route"`
	// These parts are ignored, with a warning.
	Services json.RawMessage `json:"services"`
	Sidecars json.RawMessage `json:"sidecars"`
}

// ManifestProcess is one process of a manifest; nil and empty leave a field as it is.
type ManifestProcess struct {
	Type                         string  `json:"type,omitempty"`
	Instances                    *int32  `json:"instances,omitempty"`
	Memory                       string  `json:"memory,omitempty"`
	DiskQuota                    string  `json:"disk_quota,omitempty"`
	DiskQuotaOfClients           string  `json:"disk-quota,omitempty"`
	Command                      *string `json:"command,omitempty"`
	HealthCheckType              string  `json:"health-check-type,omitempty"`
	HealthCheckHTTPEndpoint      string  `json:"health-check-http-endpoint,omitempty"`
	HealthCheckInvocationTimeout *int32  `json:"health-check-invocation-timeout,omitempty"`
	Timeout                      *int32  `json:"timeout,omitempty"`
}

// ReadManifest reads the body of a request with a manifest.
func ReadManifest(body io.Reader) ([]byte, error) { return readBody(body, maxManifestBytes) }

// ParseManifest refuses a manifest as a whole if a part of it makes no sense.
func ParseManifest(raw []byte, limits ProcessLimits) (Manifest, error) {
	if err := checkExpansion(raw); err != nil {
		return Manifest{}, err
	}
	// As JSON the manifest has its anchors and merges resolved, and one set of types.
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return Manifest{}, apierrors.NewMessageParseError("Request invalid due to parse error: " + err.Error())
	}
	var m Manifest
	if err := explainParseError(json.Unmarshal(asJSON, &m)); err != nil {
		return Manifest{}, err
	}
	if len(m.Applications) == 0 {
		return Manifest{}, apierrors.NewUnprocessableEntity("expected at least one app under applications, found none; name one")
	}
	if err := m.checkCounts(); err != nil {
		return Manifest{}, err
	}
	for i := range m.Applications {
		if err := m.Applications[i].validate(i, limits); err != nil {
			return Manifest{}, err
		}
	}
	return m, nil
}

func (m Manifest) checkCounts() error {
	processes := 0
	for i := range m.Applications {
		processes += 1 + len(m.Applications[i].Processes)
	}
	if len(m.Applications) <= maxManifestApps && processes <= maxManifestProcesses {
		return nil
	}
	return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected at most %d apps and %d processes in a manifest, found %d and %d; send several manifests",
		maxManifestApps, maxManifestProcesses, len(m.Applications), processes))
}

func (a ManifestApp) validate(index int, limits ProcessLimits) error {
	if a.Name == "" {
		return apierrors.NewUnprocessableEntity("For application at index " + strconv.Itoa(index) + ": Name must not be empty")
	}
	about := "For application '" + a.Name + "': "
	if a.Docker != nil && a.Docker.Username != "" {
		return apierrors.NewUnprocessableEntity(about + "expected no docker.username, because registries are let in by image pull secrets; leave it out and ask the platform team for one")
	}
	var types []string
	for i, p := range a.AllProcesses() {
		// The first process is web, which has its type from the app.
		if i > 0 && (p.Type == "" || slices.Contains(types[1:], p.Type)) {
			return apierrors.NewUnprocessableEntity(about + "expected a type of its own for each process, found " + strconv.Quote(p.Type) + " at index " + strconv.Itoa(i-1))
		}
		types = append(types, p.Type)
		_, wrongMemory := ParseMegabytes(p.Memory)
		_, wrongDisk := ParseMegabytes(p.DiskSize())
		if err := cmp.Or(wrongMemory, wrongDisk, limits.Check(ProcessScale{Instances: p.Instances})); err != nil {
			return apierrors.NewUnprocessableEntity(about + err.Error())
		}
	}
	if a.NoRoute && (len(a.Routes) > 0 || a.RandomRoute) || len(a.Routes) > maxManifestRoutes {
		return apierrors.NewUnprocessableEntity(about + "expected no-route or at most " + strconv.Itoa(maxManifestRoutes) + " routes, found both or more; choose one")
	}
	for name := range a.Env {
		if !IsSettableVariable(name) {
			return apierrors.NewUnprocessableEntity(about + "expected names of your own under env, found '" + name + "'; choose another")
		}
	}
	return nil
}

// IsSettableVariable reports whether an app may have an environment variable of this name.
func IsSettableVariable(name string) bool {
	return name != "" && name != "PORT" && !strings.HasPrefix(name, "VCAP_")
}

// AllProcesses returns the processes of an app: first web as the app itself describes it, then those of its list.
func (a ManifestApp) AllProcesses() []ManifestProcess {
	web := a.ManifestProcess
	web.Type = korifiv1alpha1.WebProcess
	return append([]ManifestProcess{web}, a.Processes...)
}

// Variables returns the app's environment as text; nil removes a variable.
func (a ManifestApp) Variables() map[string]*string {
	vars := map[string]*string{}
	for name, raw := range a.Env {
		// Text loses its quotes; a number, a list or an object stays as its JSON.
		value := string(raw)
		_ = json.Unmarshal(raw, &value)
		if vars[name] = &value; string(raw) == "null" {
			vars[name] = nil
		}
	}
	return vars
}

// IgnoredParts returns a warning for each part of an app that was ignored.
func (a ManifestApp) IgnoredParts() []string {
	var all []string
	for _, part := range []struct {
		name, instead string
		is            json.RawMessage
	}{
		{"services", "hand over credentials in the environment", a.Services},
		{"sidecars", "make a process of each", a.Sidecars},
	} {
		if is := string(part.is); is != "" && is != "null" && is != "false" && is != "[]" {
			all = append(all, fmt.Sprintf("App '%s': %s of the manifest was read over; %s.", a.Name, part.name, part.instead))
		}
	}
	return all
}

// DiskSize returns the disk quota, in whichever way it is written.
func (p ManifestProcess) DiskSize() string { return cmp.Or(p.DiskQuotaOfClients, p.DiskQuota) }

// ParseMegabytes reads a size such as 256M or 1G in MiB; 0 if there is none.
func ParseMegabytes(size string) (int64, error) {
	if size == "" {
		return 0, nil
	}
	upper := strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(size)), "B")
	factors := map[byte]int64{'M': 1, 'G': 1 << 10, 'T': 1 << 20}
	// A unit without a number is refused below, where the last byte is looked at.
	if upper == "" {
		upper = "?"
	}
	last := len(upper) - 1
	n, err := strconv.ParseInt(upper[:last], 10, 64)
	if factor := factors[upper[last]]; factor > 0 && err == nil && n >= 1 && n <= 1<<30 {
		return n * factor, checkSize("a size", n*factor, korifiv1alpha1.MaxMegabytes, "M")
	}
	return 0, apierrors.NewUnprocessableEntity("expected a size such as 256M or 1G, found " + strconv.Quote(size))
}
