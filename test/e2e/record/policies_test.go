// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// policyHub is a real API server with running and stopped objects of some kinds, and a policy from the examples.
type policyHub struct {
	*hub
	objects map[string]client.Object
}

func newPolicyHub(t *testing.T, file string) *policyHub {
	t.Helper()
	h := &policyHub{hub: &hub{Environment: testenv.StartAPIServer(t)}, objects: map[string]client.Object{}}
	h.InstallCRDs(t)
	h.installForeignKinds(t)
	for _, k := range []kind{clusterDeployments(), mysqlClusters(), cfApps(), deployments(), cronJobs(), kustomizations(), slumbers()} {
		for _, state := range []string{"runs", "stopped"} {
			obj := k.build(t, h.hub, state)
			if state == "stopped" {
				merge(t, obj, k.stop)
			}
			h.ExpectCreated(t, obj)
			h.objects[k.name+" "+state] = obj
		}
	}
	h.ApplyManifest(t, filepath.Join("..", "examples", "policies", file))
	return h
}

// slumbers returns the kind Slumber. A Slumber stops other objects, and is itself stopped by spec.suspend.
func slumbers() kind {
	return kind{
		name: "Slumber",
		build: func(_ testing.TB, h *hub, name string) client.Object {
			return &torporv1alpha1.Slumber{
				ObjectMeta: metaOf(h.name(name)),
				Spec: torporv1alpha1.SlumberSpec{
					Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}},
					Waves:   []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "CFApp"}}}},
				},
			}
		},
		stop: map[string]any{"spec": map[string]any{"suspend": true}}, notes: []string{torporv1alpha1.RequestedByAnnotation},
	}
}

// policyRow is a patch of an object, and the API server's error; empty if it accepts the patch.
type policyRow struct{ object, patch, refusal string }

// try sends a row's patch to the API server in a dry run.
func (h *policyHub) try(t *testing.T, c client.Client, row policyRow) error {
	t.Helper()
	obj, _ := h.objects[row.object].DeepCopyObject().(client.Object)
	return c.Patch(t.Context(), obj, client.RawPatch(client.Merge.Type(), []byte(row.patch)), client.DryRunAll)
}

func (h *policyHub) expect(t *testing.T, c client.Client, row policyRow) {
	t.Helper()
	err := h.try(t, c, row)
	isRefused := (k8serrors.IsInvalid(err) || k8serrors.IsForbidden(err)) && strings.Contains(err.Error(), row.refusal)
	if row.refusal == "" && err != nil || row.refusal != "" && !isRefused {
		t.Errorf("%s: %s: expected the refusal %q, found %v", row.object, row.patch, row.refusal, err)
	}
}

const (
	runningMySQL, stoppedMySQL = "MySQLCluster runs", "MySQLCluster stopped"
	runningApp, stoppedApp     = "CFApp runs", "CFApp stopped"
	runningWeb, stoppedWeb     = "Deployment runs", "Deployment stopped"
	runningFlux, stoppedFlux   = "Kustomization runs", "Kustomization stopped"
	runningCluster             = "ClusterDeployment runs"
	sleepingCluster            = "ClusterDeployment stopped"
	hibernate, resume          = `{"spec":{"powerState":"Hibernating"}}`, `{"spec":{"powerState":"Running"}}`
	activeSlumber              = "Slumber runs"
	unrelatedPatch             = `{"metadata":{"labels":{"a":"b"}}}`
	stopApp, startApp          = `{"spec":{"desiredState":"STOPPED"}}`, `{"spec":{"desiredState":"STARTED"}}`
)

// annotatePatch returns a patch of annotations, which are given as pairs of names and values.
func annotatePatch(pairs ...string) string {
	var fields []string
	for i := 0; i < len(pairs); i += 2 {
		fields = append(fields, fmt.Sprintf("%q:%q", pairs[i], pairs[i+1]))
	}
	return `{"metadata":{"annotations":{` + strings.Join(fields, ",") + `}}}`
}

