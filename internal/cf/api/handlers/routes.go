// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"net/http"
	"slices"

	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// Route is an entry of the route table: a method and a path pattern with their handler.
type Route struct {
	Method string
	// Path is a net/http pattern.
	Path string
	// Public routes can be requested without credentials.
	Public bool
	// Description and Rights are shown in the table in docs/cf.md. Rights are the Kubernetes rights that the caller
	// needs.
	Description, Rights string
	Handle              Handler
}

const (
	get   = http.MethodGet
	post  = http.MethodPost
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete

	seesApp     = "get cfapps"
	changesApp  = "patch cfapps"
	seesProcess = "get cfprocesses, cfapps"
	scales      = "patch cfprocesses"
	listsApps   = "list cfapps"

	changesLabels = "change labels and annotations"
	// patchesObject lists the rights for changing the labels of a resource that is stored as one object.
	patchesObject = "get, patch the object"

	readsObject = "one resource"
	getsObject  = "get the object"

	changesProcess = "change the command and health check of the next revision, labels and annotations"
	readsStats     = "one row for each desired instance of the current revision; after a start, the response waits until one instance runs or all instances have crashed"
	statsRights    = seesProcess + "; for usage list pods of metrics.k8s.io"
	changesScale   = "change the number of instances immediately, and the memory and disk of the next revision; the status is 200 as in Korifi, where Cloud Foundry sends 202"
)

// Routes returns all routes of the API. To add a route, add a row below, a handler, and a conversation in testdata.
func Routes() []Route {
	return slices.Concat(generalRoutes(), appRoutes(), processRoutes(), dropletRoutes(), addressRoutes(), taskRoutes(), serviceRoutes())
}

func generalRoutes() []Route {
	return []Route{
		{get, "/{$}", true, "links to all APIs, and the version", "", getRoot},
		{get, "/v3", true, "links to the resources", "", getResources},
		{get, "/v3/info", true, "the name and the version of the API", "", getInfo},
		{get, "/healthz", true, "liveness probe: the process responds", "", getHealth},
		{get, "/readyz", true, "readiness probe: the cache is up to date", "", getReadiness},
		{post, "/oauth/token", true, "a token without permissions, for clients that require one", "", createToken},
		{get, "/whoami", false, "the user name of the caller", "", getWhoAmI},
		{get, "/v3/organizations", false, "orgs: `names`, `guids`", "list cfspaces in the org, or list cfapps in one of its spaces", listOrgs},
		{get, "/v3/organizations/{guid}", false, "an org", "list cfspaces in the org, or list cfapps in one of its spaces", getOrg},
		{post, "/v3/organizations", false, "create an org; the response waits for its namespace", "create cforgs", withBody(createOrg)},
		{patch, "/v3/organizations/{guid}", false, "change an org's name, labels and annotations", "patch cforgs", withBody(updateOrg)},
		{del, "/v3/organizations/{guid}", false, "delete an org", "delete cforgs", deleteOrg},
		{get, "/v3/spaces", false, "spaces: `names`, `guids`, `organization_guids`", listsApps, listSpaces},
		{get, "/v3/spaces/{guid}", false, "a space", listsApps, getSpace},
		{post, "/v3/spaces", false, "create a space; the response waits for its namespace", "create cfspaces in the org", withBody(createSpace)},
		{patch, "/v3/spaces/{guid}", false, "change a space's name, labels and annotations", "patch cfspaces in the org", withBody(updateSpace)},
		{del, "/v3/spaces/{guid}", false, "delete a space and its contents; the job ends when both are gone", "delete cfspaces in the org", deleteSpace},
		{post, "/v3/roles", false, "give a user a role: a RoleBinding of one of Torpor's ClusterRoles", "create rolebindings, bind clusterroles", withBody(createRole)},
		{post, "/v3/spaces/{guid}/actions/apply_manifest", false, "apply apps, processes, routes and services of a manifest; ignored fields that would change something cause a warning", "create cfapps, cfprocesses, secrets, cfroutes, cfservicebindings; get secrets", applyManifest},
		{get, "/v3/roles", false, "roles of users (not of groups), in all spaces and orgs, or in the spaces and orgs of the query: `space_guids`, `organization_guids`, `types`, `user_guids`, `include=user`", "list rolebindings", listRoles},
		{get, "/v3/roles/{guid}", false, readsObject, getsObject, getRole},
		{del, "/v3/roles/{guid}", false, "delete a role", "get, delete rolebindings", deleteRole},
		{get, "/v3/users", false, "the users named in the query, because Kubernetes has no list of users: `usernames`, `guids`", "none", listUsers},
		{post, "/v3/resource_matches", false, "empty, because no files of earlier uploads are kept", "none", matchResources},
		{post, "/v3/spaces/{guid}/manifest_diff", false, "the changes that a manifest would make, without applying it; an empty body would change nothing", "list cfapps, get secrets", getManifestDiff},
		{get, "/v3/jobs/{guid}", false, "the job of a deletion or a manifest; the response waits for its end", "get the deleted object", getJob},
		{get, "/v3/audit_events", false, "stops, starts, restarts and deployments of apps; with `target_guids`, also Kubernetes events about them: `target_guids`, `types`", "list cfapps, events", listAuditEvents},
		{get, "/api/v1/info", false, "Log Cache", "", getLogCacheInfo},
		{get, "/api/v1/read/{guid}", false, "an app's logs, read from its Pods; after a start, the response with the latest lines waits until an instance runs or all instances have crashed: `limit`, `start_time`, `end_time`, `descending`, `envelope_types`", "list pods, get pods/log", withApp(readLogs)},
		{get, "/v3/organization_quotas/{guid}", false, "the quota of every org, without limits: ResourceQuotas of the namespaces limit apps", "", getOrgQuota},
		{get, "/v3/organizations/{guid}/relationships/default_isolation_segment", false, "an empty relationship", "", getNoRelationship},
		{get, "/v3/spaces/{guid}/relationships/isolation_segment", false, "an empty relationship", "", getNoRelationship},
		{get, "/v3/isolation_segments", false, "empty", "", listNothing},
		{get, "/v3/spaces/{guid}/features", false, "`ssh` is disabled", listsApps, listSpaceFeatures},
		{get, "/v3/spaces/{guid}/features/{name}", false, "`ssh` is disabled", listsApps, getSpaceFeature},
		{get, "/v3/spaces/{guid}/running_security_groups", false, "empty", "", listNothing},
		{get, "/v3/spaces/{guid}/staging_security_groups", false, "empty", "", listNothing},
		{get, "/v3/buildpacks", false, "empty", "", listNothing},
		{get, "/v3/stacks", false, "empty", "", listNothing},
	}
}

