// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// attempt is an action that could exceed a user's rights.
type attempt struct {
	who, does string
	// granted explains why the action is allowed; empty if it must be refused.
	granted string
	try     func(t *testing.T, h *trustHub, user client.Client) error
}

// outcome is the reason why an attempt fails although the API server accepts its request.
type outcome string

// Error implements error.
func (o outcome) Error() string { return string(o) }

// creates sends a creation that is not stored.
func creates(manifest string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, _ *trustHub, user client.Client) error {
		t.Helper()
		return user.Create(t.Context(), decode(t, manifest), client.DryRunAll)
	}
}

// patches sends a merge patch that is not stored; object is the kind, the namespace and the name.
func patches(apiVersion, object, patch string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, _ *trustHub, user client.Client) error {
		t.Helper()
		return user.Patch(t.Context(), refer(t, apiVersion, object), client.RawPatch(client.Merge.Type(), []byte(patch)), client.DryRunAll)
	}
}

// forges patches the annotations of a Deployment in a dry run. It returns an outcome if admission changes the value of
// the named annotation.
func forges(patch, name, value string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, _ *trustHub, user client.Client) error {
		t.Helper()
		obj := refer(t, "apps/v1", webOfTeam)
		if err := user.Patch(t.Context(), obj, client.RawPatch(client.Merge.Type(), []byte(patch)), client.DryRunAll); err != nil {
			return err
		}
		if found := obj.GetAnnotations()[name]; found != value {
			return outcome("corrected by the policy of `config/record`")
		}
		return nil
	}
}

// reads gets an object.
func reads(apiVersion, object string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, _ *trustHub, user client.Client) error {
		t.Helper()
		obj := refer(t, apiVersion, object)
		return user.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
	}
}

func refer(t *testing.T, apiVersion, object string) *unstructured.Unstructured {
	t.Helper()
	parts := strings.Split(object, "/")
	obj := decode(t, fmt.Sprintf("{apiVersion: %s, kind: %s}", apiVersion, parts[0]))
	obj.SetNamespace(parts[1])
	obj.SetName(parts[2])
	return obj
}

// describeAnswer returns the answer to an attempt for the page.
func describeAnswer(err error) string {
	policy := regexp.MustCompile(`ValidatingAdmissionPolicy '([a-z-]+)'`)
	if o, isOutcome := errors.AsType[outcome](err); isOutcome {
		return o.Error()
	}
	switch text := fmt.Sprint(err); {
	case policy.MatchString(text):
		return "refused by the policy `" + policy.FindStringSubmatch(text)[1] + "`"
	case strings.Contains(text, "admission webhook"):
		return "refused by the webhook of apps"
	case strings.Contains(text, "attempting to grant RBAC permissions"):
		return "refused by RBAC, as users grant only rights that they have"
	case k8serrors.IsForbidden(err):
		return "refused by RBAC"
	case k8serrors.IsInvalid(err):
		return "refused by the schema"
	default:
		return "unexpected: " + text
	}
}

// TestEscalationPaths makes each attempt as a user with one role, with a real API server and the manager's program.
func TestEscalationPaths(t *testing.T) {
	h := shared.Get(t)
	var table strings.Builder
	table.WriteString("| user | path | answer |\n|---|---|---|\n")
	before, refused, open := "", 0, 0
	for _, a := range listAttempts() {
		err := a.try(t, h, h.clientOf(t, a.who))
		answer := "granted: " + a.granted
		if open++; err != nil {
			answer = describeAnswer(err)
			open--
			refused++
		}
		if (err == nil) != (a.granted != "") || strings.HasPrefix(answer, "unexpected") {
			t.Errorf("%s: %s: expected granted: %t, found %v", a.who, a.does, a.granted != "", err)
		}
		who := a.who
		if who == before {
			who = ""
		}
		before = a.who
		fmt.Fprintf(&table, "| %s | %s | %s |\n", who, a.does, answer)
	}
	t.Logf("tried %d paths: %d refused or corrected, %d granted", refused+open, refused, open)
	comparePage(t, "escalation paths", table.String())
}

func listAttempts() []attempt {
	var all []attempt
	for _, some := range [][]attempt{switchAttempts(), slumberAttempts(), adapterAttempts(), cfAttempts(), cfAdminAttempts(), mysqlAttempts(), recordAttempts()} {
		all = append(all, some...)
	}
	return all
}