// TestStopPolicies tests the policies in examples with a real API server.
func TestStopPolicies(t *testing.T) {
	t.Parallel()
	const clustering, reconciliation, instances = mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.StoppedInstancesAnnotation
	const reason, until, own, ownUntil = torporv1alpha1.ReasonAnnotation, torporv1alpha1.UntilAnnotation, mocov1beta2.ClusteringReasonAnnotation, mocov1beta2.ClusteringUntilAnnotation
	const stopped = torporv1alpha1.StoppedAnnotation
	stopAppWith := func(annotation, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"desiredState":"STOPPED"}}`, annotation, value)
	}
	for file, rows := range map[string][]policyRow{
		"reason-required.yaml": {
			{runningMySQL, annotatePatch(clustering, "true"), "expected a reason to stop clustering"},
			{runningMySQL, annotatePatch(clustering, "true", own, " "), "expected a reason to stop clustering"},
			{runningMySQL, annotatePatch(clustering, "true", own, "a backup"), ""},
			{runningMySQL, annotatePatch(clustering, "true", reconciliation, "true", own, "a backup"), "expected a reason to stop reconciliation"},
			{runningMySQL, annotatePatch(clustering, "true", reconciliation, "true", reason, "disks"), ""},
			{runningMySQL, annotatePatch(instances, "[0]"), "expected a reason to stop instances"},
			{runningMySQL, annotatePatch(clustering, "yes"), ""},
			{runningMySQL, unrelatedPatch, ""},
			{stoppedMySQL, annotatePatch(clustering, "false"), ""},
			{stoppedMySQL, unrelatedPatch, ""},
			{runningApp, stopApp, "expected a reason to stop the app"},
			{runningApp, stopAppWith(reason, "the sale is over"), ""},
			{runningApp, unrelatedPatch, ""},
			{stoppedApp, startApp, ""},
			{stoppedApp, unrelatedPatch, ""},
			{runningWeb, annotatePatch(stopped, "true"), "expected a reason to stop the object"},
			{runningWeb, annotatePatch(stopped, "true", reason, "no budget"), ""},
			{runningWeb, annotatePatch(stopped, "yes"), ""},
			{runningWeb, `{"spec":{"replicas":0}}`, ""},
			{stoppedWeb, annotatePatch(stopped, "false"), ""},
			{stoppedWeb, unrelatedPatch, ""},
			{"CronJob runs", annotatePatch(stopped, "true"), "expected a reason to stop the object"},
			{runningFlux, annotatePatch(stopped, "true"), "expected a reason to stop the object"},
			{stoppedFlux, annotatePatch(stopped, "false"), ""},
			{activeSlumber, `{"spec":{"timeZone":"Europe/Berlin"}}`, "spec.reason: expected a reason for the Slumber"},
			{activeSlumber, `{"spec":{"timeZone":"Europe/Berlin","reason":"nobody works at night"}}`, ""},
			{activeSlumber, `{"spec":{"suspend":true}}`, ""},
			{"Slumber stopped", `{"spec":{"suspend":false}}`, "spec.reason: expected a reason"},
			{activeSlumber, unrelatedPatch, ""},
		},
		"longest-stop.yaml": {
			{runningMySQL, annotatePatch(clustering, "true"), "[torpor.dev/until]: expected a duration of 4h at most, such as 40m, for the stop of clustering"},
			{runningMySQL, annotatePatch(clustering, "true", ownUntil, "5h"), "[torpor.dev/clustering-until]: expected a duration of 4h at most"},
			{runningMySQL, annotatePatch(clustering, "true", ownUntil, "2126-01-01T00:00:00Z"), "expected a duration of 4h at most"},
			{runningMySQL, annotatePatch(clustering, "true", ownUntil, "40m"), ""},
			{runningMySQL, annotatePatch(clustering, "true", reconciliation, "true", ownUntil, "40m"), "for the stop of reconciliation"},
			{runningMySQL, annotatePatch(clustering, "true", reconciliation, "true", until, "3h60m"), ""},
			{runningMySQL, unrelatedPatch, ""},
			{stoppedMySQL, annotatePatch(until, "9999h"), "expected a duration of 4h at most"},
			{stoppedMySQL, annotatePatch(clustering, "false"), ""},
			{stoppedMySQL, unrelatedPatch, ""},
			{runningApp, stopApp, `expected a duration of 72h at most, such as 8h, found ""`},
			{runningApp, stopAppWith(until, "73h"), `found "73h"`},
			{runningApp, stopAppWith(until, "72h"), ""},
			{stoppedApp, annotatePatch(until, "9999h"), `found "9999h"`},
			{stoppedApp, startApp, ""},
			{stoppedApp, unrelatedPatch, ""},
			{runningWeb, annotatePatch(stopped, "true"), `expected a duration of 72h at most, such as 8h, found ""`},
			{runningWeb, annotatePatch(stopped, "true", until, "73h"), `found "73h"`},
			{runningWeb, annotatePatch(stopped, "true", until, "72h"), ""},
			{stoppedWeb, annotatePatch(until, "9999h"), `found "9999h"`},
			{stoppedWeb, annotatePatch(stopped, "false"), ""},
			{stoppedWeb, unrelatedPatch, ""},
			{runningFlux, annotatePatch(stopped, "true", until, "73h"), `found "73h"`},
			{stoppedFlux, annotatePatch(stopped, "false"), ""},
		},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			h := newPolicyHub(t, file)
			testenv.Eventually(t, "the policies are applied", func() error {
				mysql := h.try(t, h.Client, policyRow{runningMySQL, annotatePatch(clustering, "true"), ""})
				web := h.try(t, h.Client, policyRow{runningWeb, annotatePatch(stopped, "true"), ""})
				if slumber := h.try(t, h.Client, policyRow{activeSlumber, `{"spec":{"timeZone":"Europe/Berlin"}}`, ""}); file == "reason-required.yaml" && slumber == nil {
					return errors.New("a Slumber without a reason is accepted")
				}
				return testenv.ErrorIf(mysql == nil || web == nil || h.try(t, h.Client, policyRow{runningApp, stopApp, ""}) == nil, "a stop without a reason and an end is accepted")
			})
			for _, row := range rows {
				h.expect(t, h.Client, row)
			}
		})
	}
}

// TestStopVerbs grants the verbs stop, start and restart to different users. The example itself grants the manager
// only the verb start.
func TestStopVerbs(t *testing.T) {
	t.Parallel()
	h := newPolicyHub(t, "verbs.yaml")
	stop, start := annotatePatch(mocov1beta2.ClusteringStoppedAnnotation, "true"), annotatePatch(mocov1beta2.ClusteringStoppedAnnotation, "false")
	extend, moreInstances := annotatePatch(torporv1alpha1.UntilAnnotation, "9h"), annotatePatch(mocov1beta2.StoppedInstancesAnnotation, "[0,1]")
	restart, skip := annotatePatch(torporv1alpha1.RestartRequestAnnotation, "now"), annotatePatch(torporv1alpha1.SkipUntilAnnotation, "2099-01-01T00:00:00Z")
	const manager = "system:serviceaccount:torpor-system:torpor-manager"
	for user, verbs := range map[string][]string{"writer": {}, "stopper": {"stop"}, "starter": {"start"}, "restarter": {"restart"}, "owner": {"stop", "start", "restart", "hibernate", "resume"}, "hibernator": {"hibernate"}, "waker": {"resume"}, manager: {}} {
		h.grantWrites(t, user, verbs)
		refusalOf := func(needed ...string) string {
			for _, verb := range needed {
				has := user == manager && verb == "start"
				for _, given := range verbs {
					has = has || given == verb
				}
				if !has {
					return "to have the verb " + verb
				}
			}
			return ""
		}
		c, err := client.New(h.ImpersonateUser(user), client.Options{Scheme: h.Client.Scheme(), Mapper: h.Client.RESTMapper()})
		testenv.ExpectNoError(t, err)
		rows := []policyRow{
			{runningCluster, hibernate, refusalOf("hibernate")},
			{sleepingCluster, resume, refusalOf("resume")},
			{sleepingCluster, extend, refusalOf("hibernate", "resume")},
			{runningCluster, skip, refusalOf("resume")},
			{runningCluster, unrelatedPatch, ""},
			{runningMySQL, skip, refusalOf("start")},
			{runningApp, skip, refusalOf("start")},
			{runningWeb, skip, refusalOf("start")},
			{runningFlux, annotatePatch(torporv1alpha1.StoppedAnnotation, "true"), refusalOf("stop")},
			{stoppedFlux, annotatePatch(torporv1alpha1.StoppedAnnotation, "false"), refusalOf("start")},
			{runningMySQL, stop, refusalOf("stop")},
			{stoppedMySQL, start, refusalOf("start")},
			{stoppedMySQL, extend, refusalOf("stop", "start")},
			{stoppedMySQL, moreInstances, refusalOf("stop", "start")},
			{stoppedMySQL, unrelatedPatch, ""},
			{runningApp, stopApp, refusalOf("stop")},
			{stoppedApp, startApp, refusalOf("start")},
			{stoppedApp, extend, refusalOf("stop", "start")},
			{runningApp, restart, refusalOf("restart")},
			{runningApp, unrelatedPatch, ""},
			{runningWeb, annotatePatch(torporv1alpha1.StoppedAnnotation, "true"), refusalOf("stop")},
			{stoppedWeb, annotatePatch(torporv1alpha1.StoppedAnnotation, "false"), refusalOf("start")},
			{stoppedWeb, extend, refusalOf("stop", "start")},
			{runningWeb, unrelatedPatch, ""},
			{activeSlumber, unrelatedPatch, ""},
		}
		if user != manager { // The example grants the manager no verb for Slumbers, because it never changes their spec.
			rows = append(rows, policyRow{activeSlumber, `{"spec":{"suspend":true}}`, refusalOf("stop", "start")})
		}
		testenv.Eventually(t, "the roles of "+user+" and the policies are applied", func() error {
			var errs []error
			for _, row := range rows {
				err := h.try(t, c, row)
				errs = append(errs, testenv.ErrorIf((err == nil) != (row.refusal == ""), "%s %s: %v", row.object, row.patch, err))
			}
			return errors.Join(errs...)
		})
		for _, row := range rows {
			h.expect(t, c, row)
		}
	}
}

// grantWrites grants a user write access to these kinds, and the additional verbs.
func (h *policyHub) grantWrites(t *testing.T, user string, verbs []string) {
	t.Helper()
	h.GrantRights(t, user, rbacv1.PolicyRule{
		APIGroups: []string{"hive.openshift.io", mocov1beta2.GroupVersion().Group, korifiv1alpha1.GroupVersion().Group, "apps", fluxKind("").Group, torporv1alpha1.GroupVersion().Group},
		Resources: []string{"clusterdeployments", "mysqlclusters", "cfapps", "deployments", "kustomizations", "slumbers"},
		Verbs:     append([]string{"get", "patch"}, verbs...),
	})
}