func appRoutes() []Route {
	return []Route{
		{get, "/v3/apps", false, "apps: `names`, `guids`, `space_guids`, `organization_guids`, `order_by`", listsApps, listApps},
		{post, "/v3/apps", false, "create a stopped app and its web process", "create cfapps, cfprocesses, secrets", withBody(createApp)},
		{get, "/v3/apps/{guid}", false, "an app, with its revision", seesApp, withApp(getApp)},
		{patch, "/v3/apps/{guid}", false, "change an app's name, labels, annotations, and the buildpacks of its next build", changesApp, withApp(updateApp)},
		{del, "/v3/apps/{guid}", false, "delete an app; the job ends when its Pods are gone", "delete cfapps", withApp(deleteApp)},
		{post, "/v3/apps/{guid}/actions/start", false, "start: one patch; responds at once", changesApp, withApp(startApp)},
		{post, "/v3/apps/{guid}/actions/stop", false, "stop: one patch, which begins a revision", changesApp, withApp(stopApp)},
		{post, "/v3/apps/{guid}/actions/restart", false, "restart: one patch, during which the state remains STARTED; a stopped app is started", changesApp, withApp(restartApp)},
		{get, "/v3/apps/{guid}/manifest", false, "a manifest from which the app can be pushed again", "get cfapps, cfbuilds, cfpackages, secrets", withApp(getAppManifest)},
		{get, "/v3/apps/{guid}/env", false, "an app's environment; a service without credentials has an empty object as in Cloud Foundry, where Korifi has null", "get secrets", withApp(getAppEnvironment)},
		{get, "/v3/apps/{guid}/environment_variables", false, "an app's own variables", "get secrets", withApp(getEnvVars)},
		{patch, "/v3/apps/{guid}/environment_variables", false, "change the variables of the next revision", "create, get, patch secrets", withApp(updateEnvVars)},
		{get, "/v3/apps/{guid}/features", false, "`revisions` is enabled; every other feature is disabled", seesApp, withApp(listAppFeatures)},
		{get, "/v3/apps/{guid}/features/{name}", false, "`revisions` is enabled; every other feature is disabled", seesApp, withApp(getAppFeature)},
		{get, "/v3/apps/{guid}/ssh_enabled", false, "false, because there is no SSH", "", getSSHEnabled},
		{get, "/v3/apps/{guid}/routes", false, "the routes of an app", seesApp, withApp(listAppRoutes)},
		{get, "/v3/apps/{guid}/revisions", false, "the last 20 revisions: `versions`", seesApp, withApp(listRevisions)},
		{get, "/v3/apps/{guid}/revisions/deployed", false, "revisions that have instances", seesApp, withApp(listDeployedRevisions)},
		{get, "/v3/revisions/{guid}", false, "a revision", seesApp, getRevision},
		{get, "/v3/revisions/{guid}/environment_variables", false, "the environment variables of a revision", "get cfapps, secrets", getRevisionEnvVars},
		{get, "/v3/deployments", false, "deployments: `app_guids`, `status_values`, `status_reasons`, `order_by`", listsApps, listDeployments},
		{post, "/v3/deployments", false, "a rolling restart, or a canary with steps; with a droplet, deploy it; with a revision, roll back the droplet, environment, commands, ports and health checks", "create cfdeployments; for a rollback get, patch secrets, patch cfprocesses", withBody(createDeployment)},
		{get, "/v3/deployments/{guid}", false, "the status of a deployment; the response waits until it has ended or pauses", "get cfapps, cfdeployments", getDeployment},
		{patch, "/v3/deployments/{guid}", false, changesLabels, patchesObject, withMetadata(ofPath((*repositories.Store).GetLiveDeployment), presenter.ForDeployment)},
		{post, "/v3/deployments/{guid}/actions/cancel", false, "cancel a deployment, and restore the settings of the earlier revision", "get, patch cfdeployments; get, patch secrets, patch cfprocesses", cancelDeployment},
		{post, "/v3/deployments/{guid}/actions/continue", false, "continue a paused canary with its next step", "get, patch cfdeployments", continueDeployment},
	}
}

