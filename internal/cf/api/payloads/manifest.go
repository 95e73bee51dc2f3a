// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// CheckAppName rejects a name that is empty or too long, or has characters that the schema of apps does not allow.
func CheckAppName(name string) error {
	if n := utf8.RuneCountInString(name); n > maxAppName {
		return apierrors.NewUnprocessableEntity(fmt.Sprintf("expected a name of at most %d characters, found %d; choose a shorter name", maxAppName, n))
	}
	isForeign := func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if name != "" && !strings.ContainsFunc(name, isForeign) {
		return nil
	}
	return apierrors.NewUnprocessableEntity("expected a name of letters, digits, dashes and underscores, found " + strconv.Quote(name) + "; choose another name")
}

// Manifest is a manifest in the form in which cf push sends it. Unknown fields are ignored with a warning.
type Manifest struct {
	Applications []ManifestApp `json:"applications"`
}

// ManifestApp is an app in a manifest. Its process fields apply to the web process.
type ManifestApp struct {
	Name   string `json:"name"`
	Docker *struct {
		Image string `json:"image"`
	} `json:"docker"`
	Env             map[string]json.RawMessage `json:"env"`
	ManifestProcess `json:",inline"`
	Processes       []ManifestProcess `json:"processes"`
	Routes          []ManifestRoute   `json:"routes"`
	// NoRoute unmaps all routes. RandomRoute and DefaultRoute map a route to an app without routes.
	NoRoute      bool      `json:"no-route"`
	RandomRoute  bool      `json:"random-route"`
	DefaultRoute bool      `json:"default-route"`
	Metadata     *Metadata `json:"metadata"`
	// Services are bound to the app. They remain bound if a later manifest omits them.
	Services []ManifestService `json:"services"`
	// Buildpacks and Stack are settings for the builder.
	Buildpacks []string `json:"buildpacks"`
	Stack      string   `json:"stack"`
	// parts holds all fields of the app, including ignored ones. processParts holds all fields of its processes.
	parts        map[string]json.RawMessage
	processParts []map[string]json.RawMessage
}

// ManifestProcess is a process in a manifest. Nil and empty fields leave the process unchanged.
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
	// Ports are the ports of an image that does not listen on $PORT. The first port becomes $PORT.
	Ports []int32 `json:"ports,omitempty"`
}

// ReadManifest reads a request body that contains a manifest.
func ReadManifest(body io.Reader) ([]byte, error) { return readBody(body, maxManifestBytes) }

