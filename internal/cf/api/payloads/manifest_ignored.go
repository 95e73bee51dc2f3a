// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxUnknownParts limits the number of fields in a warning, and maxPartName limits the length of their names, because
// clients control both.
const maxUnknownParts, maxPartName = 10, 40

// manifestParts maps each known field of an app or a process to "" if the field is applied or only concerns the client.
// It maps an ignored field to the reason or the alternative.
func manifestParts() map[string]string {
	const ready = "an instance is ready when its health check has succeeded once"
	parts := map[string]string{
		"buildpack":  "use buildpacks instead",
		"buildpacks": "no code is built", "cnb-credentials": "the builder has its own credentials",
		"features": "the features of an app cannot be changed", "health-check-interval": "an instance is checked every second until it is ready, and then every 30 seconds",
		"lifecycle":                 "an app with docker.image has the lifecycle docker, and any other app has the lifecycle buildpack",
		"log-rate-limit-per-second": "no limit is enforced", "readiness-health-check-http-endpoint": ready, "readiness-health-check-interval": ready,
		"readiness-health-check-invocation-timeout": ready, "readiness-health-check-type": ready,
		"sidecars": "run each sidecar as a process of the app", "stack": "no code is built", "user": "instances run as the user of the image",
	}
	for _, applied := range []string{
		"command", "default-route", "disk-quota", "disk_quota", "docker", "env", "health-check-http-endpoint", "health-check-invocation-timeout",
		"health-check-type", "instances", "memory", "metadata", "name", "no-route", "path", "ports", "processes", "random-route", "routes", "services",
		"timeout", "type",
	} {
		parts[applied] = ""
	}
	return parts
}

// IgnoredParts returns warnings about the ignored fields whose values would change something.
func (a ManifestApp) IgnoredParts(isCodeBuilt bool) []string {
	known := manifestParts()
	var warnings, unknown []string
	for _, parts := range append([]map[string]json.RawMessage{a.parts}, a.processParts...) {
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			instead, isKnown := known[name]
			switch {
			case !a.isWish(name, string(parts[name]), isCodeBuilt):
			case !isKnown:
				unknown = append(unknown, fmt.Sprintf("%q", name[:min(len(name), maxPartName)]))
			case instead != "":
				warnings = append(warnings, fmt.Sprintf("App '%s': %s of the manifest was ignored; %s.", a.Name, name, instead))
			}
		}
	}
	for _, route := range a.Routes {
		if len(route.Options) > 0 {
			warnings = append(warnings, fmt.Sprintf("App '%s': options of routes of the manifest were ignored; requests are distributed in proportion to instances.", a.Name))
		}
	}
	if len(unknown) > 0 {
		all := slices.Compact(slices.Sorted(slices.Values(unknown)))
		warnings = append(warnings, fmt.Sprintf("App '%s': %s of the manifest, which is unknown to Torpor, had no effect.", a.Name, strings.Join(all[:min(len(all), maxUnknownParts)], ", ")))
	}
	// Processes can have the same fields, so warnings can be duplicates.
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

// isWish reports whether a field requests something other than the default behaviour.
func (a ManifestApp) isWish(name, value string, isCodeBuilt bool) bool {
	if slices.Contains([]string{"", `""`, "null", "false", "[]", "{}"}, value) {
		return false
	}
	switch name {
	case "buildpacks", "stack":
		return !isCodeBuilt || a.Docker != nil
	case "lifecycle":
		return (value == `"docker"`) != (a.Docker != nil) || value == `"cnb"`
	case "log-rate-limit-per-second":
		return value != `"-1"` && value != "-1"
	case "readiness-health-check-type":
		return value != `"process"`
	default:
		return true
	}
}