func processRoutes() []Route {
	return []Route{
		{get, "/v3/processes", false, "processes: `app_guids`, `space_guids`, `types`, `guids`, `embed=process_instances`", listsApps, listProcesses},
		{get, "/v3/processes/{guid}", false, "a process", seesProcess, getProcess},
		{patch, "/v3/processes/{guid}", false, changesProcess, scales, withBody(updateProcess)},
		{get, "/v3/processes/{guid}/stats", false, readsStats, statsRights, getProcessStats},
		{post, "/v3/processes/{guid}/actions/scale", false, changesScale, scales, withBody(scaleProcess)},
		{del, "/v3/processes/{guid}/instances/{index}", false, "restart an instance", "list, delete pods", restartInstance},
		{get, "/v3/processes/{guid}/sidecars", false, "empty", "", listNothing},
		{get, "/v3/apps/{guid}/processes", false, "an app's processes", seesApp, withApp(listAppProcesses)},
		{get, "/v3/apps/{guid}/processes/{type}", false, "the process of a type", seesApp, getProcess},
		{patch, "/v3/apps/{guid}/processes/{type}", false, changesProcess, scales, withBody(updateProcess)},
		{get, "/v3/apps/{guid}/processes/{type}/stats", false, readsStats, statsRights, getProcessStats},
		{post, "/v3/apps/{guid}/processes/{type}/actions/scale", false, changesScale, scales, withBody(scaleProcess)},
		{del, "/v3/apps/{guid}/processes/{type}/instances/{index}", false, "restart an instance", "list, delete pods", restartInstance},
	}
}