// ParseManifest parses a manifest. It rejects the whole manifest if any part is invalid.
func ParseManifest(raw []byte, limits ProcessLimits) (Manifest, error) {
	if err := checkExpansion(raw); err != nil {
		return Manifest{}, err
	}
	// The conversion to JSON resolves anchors and merge keys, and reduces the number of value types.
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return Manifest{}, apierrors.NewMessageParseError("Request invalid due to parse error: " + err.Error())
	}
	var m Manifest
	var parts struct {
		Applications []map[string]json.RawMessage `json:"applications"`
	}
	for _, into := range []any{&m, &parts} {
		if err := explainParseError(json.Unmarshal(asJSON, into)); err != nil {
			return Manifest{}, err
		}
	}
	for i := range m.Applications {
		app := &m.Applications[i]
		if app.parts = parts.Applications[i]; app.parts["processes"] != nil {
			if err := explainParseError(json.Unmarshal(app.parts["processes"], &app.processParts)); err != nil {
				return Manifest{}, err
			}
		}
		app.Command = resetIfNull(app.parts, app.Command)
		// encoding/json also accepts the key Processes, which is not a manifest field, so the two lists may have
		// different lengths.
		for j := range min(len(app.Processes), len(app.processParts)) {
			app.Processes[j].Command = resetIfNull(app.processParts[j], app.Processes[j].Command)
		}
	}
	if len(m.Applications) == 0 {
		return Manifest{}, apierrors.NewUnprocessableEntity("expected at least one app under applications, found none; add an app")
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

// resetIfNull returns the command of an app or process. For cf push -c null, the client sends null. resetIfNull then
// returns "", which selects the image's command.
func resetIfNull(parts map[string]json.RawMessage, command *string) *string {
	if string(parts["command"]) == "null" {
		return new("")
	}
	return command
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
	if err := CheckAppName(a.Name); err != nil {
		return apierrors.NewUnprocessableEntity(about + err.Error())
	}
	var types []string
	for i, p := range a.AllProcesses() {
		// The first process is the web process from the app's own fields, whose type is always web.
		if i > 0 && (p.Type == "" || slices.Contains(types[1:], p.Type)) {
			return apierrors.NewUnprocessableEntity(about + "expected a different type for each process, found " + strconv.Quote(p.Type) + " at index " + strconv.Itoa(i-1))
		}
		types = append(types, p.Type)
		if err := p.validate(limits); err != nil {
			return apierrors.NewUnprocessableEntity(about + err.Error())
		}
	}
	if a.NoRoute && (len(a.Routes) > 0 || a.RandomRoute) || len(a.Routes) > maxManifestRoutes {
		return apierrors.NewUnprocessableEntity(about + "expected either no-route or at most " + strconv.Itoa(maxManifestRoutes) +
			" routes, found both or too many routes; remove no-route or some of the routes")
	}
	for _, route := range a.Routes {
		if err := route.Validate(); err != nil {
			return apierrors.NewUnprocessableEntity(about + err.Error())
		}
	}
	if err := validateServices(a.Services); err != nil {
		return apierrors.NewUnprocessableEntity(about + err.Error())
	}
	if name, isFound := FindReservedVariable(a.Env); isFound {
		return apierrors.NewUnprocessableEntity(about + "expected no reserved names under env, found '" + name + "'; choose another name")
	}
	if err := a.Metadata.Validate(); err != nil {
		return apierrors.NewUnprocessableEntity(about + err.Error())
	}
	return nil
}

// validate rejects values that the schema would reject only after other apps of the manifest have been applied.
func (p ManifestProcess) validate(limits ProcessLimits) error {
	_, wrongMemory := ParseMegabytes(p.Memory)
	_, wrongDisk := ParseMegabytes(p.DiskSize())
	if err := cmp.Or(wrongMemory, wrongDisk, limits.Check(ProcessScale{Instances: p.Instances})); err != nil {
		return err
	}
	for name, n := range map[string]*int32{"instances": p.Instances, "timeout": p.Timeout, "health-check-invocation-timeout": p.HealthCheckInvocationTimeout} {
		if n != nil && *n < 0 {
			return fmt.Errorf("expected %s of at least 0, found %d", name, *n)
		}
	}
	isNoPort := func(port int32) bool { return port < 1 || port > maxPort }
	switch {
	case len(p.Ports) > maxPorts || slices.ContainsFunc(p.Ports, isNoPort):
		return fmt.Errorf("expected at most %d ports from 1 to %d, found %d", maxPorts, maxPort, p.Ports)
	case p.Type != "" && len(validation.IsValidLabelValue(p.Type)) > 0:
		return fmt.Errorf("expected a process type such as worker, found %q", p.Type)
	case !slices.Contains([]string{"", "http", "port", "process"}, p.HealthCheckType):
		return fmt.Errorf("expected health-check-type to be http, port or process, found %q", p.HealthCheckType)
	case p.HealthCheckHTTPEndpoint != "" && p.HealthCheckHTTPEndpoint[0] != '/':
		return fmt.Errorf("expected health-check-http-endpoint to be a path such as /healthz, found %q; start the path with a slash", p.HealthCheckHTTPEndpoint)
	}
	return nil
}

// isSettableVariable reports whether an app may set the environment variable.
func isSettableVariable(name string) bool {
	return name != "" && name != "PORT" && !strings.HasPrefix(name, "VCAP_")
}

// FindReservedVariable returns the alphabetically first environment variable that an app may not set.
func FindReservedVariable[Value any](variables map[string]Value) (name string, isFound bool) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if !isSettableVariable(name) {
			return name, true
		}
	}
	return "", false
}

// AllProcesses returns the processes of an app: the web process from the app's own fields, followed by the processes in
// its list.
func (a ManifestApp) AllProcesses() []ManifestProcess {
	web := a.ManifestProcess
	web.Type = korifiv1alpha1.WebProcess
	return append([]ManifestProcess{web}, a.Processes...)
}

// Variables returns the app's environment variables as text. A nil value removes a variable.
func (a ManifestApp) Variables() map[string]*string {
	vars := map[string]*string{}
	for name, raw := range a.Env {
		// Strings are unquoted. Numbers, lists and objects remain JSON.
		value := string(raw)
		_ = json.Unmarshal(raw, &value)
		if vars[name] = &value; string(raw) == "null" {
			vars[name] = nil
		}
	}
	return vars
}

// DiskSize returns the disk quota from either spelling of the field.
func (p ManifestProcess) DiskSize() string { return cmp.Or(p.DiskQuotaOfClients, p.DiskQuota) }

// ParseMegabytes parses a size such as 256M or 1G, and returns it in MiB. It returns 0 for "".
func ParseMegabytes(size string) (int64, error) {
	if size == "" {
		return 0, nil
	}
	upper := strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(size)), "B")
	factors := map[byte]int64{'M': 1, 'G': 1 << 10, 'T': 1 << 20}
	// The last byte is read below, so an empty text becomes "?", which is rejected.
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