const (
	hive   = "hive.openshift.io/v1"
	moco   = "moco.cybozu.com/v1beta2"
	korifi = "korifi.cloudfoundry.org/v1alpha1"
	own    = "torpor.dev/v1alpha1"
	rbac   = "rbac.authorization.k8s.io/v1"

	clusterOfTeam, mysqlOfTeam, appOfTeam = "ClusterDeployment/team/cluster", "MySQLCluster/team/db", "CFApp/team/app"
	webOfTeam                             = "Deployment/team/web"
)

// switchAttempts are those of the users of the page.
func switchAttempts() []attempt {
	const stops = "its role is to stop and start"
	return []attempt{
		{viewer, "stops a ClusterDeployment", "", patches(hive, clusterOfTeam, `{"spec":{"powerState":"Hibernating"}}`)},
		{viewer, "reads a Secret", "", reads("v1", "Secret/team/key")},
		{operator, "stops a ClusterDeployment", stops, patches(hive, clusterOfTeam, `{"metadata":{"annotations":{"torpor.dev/reason":"night","torpor.dev/until":"8h"}},"spec":{"powerState":"Hibernating"}}`)},
		{operator, "stops the clustering of a MySQLCluster", stops, patches(moco, mysqlOfTeam, `{"metadata":{"annotations":{"moco.cybozu.com/clustering-stopped":"true","torpor.dev/clustering-until":"1h"}}}`)},
		{operator, "starts and restarts a CFApp", stops, patches(korifi, appOfTeam, `{"metadata":{"annotations":{"torpor.dev/restart-request":"r1"}},"spec":{"desiredState":"STARTED"}}`)},
		{operator, "skips a schedule by `torpor.dev/skip-until`", stops, patches(hive, clusterOfTeam, `{"metadata":{"annotations":{"torpor.dev/skip-until":"2099-01-01T00:00:00Z"}}}`)},
		{operator, "has the machines of another cluster stopped, by `infraID`", "", patches(hive, clusterOfTeam, `{"spec":{"clusterMetadata":{"infraID":"another"}}}`)},
		{operator, "names another Secret for the cloud", "", patches(hive, clusterOfTeam, `{"spec":{"platform":{"aws":{"credentialsSecretRef":{"name":"key"}}}}}`)},
		{operator, "runs a program in the Pods of a MySQLCluster", "", patches(moco, mysqlOfTeam, `{"spec":{"podTemplate":{"spec":{"containers":[{"name":"mysqld","image":"mine:1"}]}}}}`)},
		{operator, "has the passwords of a MySQLCluster changed", "", patches(moco, mysqlOfTeam, `{"metadata":{"annotations":{"torpor.dev/rotate-passwords":"rotate"}}}`)},
		{operator, "has replicas with errant transactions cloned again", "", patches(moco, mysqlOfTeam, `{"metadata":{"annotations":{"torpor.dev/reclone":"errant"}}}`)},
		{operator, "has an app run another droplet", "", patches(korifi, appOfTeam, `{"spec":{"currentDropletRef":{"name":"another"}}}`)},
		{operator, "has Torpor take over an object of Hive", "", patches(hive, clusterOfTeam, `{"metadata":{"annotations":{"torpor.dev/take-over":"true"}}}`)},
		{operator, "keeps an object from deletion by a finalizer", "", patches(hive, clusterOfTeam, `{"metadata":{"finalizers":["example.com/mine"]}}`)},
		{operator, "moves an object into or out of a Slumber by a label", "", patches(hive, clusterOfTeam, `{"metadata":{"labels":{"team":"mine"}}}`)},
		{operator, "stops an object of another namespace", "", patches(hive, "ClusterDeployment/other/cluster", `{"spec":{"powerState":"Hibernating"}}`)},
		{operator, "writes a Slumber", "", creates(slumberManifest("mine"))},
		{operator, "reads a Secret", "", reads("v1", "Secret/team/key")},
	}
}

func slumberManifest(name string) string {
	return fmt.Sprintf(`{apiVersion: torpor.dev/v1alpha1, kind: Slumber, metadata: {namespace: team, name: %s, annotations: {torpor.dev/requested-by: boss}},
spec: {holidays: [{name: always, first: "--01-01", last: "--12-31"}], waves: [{name: all, targets: [{kind: Deployment, selector: {matchLabels: {app: web}}}]}]}}`, name)
}