func dropletRoutes() []Route {
	return []Route{
		{get, "/v3/packages", false, "packages: `app_guids`, `space_guids`, `organization_guids`, `guids`, `states`, `types`", listsApps, listPackages},
		{post, "/v3/packages", false, "create a package for an image or, with --builder-url, for code that is uploaded later; registry credentials become a Secret of the app; with `source_guid`, copy the image of another package", "create cfpackages; for a login create and patch secrets; for a copy get cfpackages", withBody(createPackage)},
		{get, "/v3/packages/{guid}", false, readsObject, getsObject, getPackage},
		{patch, "/v3/packages/{guid}", false, changesLabels, patchesObject, withMetadata(ofPath((*repositories.Store).GetPackage), presenter.ForPackage)},
		{post, "/v3/packages/{guid}/upload", false, "send code to the builder, within 10 min; the response then waits up to 10 s until the package is READY", "patch cfpackages", uploadCode},
		{get, "/v3/packages/{guid}/droplets", false, "the droplets of a package", "get cfpackages, cfapps", listPackageDroplets},
		{get, "/v3/apps/{guid}/packages", false, "an app's packages: `guids`, `states`, `types`", seesApp, listPackages},
		{get, "/v3/builds", false, "builds: `app_guids`, `package_guids`, `states`, `guids`, `space_guids`, `organization_guids`", listsApps, listBuilds},
		{post, "/v3/builds", false, "create a droplet from a package that is READY; a package that still lacks its code is refused as in Cloud Foundry, but accepted by Korifi", "create cfbuilds", withBody(createBuild)},
		{get, "/v3/builds/{guid}", false, "the state of a build; the response waits while it is staged", "get cfbuilds", getBuild},
		{patch, "/v3/builds/{guid}", false, "refused: set labels on the build's droplet instead", "", refuseBuildMetadata},
		{get, "/v3/droplets", false, "droplets: `app_guids`, `space_guids`, `organization_guids`", listsApps, listDroplets},
		{get, "/v3/droplets/{guid}", false, "a droplet", "get cfbuilds", getDroplet},
		{patch, "/v3/droplets/{guid}", false, changesLabels, "get, patch cfbuilds", withMetadata(findDroplet, presenter.ForDroplet)},
		{get, "/v3/apps/{guid}/builds", false, "an app's builds: `states`", "get cfapps", withApp(listAppBuilds)},
		{get, "/v3/apps/{guid}/droplets", false, "an app's droplets", "get cfapps", withApp(listAppDroplets)},
		{get, "/v3/apps/{guid}/droplets/current", false, "the droplet of the next revision", "get cfapps, cfbuilds", withApp(getCurrentDroplet)},
		{get, "/v3/apps/{guid}/relationships/current_droplet", false, "a reference to the droplet of the next revision", "get cfapps, cfbuilds", withApp(getCurrentDropletRelationship)},
		{patch, "/v3/apps/{guid}/relationships/current_droplet", false, "change the droplet of the next revision; running instances stay until the next start, restart or deployment", changesApp, withApp(setCurrentDroplet)},
	}
}

func addressRoutes() []Route {
	const sees, changes = "get cfroutes", "patch cfroutes"
	return []Route{
		{get, "/v3/domains", false, "domains, the default first: `names`, `guids`", "", listDomains},
		{post, "/v3/domains", false, "create a domain that all orgs share", "create cfdomains in the root namespace", withBody(createDomain)},
		{get, "/v3/domains/{guid}", false, "a domain", "", getDomain},
		{patch, "/v3/domains/{guid}", false, changesLabels, "patch cfdomains in the root namespace", withMetadata(findDomainOfPath, presenter.ForDomain)},
		{del, "/v3/domains/{guid}", false, "delete a domain and its routes in all spaces; the job ends when both are gone", "delete cfdomains in the root namespace, delete cfroutes", deleteDomain},
		{get, "/v3/domains/{guid}/route_reservations", false, "whether a route exists: `host`, `path`", "", getRouteReservation},
		{get, "/v3/organizations/{guid}/domains", false, "domains, the default first: `names`, `guids`", "", listDomains},
		{get, "/v3/organizations/{guid}/domains/default", false, "the domain of routes that name no domain", "", getDefaultDomain},
		{get, "/v3/routes", false, "routes: `hosts`, `paths`, `guids`, `domain_guids`, `app_guids`, `space_guids`, `organization_guids`", listsApps, listRoutes},
		{post, "/v3/routes", false, "create a route", "create cfroutes", withBody(createRoute)},
		{get, "/v3/routes/{guid}", false, readsObject, getsObject, getRoute},
		{patch, "/v3/routes/{guid}", false, changesLabels, changes, withBody(updateRoute)},
		{del, "/v3/routes/{guid}", false, "delete a route", "delete cfroutes", deleteRoute},
		{del, "/v3/spaces/{guid}/routes", false, "delete all routes without destinations in a space; requires `unmapped=true`", "list cfapps, delete cfroutes", deleteUnmappedRoutes},
		{get, "/v3/routes/{guid}/destinations", false, "the destinations of a route", sees, listDestinations},
		{post, "/v3/routes/{guid}/destinations", false, "add apps", changes, withBody(addDestinations)},
		{patch, "/v3/routes/{guid}/destinations", false, "replace the destinations", changes, withBody(replaceDestinations)},
		{del, "/v3/routes/{guid}/destinations/{destination}", false, "remove a destination", changes, deleteDestination},
		{get, "/v3/service_route_bindings", false, "empty", "", listNothing},
	}
}

