// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestHubIsObserved observes a real API server, first unchanged and then after each change that a check detects.
func TestHubIsObserved(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	check := func(name string, cfg *rest.Config, want map[admincheck.Check]admincheck.CheckState, says ...string) {
		t.Helper()
		seen, err := Observer{Config: cfg, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
		testenv.ExpectNoError(t, err)
		worst, text := map[admincheck.Check]admincheck.CheckState{}, ""
		for _, f := range admincheck.Judge(seen) {
			text += string(f.Check) + ": " + f.Message + "\n"
			if f.State != admincheck.Passed && worst[f.Check] != admincheck.Failed {
				worst[f.Check] = f.State
			}
		}
		for _, c := range admincheck.ListChecks() {
			if worst[c] != want[c] {
				t.Errorf("%s: expected %s to be %q, found %q:\n%s", name, c, want[c], worst[c], text)
			}
		}
		for _, part := range says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: expected %q, found:\n%s", name, part, text)
			}
		}
	}
	check("a bare hub is ready", env.Config, nil, "no installation of Torpor is active yet", "0 definitions are Torpor's")
	stranger := env.ImpersonateUser("stranger", "system:authenticated")
	if _, err := (Observer{Config: stranger, Namespace: "torpor-system", Clock: clock.RealClock{}}).Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("expected the observation to fail without permissions, found %v", err)
	}
	env.GrantRights(t, "viewer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get"}})
	check("a viewer lacks the permissions to install", env.ImpersonateUser("viewer", "system:authenticated"),
		map[admincheck.Check]admincheck.CheckState{admincheck.RightsCheck: admincheck.Failed}, "found no permission to create namespaces")
	for name, row := range map[string]struct {
		by   time.Duration
		want admincheck.CheckState
	}{
		"an API server's clock that is 30 s behind: a warning":   {-30 * time.Second, admincheck.Warned},
		"an API server's clock that is an hour ahead: a failure": {time.Hour, admincheck.Failed},
	} {
		cfg := rest.CopyConfig(env.Config)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return shiftedClock{next, row.by} })
		check(name, cfg, map[admincheck.Check]admincheck.CheckState{admincheck.ClockCheck: row.want}, "apart")
	}
	env.InstallCRDs(t, filepath.Join("..", "..", "..", "..", "test", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml"))
	env.ExpectCreated(t,
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("elsewhere"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())},
		},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: webhookName},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "mutate-cfapps.torpor.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			}},
		})
	check("a hub with Hive, another installation and a webhook without a certificate", env.Config, map[admincheck.Check]admincheck.CheckState{
		admincheck.DefinitionsCheck: admincheck.Warned, admincheck.InstallationCheck: admincheck.Failed, admincheck.WebhookCheck: admincheck.Failed,
	}, "clusterdeployments.hive.openshift.io: another project's", "namespace elsewhere is", "mutate-cfapps.torpor.dev: expected a certificate")
}