func slumberAttempts() []attempt {
	stopsAll := strings.NewReplacer("kind: Slumber", "kind: ClusterSlumber", "namespace: team, ", "", "spec: {", "spec: {namespaceSelector: {}, ").Replace(slumberManifest("all"))
	return []attempt{
		{slumberWriter, "stops a Deployment of the namespace, which they may not write", "a Slumber stops and starts what it selects in its namespace", stopsByASlumber},
		{slumberWriter, "names another author of a Slumber", "", namesAnotherAuthor},
		{slumberWriter, "patches that Deployment", "", patches("apps/v1", webOfTeam, `{"spec":{"replicas":0}}`)},
		{slumberWriter, "writes a Slumber in another namespace", "", creates(strings.Replace(slumberManifest("mine"), "namespace: team", "namespace: other", 1))},
		{slumberWriter, "writes a ClusterSlumber", "", creates(stopsAll)},
		{editor, "stops objects of all namespaces", "a ClusterSlumber stops and starts what it selects", creates(stopsAll)},
		{editor, "writes a Slumber", "", creates(slumberManifest("mine"))},
		{editor, "writes a StopAdapter", "", creates(adapterManifest("kustomize.toolkit.fluxcd.io", "Kustomization", "kustomizations", "/spec/suspend"))},
	}
}

func stopsByASlumber(t *testing.T, h *trustHub, user client.Client) error {
	t.Helper()
	slumber := decode(t, slumberManifest("mine"))
	if err := user.Create(t.Context(), slumber); err != nil {
		return err
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "web"}}
	h.WaitFor(t, "the Slumber stops the Deployment", web, func() error { return testenv.ErrorIf(*web.Spec.Replicas != 0, "found %d replicas", *web.Spec.Replicas) })
	elsewhere := &appsv1.Deployment{}
	testenv.ExpectNoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "web"}, elsewhere))
	if *elsewhere.Spec.Replicas != 2 {
		t.Errorf("expected the Deployment of another namespace to run, found %d replicas", *elsewhere.Spec.Replicas)
	}
	return user.Delete(t.Context(), slumber)
}

func namesAnotherAuthor(t *testing.T, _ *trustHub, user client.Client) error {
	t.Helper()
	slumber := decode(t, slumberManifest("forged"))
	if err := user.Create(t.Context(), slumber, client.DryRunAll); err != nil {
		return err
	}
	if slumber.GetAnnotations()[torporv1alpha1.RequestedByAnnotation] != "boss" {
		return outcome("corrected by the policy of `config/record`")
	}
	return nil
}

func adapterManifest(group, kind, resource, path string) string {
	return fmt.Sprintf(`{apiVersion: torpor.dev/v1alpha1, kind: StopAdapter, metadata: {name: %s.%s}, spec: {target: {group: "%s", version: v1, kind: %s, resource: %s},
stop: [{op: add, path: %s, value: "x"}]}}`, resource, group, group, kind, resource, path)
}

// adapts creates a StopAdapter and returns why the manager does not act by it.
func adapts(manifest string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, h *trustHub, user client.Client) error {
		t.Helper()
		obj := decode(t, manifest)
		if err := user.Create(t.Context(), obj); err != nil {
			return err
		}
		adapter := &torporv1alpha1.StopAdapter{ObjectMeta: metav1.ObjectMeta{Name: obj.GetName()}}
		var answer error
		h.WaitFor(t, "the manager judges "+obj.GetName(), adapter, func() error {
			c := meta.FindStatusCondition(adapter.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition)
			if c == nil || c.Reason == torporv1alpha1.StopAdapterStartingReason {
				return errors.New("found no answer")
			}
			if answer = nil; c.Status != metav1.ConditionTrue {
				answer = outcome("refused by the manager: `" + c.Reason + "`")
			}
			return nil
		})
		return answer
	}
}