func taskRoutes() []Route {
	return []Route{
		{get, "/v3/tasks", false, "tasks: `guids`, `names`, `states`, `app_guids`, `space_guids`, `organization_guids`", listsApps, listTasks},
		{get, "/v3/tasks/{guid}", false, "a task, and the reason for its failure; a task is kept for 31 days as in Cloud Foundry; Korifi deletes it earlier", "get cftasks", getTask},
		{patch, "/v3/tasks/{guid}", false, changesLabels, patchesObject, withMetadata(ofPath((*repositories.Store).GetTask), presenter.ForTask)},
		{post, "/v3/tasks/{guid}/actions/cancel", false, "cancel a task", "get, patch cftasks", cancelTask},
		{put, "/v3/tasks/{guid}/cancel", false, "cancel a task", "get, patch cftasks", cancelTask},
		{get, "/v3/apps/{guid}/tasks", false, "an app's tasks: `sequence_ids`, `names`, `states`", seesApp, withApp(listAppTasks)},
		{post, "/v3/apps/{guid}/tasks", false, "run a command once with the app's droplet and environment; the status is 201 as in Korifi, where Cloud Foundry sends 202", "create cftasks", withApp(createTask)},
	}
}

func serviceRoutes() []Route {
	return []Route{
		{get, "/v3/service_instances", false, "user-provided services: `names`, `guids`, `type`, `space_guids`, `organization_guids`", listsApps, listServiceInstances},
		{post, "/v3/service_instances", false, "store credentials for apps; only the type user-provided", "create cfserviceinstances, secrets", withBody(createServiceInstance)},
		{get, "/v3/service_instances/{guid}", false, readsObject, getsObject, getServiceInstance},
		{get, "/v3/service_instances/{guid}/credentials", false, "the credentials of a service", "get cfserviceinstances, secrets", getServiceCredentials},
		{patch, "/v3/service_instances/{guid}", false, "change a service, its labels and annotations; apps get the change in their next revision", "patch cfserviceinstances, secrets", withBody(updateServiceInstance)},
		{del, "/v3/service_instances/{guid}", false, "delete a service; refused while an app is bound to it", "delete cfserviceinstances", deleteServiceInstance},
		{get, "/v3/service_credential_bindings", false, "bindings: `app_guids`, `service_instance_guids`, `service_instance_names`, `names`, `guids`, `include=app`", listsApps, listServiceBindings},
		{post, "/v3/service_credential_bindings", false, "add the credentials to VCAP_SERVICES of the app's next revision; only the type app", "get cfapps, create cfservicebindings", withBody(createServiceBinding)},
		{get, "/v3/service_credential_bindings/{guid}", false, readsObject, getsObject, getServiceBinding},
		{patch, "/v3/service_credential_bindings/{guid}", false, changesLabels, patchesObject, withMetadata(ofPath((*repositories.Store).GetServiceBinding), presenter.ForBinding)},
		{get, "/v3/service_credential_bindings/{guid}/details", false, "the credentials that the app gets", "get cfservicebindings, secrets", getServiceBindingDetails},
		{del, "/v3/service_credential_bindings/{guid}", false, "remove the credentials from the next revision", "delete cfservicebindings", deleteServiceBinding},
	}
}
