// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// ManifestDiff lists the changes that a manifest would make.
type ManifestDiff struct {
	Diff []ManifestDifference `json:"diff"`
}

// ManifestDifference is a field that would change. Op is add or replace. Was is omitted for a new value.
type ManifestDifference struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Was   any    `json:"was,omitempty"`
	Value any    `json:"value"`
}

// AppState is the state of an app before a manifest is applied. App is nil if the app does not exist.
type AppState struct {
	App       *korifiv1alpha1.CFApp
	Processes []*korifiv1alpha1.CFProcess
	Variables map[string]string
}

// ForManifestDiff returns the differences between an app in a manifest and the app's current state.
func ForManifestDiff(index int, wanted payloads.ManifestApp, now AppState) []ManifestDifference {
	at := fmt.Sprintf("/applications/%d", index)
	var all []ManifestDifference
	if now.App == nil {
		all = append(all, ManifestDifference{Op: "add", Path: at + "/name", Value: wanted.Name})
	}
	for i, p := range wanted.AllProcesses() {
		// The first process is the web process, whose fields are those of the app itself.
		path := at
		if i > 0 {
			path = fmt.Sprintf("%s/processes/%d", at, i-1)
		}
		all = append(all, compareFields(path, manifestFields(p), manifestFields(manifestProcessOf(now.Processes, p.Type)))...)
	}
	was, value := map[string]any{}, map[string]any{}
	for name, text := range now.Variables {
		was[name] = text
	}
	for name, text := range wanted.Variables() {
		if text != nil {
			value[name] = *text
		}
	}
	return append(all, compareFields(at+"/env", value, was)...)
}

// ForAppManifest returns a manifest with which the same app can be pushed again.
func ForAppManifest(now AppState, image string, addresses, services []string) map[string]any {
	app := sourceFields(now.App.Spec.Lifecycle, image)
	app["name"] = now.App.Spec.DisplayName
	if len(now.Variables) > 0 {
		app["env"] = now.Variables
	}
	metadata := ownMetadata(now.App.Labels, now.App.Annotations)
	if len(metadata.Labels)+len(metadata.Annotations) > 0 {
		app["metadata"] = metadata
	}
	var routes []map[string]any
	for _, address := range addresses {
		routes = append(routes, map[string]any{"route": address})
	}
	if app["routes"] = routes; len(routes) == 0 {
		delete(app, "routes")
	}
	if len(services) > 0 {
		app["services"] = services
	}
	processes := []map[string]any{}
	for _, p := range slices.SortedFunc(slices.Values(now.Processes), func(a, b *korifiv1alpha1.CFProcess) int {
		return strings.Compare(a.Spec.ProcessType, b.Spec.ProcessType)
	}) {
		fields := manifestFields(manifestProcessOf(now.Processes, p.Spec.ProcessType))
		delete(fields, "disk_quota") // disk-quota has the same value.
		fields["type"] = p.Spec.ProcessType
		processes = append(processes, fields)
	}
	app["processes"] = processes
	return map[string]any{"applications": []any{app}}
}

// sourceFields returns the fields for the image or the code of an app. For an app built from code, it omits the image,
// because a manifest with an image would be refused.
func sourceFields(lifecycle korifiv1alpha1.Lifecycle, image string) map[string]any {
	fields := map[string]any{}
	if lifecycle.Type == korifiv1alpha1.DockerLifecycle {
		if image != "" {
			fields["docker"] = map[string]any{"image": image}
		}
		return fields
	}
	if len(lifecycle.Data.Buildpacks) > 0 {
		fields["buildpacks"] = lifecycle.Data.Buildpacks
	}
	if lifecycle.Data.Stack != "" {
		fields["stack"] = lifecycle.Data.Stack
	}
	return fields
}

// manifestProcessOf returns the process with a type in manifest form, or an empty process if the type is missing.
func manifestProcessOf(all []*korifiv1alpha1.CFProcess, kind string) payloads.ManifestProcess {
	i := slices.IndexFunc(all, func(p *korifiv1alpha1.CFProcess) bool { return p.Spec.ProcessType == kind })
	if i < 0 {
		return payloads.ManifestProcess{}
	}
	p, check := all[i], healthCheckOf(all[i])
	size := func(mb int64) string { return fmt.Sprintf("%dM", mb) }
	now := payloads.ManifestProcess{
		Type: kind, Instances: new(process.DesiredInstances(p)), Memory: size(p.Spec.MemoryMB), DiskQuota: size(p.Spec.DiskQuotaMB),
		DiskQuotaOfClients: size(p.Spec.DiskQuotaMB), HealthCheckType: check.Type, HealthCheckHTTPEndpoint: p.Spec.HealthCheck.Data.HTTPEndpoint,
		Timeout: check.Data.Timeout, HealthCheckInvocationTimeout: check.Data.InvocationTimeout,
		Ports: p.Spec.Ports,
	}
	if p.Spec.Command != "" {
		now.Command = &p.Spec.Command
	}
	return now
}

// manifestFields returns the non-empty fields of a process, keyed by their manifest names.
func manifestFields(p payloads.ManifestProcess) map[string]any {
	// A size can be written in several ways, and only its value is compared.
	for _, size := range []*string{&p.Memory, &p.DiskQuota, &p.DiskQuotaOfClients} {
		if mb, err := payloads.ParseMegabytes(*size); err == nil && mb > 0 {
			*size = fmt.Sprintf("%dM", mb)
		}
	}
	// The conversion to JSON renames the fields and omits empty ones.
	all := map[string]any{}
	if raw, err := json.Marshal(p); err == nil {
		_ = json.Unmarshal(raw, &all)
	}
	delete(all, "type")
	return all
}

func compareFields(path string, wanted, now map[string]any) []ManifestDifference {
	// Paths are JSON Pointers, which escape these two characters (RFC 6901).
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var all []ManifestDifference
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		d := ManifestDifference{Op: "add", Path: path + "/" + escape.Replace(name), Value: wanted[name]}
		if was, ok := now[name]; ok {
			d.Op, d.Was = "replace", was
		}
		if !reflect.DeepEqual(d.Was, d.Value) {
			all = append(all, d)
		}
	}
	return all
}