func adapterAttempts() []attempt {
	const labelled = "metadata: {name: mine, labels: {torpor.dev/aggregate-to-stopadapters: \"true\"}}"
	return []attempt{
		{adapterWriter, "rewrites Ingresses, to which Torpor has rights for routes", "", adapts(adapterManifest("networking.k8s.io", "Ingress", "ingresses", "/spec/ingressClassName"))},
		{adapterWriter, "rewrites the image of an LRP, to which Torpor has rights for apps", "", adapts(adapterManifest("eirini.cloudfoundry.org", "LRP", "lrps", "/spec/image"))},
		{adapterWriter, "rewrites Jobs, to which Torpor has rights for backups", "", adapts(adapterManifest("batch", "Job", "jobs", "/spec/x"))},
		{adapterWriter, "replaces the built-in switch of Deployments", "", adapts(adapterManifest("apps", "Deployment", "deployments", "/spec/paused"))},
		{adapterWriter, "rewrites a kind to which Torpor has no rights", "", adapts(adapterManifest("apps", "DaemonSet", "daemonsets", "/spec/x"))},
		{adapterWriter, "rewrites the labels of Namespaces, such as their Pod Security level", "", adapts(adapterManifest("", "Namespace", "namespaces", "/metadata/labels/x"))},
		{adapterWriter, "rewrites owner references", "", adapts(adapterManifest("apps", "ReplicaSet", "replicasets", "/metadata/ownerReferences"))},
		{roleWriter, "gives Torpor rights that they do not have, by the label of a ClusterRole", "", creates("{apiVersion: " + rbac + ", kind: ClusterRole, " + labelled + ", rules: [{apiGroups: [apps], resources: [daemonsets], verbs: [get, list, watch, patch]}]}")},
	}
}

const (
	routeOfNeighbour = "CFRoute/neighbour/theirs"
	routeManifest    = "{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFRoute, metadata: {namespace: %s, name: %s}, spec: {host: %s, domainRef: {namespace: torpor-system, name: apps}}}"
)

func cfAttempts() []attempt {
	return []attempt{
		{auditor, "reads a Secret", "", reads("v1", "Secret/space/key")},
		{auditor, "stops an app", "", patches(korifi, "CFApp/space/any", `{"spec":{"desiredState":"STOPPED"}}`)},
		{developer, "reads a Secret", "credentials of services are in Secrets", reads("v1", "Secret/space/key")},
		{developer, "creates a token of a ServiceAccount of the space", "bind no rights to ServiceAccounts of spaces", creates(`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {namespace: space, name: token, annotations: {kubernetes.io/service-account.name: default}}}`)},
		{developer, "reads a Secret of another space", "", reads("v1", "Secret/neighbour/key")},
		{developer, "runs an LRP of their own", "", creates("{apiVersion: eirini.cloudfoundry.org/v1, kind: LRP, metadata: {namespace: space, name: mine}, spec: {GUID: a, version: '1', image: mine, instances: 1, DiskMB: 1, memoryMB: 1, processType: web, appName: a, appGUID: a, orgName: a, orgGUID: a, spaceName: a, spaceGUID: a}}")},
		{developer, "runs a Pod of their own", "", creates("{apiVersion: v1, kind: Pod, metadata: {namespace: space, name: mine}, spec: {containers: [{name: a, image: a}]}}")},
		{developer, "grants their role to others", "", creates(bindingManifest(space, "torpor-space-developer"))},
		{developer, "writes the status of a build, and so its droplet", "", writesStatus(korifi, "CFBuild/space/any", `{"status":{"droplet":{"registry":{"image":"mine"}}}}`)},
		{developer, "names another user as the author of a revision", "", forgesRevision},
		{developer, "creates a space", "", creates("{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFSpace, metadata: {namespace: org, name: mine}, spec: {displayName: mine}}")},
		{neighbour, "receives the requests to a host of another space, by an older route", "", takesHost},
		{neighbour, "receives the requests to a host of another space, by a new route", "", sharesHost},
	}
}

func writesStatus(apiVersion, object, patch string) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, _ *trustHub, user client.Client) error {
		t.Helper()
		return user.Status().Patch(t.Context(), refer(t, apiVersion, object), client.RawPatch(client.Merge.Type(), []byte(patch)))
	}
}

func forgesRevision(t *testing.T, _ *trustHub, user client.Client) error {
	t.Helper()
	app := decode(t, "{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFApp, metadata: {namespace: space, name: forged, annotations: {torpor.dev/revised-by: boss}}, spec: {displayName: forged, desiredState: STOPPED, lifecycle: {type: docker}}}")
	if err := user.Create(t.Context(), app, client.DryRunAll); err != nil {
		return err
	}
	if app.GetAnnotations()[torporv1alpha1.RevisedByAnnotation] != "boss" {
		return outcome("corrected by the webhook of apps")
	}
	return nil
}