// TestRecordingOfRequestersIsReported observes an API server that serves the policies, and an older one before and
// after the webhook is installed.
func TestRecordingOfRequestersIsReported(t *testing.T) {
	t.Parallel()
	expect := func(env *testenv.Environment, want admincheck.CheckState, says string) {
		t.Helper()
		seen, err := Observer{Config: env.Config, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
		testenv.ExpectNoError(t, err)
		for _, f := range admincheck.Judge(seen) {
			if f.Check == admincheck.RecordCheck && (f.State != want || !strings.Contains(f.Message, says)) {
				t.Errorf("expected %s and %q, found %+v", want, says, f)
			}
		}
	}
	newer, older := testenv.Start(t), testenv.StartOlder(t, "1.33")
	expect(newer, admincheck.Passed, "kubectl apply -k config/record")
	newer.ApplyManifest(t, "record/hibernation.yaml")
	expect(newer, admincheck.Passed, "policies record the requesters of stops: torpor-hibernation-record")
	expect(older, admincheck.Warned, "there is no webhook")
	older.ApplyManifest(t, "record/webhook/hibernation.yaml")
	expect(older, admincheck.Warned, "torpor-hibernation-record: expected a certificate in the caBundle, found an empty caBundle")
	seen, err := Observer{Config: older.Config, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
	testenv.ExpectNoError(t, err)
	want := []admincheck.AdmissionAnswer{{
		Kind: "ClusterDeployment", Admission: "torpor-hibernation-record", Problem: "found no annotation torpor.dev/requested-by in the response",
	}}
	testenv.ExpectEqual(t, "answers of a webhook that no manager serves", want, seen.Admission)
}

// TestCheckSendsDryRunRequests sends dry-run requests to policies, and to webhooks that no manager serves. Nothing
// is stored.
func TestCheckSendsDryRunRequests(t *testing.T) {
	t.Parallel()
	answersOf := func(env *testenv.Environment) map[string]string {
		seen, err := Observer{Config: env.Config, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
		testenv.ExpectNoError(t, err)
		found := map[string]string{}
		for _, a := range seen.Admission {
			found[a.Kind+" "+a.Admission] = a.Problem
		}
		return found
	}
	env := testenv.Start(t)
	testenv.ExpectEqual(t, "without admission", map[string]string{}, answersOf(env))
	for _, name := range []string{"hibernation", "mysql", "workloads"} {
		env.ApplyManifest(t, "record/"+name+".yaml")
	}
	want := map[string]string{"ClusterDeployment torpor-hibernation-record": "", "MySQLCluster torpor-mysql-record": "", "Deployment torpor-workloads-record": ""}
	testenv.Eventually(t, "the API server to load the policies", func() error {
		found := answersOf(env)
		return testenv.ErrorIf(!maps.Equal(found, want), "expected %v, found %v", want, found)
	})
	env.ExpectCreated(t, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate-cfapps.torpor.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"korifi.cloudfoundry.org"}, APIVersions: []string{"*"}, Resources: []string{"cfapps"}},
			}},
		}},
	})
	testenv.Eventually(t, "the API server to call the webhook", func() error {
		found := answersOf(env)["CFApp torpor"]
		return testenv.ErrorIf(!strings.Contains(found, "failed calling webhook"), "expected a webhook that does not answer, found %q", found)
	})
	viewer := env.ImpersonateUser("viewer", "system:authenticated")
	env.GrantRights(t, "viewer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get"}})
	seen, err := Observer{Config: viewer, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
	testenv.ExpectNoError(t, err)
	for _, a := range seen.Admission {
		if !a.IsForbidden || a.Problem != "" {
			t.Errorf("expected that a viewer may not ask, found %+v", a)
		}
	}
	stored := &hivev1.ClusterDeploymentList{}
	testenv.ExpectNoError(t, env.Client.List(t.Context(), stored))
	deployments := &appsv1.DeploymentList{}
	testenv.ExpectNoError(t, env.Client.List(t.Context(), deployments))
	if len(stored.Items)+len(deployments.Items) > 0 {
		t.Errorf("expected that nothing is stored, found %+v and %+v", stored.Items, deployments.Items)
	}
}

// TestPodsThatAreNotReadyAreExplained observes a Deployment whose Pods wait for an image and for a node.
func TestPodsThatAreNotReadyAreExplained(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	namespace, labels := env.CreateNamespace(t), map[string]string{"app": "torpor"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "torpor"}}}
	env.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerDeployment},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
	for name, status := range map[string]corev1.PodStatus{
		"a": {ContainerStatuses: []corev1.ContainerStatus{{
			Name: "manager", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
		}}},
		"b": {Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
		}}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: spec}
		env.ExpectCreated(t, pod)
		pod.Status = status
		testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), pod))
	}
	// The observer must ignore client-go's rate limits, with which its 81 requests would take minutes.
	cfg := rest.CopyConfig(env.Config)
	cfg.QPS, cfg.Burst = 0.2, 1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, err := Observer{Config: cfg, Namespace: namespace, Clock: clock.RealClock{}}.Observe(ctx)
	testenv.ExpectNoError(t, err)
	want := &admincheck.ManagerDeployment{Desired: 2, Problems: []string{"a: ImagePullBackOff: no such image", "b: Unschedulable: 0/3 nodes are available"}}
	testenv.ExpectEqual(t, "Deployment", want, seen.Deployment)
}

// shiftedClock is an API server whose clock is wrong.
type shiftedClock struct {
	next http.RoundTripper
	by   time.Duration
}

func (s shiftedClock) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err == nil {
		if at, parseErr := http.ParseTime(answer.Header.Get("Date")); parseErr == nil {
			answer.Header.Set("Date", at.Add(s.by).UTC().Format(http.TimeFormat))
		}
	}
	return answer, err
}
