// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// MissingFeature is a part of CF v3 that Torpor does not implement, with the reason.
type MissingFeature struct {
	What, Why string
	// Paths are net/http patterns of the requests that are rejected with the reason. A pattern with a trailing slash
	// also covers all paths below it.
	Paths []string
}

// Refusal returns the error for a request for this feature. The status is 422, because the client prints the detail of
// a 422 and hides the detail of a 404.
func (m MissingFeature) Refusal() *apierrors.CFError {
	return apierrors.NewUnprocessableEntity("not implemented: " + m.What + "; " + m.Why)
}

// Patterns returns the mux patterns of the paths.
func (m MissingFeature) Patterns() []string {
	var all []string
	for _, path := range m.Paths {
		all = append(all, path)
		// Without a separate pattern, the mux would redirect the path to the pattern with the trailing slash.
		if exact, isTree := strings.CutSuffix(path, "/"); isTree {
			all = append(all, exact)
		}
	}
	return all
}

// MissingFeatures returns the unimplemented parts of CF v3 that clients may request.
func MissingFeatures() []MissingFeature {
	return []MissingFeature{
		{"buildpacks, stacks, staging", "an external builder provides them: push an image, or connect a builder with --builder-url", []string{"/v3/buildpacks/", "/v3/stacks/"}},
		{"droplets as files", "a droplet is an image: pull it from its registry, or push it there", []string{
			"POST /v3/droplets", "/v3/droplets/{guid}/download", "/v3/droplets/{guid}/upload",
		}},
		{"TCP routes, internal and private domains, wildcard hosts, weights and protocols of destinations, routes shared between spaces, route policies", "create an HTTP route in each space", []string{
			"/v3/domains/{guid}/relationships/", "/v3/routes/{guid}/relationships/", "PATCH /v3/routes/{guid}/destinations/{destination}", "/v3/route_policies/",
		}},
		{"service brokers, managed services, service keys, sharing of services", "create user-provided services", []string{
			"/v3/service_brokers/", "/v3/service_offerings/", "/v3/service_plans/", "/v3/service_route_bindings/",
			"/v3/service_instances/{guid}/parameters", "/v3/service_instances/{guid}/relationships/",
		}},
		{"quotas", "create ResourceQuotas with kubectl", []string{"/v3/organization_quotas/", "/v3/space_quotas/"}},
		{"isolation segments", "set taints and node selectors with kubectl", []string{
			"/v3/isolation_segments/", "PATCH /v3/organizations/{guid}/relationships/default_isolation_segment", "PATCH /v3/spaces/{guid}/relationships/isolation_segment",
		}},
		{"security groups", "create NetworkPolicies with kubectl", []string{"/v3/security_groups/"}},
		{"creating and deleting users", "users are managed outside the CF API: ask the administrators of the cluster", []string{"POST /v3/users", "/v3/users/{guid}", "/v3/service_accounts"}},
		{"roles of groups", "create RoleBindings with kubectl", nil},
		{"feature flags, environment variable groups", "RBAC decides which actions are allowed, and each app has its own variables", []string{
			"/v3/feature_flags/", "/v3/environment_variable_groups/",
		}},
		{"SSH, changes to the features of apps and spaces", "use kubectl exec", []string{
			"PATCH /v3/apps/{guid}/features/{name}", "PATCH /v3/spaces/{guid}/features/{name}",
		}},
		{"apply_manifest of one app", "apply the manifest to the app's space", []string{"POST /v3/apps/{guid}/actions/apply_manifest"}},
		{"labels and annotations of builds, revisions, roles and users", "set them on the droplet or the app instead", nil},
		{"`fields`; `include`, except for the users of roles and the apps of bindings", "these parameters are ignored", nil},
		{"sidecars", "run each sidecar as a process of the app", nil},
		{"logs of staging; processes and commands that a buildpack detects", "read the logs in the builder, and set the commands in a manifest", nil},
		{"credentials of services as files", "apps get the credentials in `VCAP_SERVICES`", nil},
		{"limits of the log rate, readiness health checks", "requests with them are refused; a manifest with them is applied with a warning", nil},
		{"disk usage and log rates in stats", "these values are not measured, so the response omits them", nil},
	}
}