// takesHost has an old route change its host to that of a younger route of another space.
func takesHost(t *testing.T, h *trustHub, user client.Client) error {
	t.Helper()
	if err := user.Create(t.Context(), decode(t, fmt.Sprintf(routeManifest, "neighbour", "theirs", "theirs"))); err != nil {
		return err
	}
	shop := decode(t, fmt.Sprintf(routeManifest, space, "shop", "shop"))
	h.ExpectCreated(t, shop)
	testenv.Eventually(t, "the second in which the route was created is over", func() error {
		return testenv.ErrorIf(time.Since(shop.GetCreationTimestamp().Time) < time.Second, "it is not over")
	})
	return user.Patch(t.Context(), refer(t, korifi, routeOfNeighbour), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"host":"shop"}}`)))
}

// sharesHost creates a route of a host that has an older route in another space.
func sharesHost(t *testing.T, h *trustHub, user client.Client) error {
	t.Helper()
	if err := user.Create(t.Context(), decode(t, fmt.Sprintf(routeManifest, "neighbour", "shop", "shop"))); err != nil {
		return err
	}
	made := &korifiv1alpha1.CFRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "neighbour", Name: "shop"}}
	var answer error
	h.WaitFor(t, "the manager judges the route", made, func() error {
		c := meta.FindStatusCondition(made.Status.Conditions, korifiv1alpha1.ReadyCondition)
		if c == nil {
			return errors.New("found no condition")
		}
		if c.Reason == korifiv1alpha1.AddressTakenReason {
			answer = outcome("refused by the manager: `" + c.Reason + "`")
		}
		return nil
	})
	return answer
}

func bindingManifest(namespace, role string) string {
	return fmt.Sprintf("{apiVersion: "+rbac+", kind: RoleBinding, metadata: {namespace: %s, name: mine}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: me}]}", namespace, role)
}

func cfAdminAttempts() []attempt {
	return []attempt{
		{cfAdmin, "makes themselves a developer of a space", "its role is to assign roles, so its holders read the Secrets of all spaces", creates(bindingManifest(space, "torpor-space-developer"))},
		{cfAdmin, "makes themselves a developer of another namespace", "", creates(bindingManifest(team, "torpor-space-developer"))},
		{cfAdmin, "grants their own role in a space", "", creates(bindingManifest(space, "torpor-cf-admin"))},
		{cfAdmin, "grants `cluster-admin` in a space", "", creates(bindingManifest(space, "cluster-admin"))},
		{cfAdmin, "labels a namespace as that of an org", "", patches("v1", "Namespace//team", `{"metadata":{"labels":{"korifi.cloudfoundry.org/org-guid":"team"}}}`)},
		{cfAdmin, "takes an existing namespace for an org of its name", "", takesNamespace},
		{cfAdmin, "stops an app", "", patches(korifi, appOfTeam, `{"spec":{"desiredState":"STARTED"}}`)},
		{cfAdmin, "reads a Secret", "", reads("v1", "Secret/space/key")},
	}
}

// takesNamespace creates an org with the name of a namespace that no org has.
func takesNamespace(t *testing.T, h *trustHub, user client.Client) error {
	t.Helper()
	if err := user.Create(t.Context(), decode(t, "{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFOrg, metadata: {namespace: torpor-system, name: team}, spec: {displayName: team}}")); err != nil {
		return err
	}
	org := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: team}}
	reason := h.WaitForCondition(t, org, korifiv1alpha1.ReadyCondition, metav1.ConditionFalse, korifiv1alpha1.NameTakenReason).Reason
	namespace := &corev1.Namespace{}
	testenv.ExpectNoError(t, h.Client.Get(t.Context(), client.ObjectKey{Name: team}, namespace))
	if namespace.Labels[korifiv1alpha1.OrgGUIDLabel] == "" {
		return outcome("refused by the manager: `" + reason + "`")
	}
	return nil
}

func mysqlAttempts() []attempt {
	const runs = "MySQLClusters and BackupPolicies describe Pods, with any Secret and ServiceAccount of the namespace"
	return []attempt{
		{mysqlWriter, "runs Pods with a ServiceAccount and a Secret of the namespace", runs, runsPods},
		{mysqlWriter, "reads a Secret", "", reads("v1", "Secret/team/key")},
		{mysqlWriter, "runs a Pod of their own", "", creates("{apiVersion: v1, kind: Pod, metadata: {namespace: team, name: mine}, spec: {containers: [{name: a, image: a}]}}")},
		{mysqlWriter, "runs MySQL in another namespace", "", creates("{apiVersion: moco.cybozu.com/v1beta2, kind: MySQLCluster, metadata: {namespace: other, name: mine}, spec: {replicas: 1, podTemplate: {spec: {containers: [{name: mysqld, image: a}]}}, volumeClaimTemplates: [{metadata: {name: mysql-data}, spec: {}}]}}")},
	}
}

// runsPods has the manager create a StatefulSet whose Pods read a Secret.
func runsPods(t *testing.T, h *trustHub, user client.Client) error {
	t.Helper()
	cluster := decode(t, `{apiVersion: moco.cybozu.com/v1beta2, kind: MySQLCluster, metadata: {namespace: team, name: mine}, spec: {replicas: 1,
podTemplate: {spec: {serviceAccountName: default, containers: [{name: mysqld, image: "mine:1"}, {name: more, image: "mine:1", env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: key}}}]}]}},
volumeClaimTemplates: [{metadata: {name: mysql-data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}`)
	if err := user.Create(t.Context(), cluster); err != nil {
		return err
	}
	set := &appsv1.StatefulSet{}
	testenv.Eventually(t, "the manager creates the StatefulSet", func() error {
		return h.Client.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "moco-mine"}, set)
	})
	if !strings.Contains(fmt.Sprint(set.Spec.Template.Spec.Containers), "mine:1") {
		return outcome("refused by the manager")
	}
	return nil
}

// recordAttempts are those of a user who may patch a Deployment, and so its spec as well.
func recordAttempts() []attempt {
	const patchesAll = "the right to patch an object includes its spec"
	stop := func(more string) string {
		return `{"metadata":{"annotations":{"torpor.dev/stopped":"true",` + more + `}}}`
	}
	return []attempt{
		{patcher, "names another requester of their stop", "", forges(stop(`"torpor.dev/requested-by":"boss"`), "torpor.dev/requested-by", "boss")},
		{patcher, "names another requester of a stop that is not theirs", "", forges(`{"metadata":{"annotations":{"torpor.dev/requested-by":"boss"}}}`, "torpor.dev/requested-by", "boss")},
		{patcher, "names another author of the end of a stop", "", forges(stop(`"torpor.dev/until":"8h","torpor.dev/until-noted":"8h by boss"`), "torpor.dev/until-noted", "8h by boss")},
		{patcher, "names another author of a skip", "", forges(`{"metadata":{"annotations":{"torpor.dev/skip-until":"2099-01-01T00:00:00Z","torpor.dev/skip-until-noted":"2099-01-01T00:00:00Z by boss"}}}`, "torpor.dev/skip-until-noted", "2099-01-01T00:00:00Z by boss")},
		{patcher, "writes earlier stops into `torpor.dev/stops`", "the list in an annotation is a convenience; the audit log of the API server is evidence", forges(`{"metadata":{"annotations":{"torpor.dev/stops":"[]"}}}`, "torpor.dev/stops", "[]")},
		{patcher, "has the manager restore fields of the spec by `torpor.dev/restore`", patchesAll, restores(`[{"path":"/spec/replicas","before":1,"after":2}]`, 1)},
		{patcher, "has the manager write other fields by `torpor.dev/restore`", "", restores(`[{"path":"/metadata/finalizers","before":["example.com/mine"]}]`, 2)},
	}
}

// restores forges saved fields of a Deployment, and returns an outcome if the manager refuses to restore them.
func restores(saved string, replicas int32) func(*testing.T, *trustHub, client.Client) error {
	return func(t *testing.T, h *trustHub, user client.Client) error {
		t.Helper()
		web := decode(t, deploymentManifest(team, fmt.Sprintf("restored-%d", replicas)))
		h.ExpectCreated(t, web)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"torpor.dev/restore":%q}}}`, saved)
		if err := user.Patch(t.Context(), web, client.RawPatch(client.Merge.Type(), []byte(patch))); err != nil {
			return err
		}
		now := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: web.GetName()}}
		var answer error
		h.WaitFor(t, "the manager judges the annotation", now, func() error {
			refusal := now.Annotations[torporv1alpha1.StopRefusedAnnotation]
			isRestored := now.Annotations[torporv1alpha1.RestoreAnnotation] == ""
			if answer = nil; refusal != "" {
				answer = outcome("refused by the manager: `torpor.dev/stop-refused`")
			}
			return testenv.ErrorIf(refusal == "" && !isRestored || *now.Spec.Replicas != replicas, "found %v and %d replicas", now.Annotations, *now.Spec.Replicas)
		})
		return answer
	}
}
