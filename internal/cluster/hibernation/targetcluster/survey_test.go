// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// testSurvey creates the problems that a stop may meet in a real API server. It expects the findings and the expiry
// of the certificates.
func testSurvey(t *testing.T, hub *testenv.Environment, c *ClusterClient) {
	t.Helper()
	const namespace = "default"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	hub.ExpectCreated(t, &batchv1.CronJob{ObjectMeta: meta("often"), Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
	}})
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta("none-may-go"), Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
	hub.ExpectCreated(t, budget)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	must(t, hub.Client.Status().Update(t.Context(), budget))
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}, ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: "data"},
	}}
	hub.ExpectCreated(t, volume)
	volume.Status.Phase = corev1.VolumeBound
	must(t, hub.Client.Status().Update(t.Context(), volume))
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "csi.example.com", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("local")},
	}}
	hub.ExpectCreated(t, attachment)
	attachment.Status.DetachError = &storagev1.VolumeError{Message: "The cloud refuses"}
	must(t, hub.Client.Status().Update(t.Context(), attachment))
	hub.ExpectCreated(t, blockingWebhook(namespace))
	hub.ExpectCreated(t, &corev1.Service{ObjectMeta: meta("guard"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "guard"}, Ports: []corev1.ServicePort{{Port: 443}}}})

	look := &Look{At: time.Now()}
	survey := c.ReadSurvey(t.Context(), look)
	check := survey.BuildCheck(nil)
	got := map[string][]string{}
	for _, f := range check.Findings {
		got[f.Code] = f.Objects
	}
	if diff := cmp.Diff(map[string][]string{
		torporv1alpha1.CronJobsMissStartsFinding: {"default/often"}, torporv1alpha1.EvictionForbiddenFinding: {"default/none-may-go"},
		torporv1alpha1.VolumesLocalFinding: {"default/data"}, torporv1alpha1.VolumesNotDetachableFinding: {"stuck"},
		torporv1alpha1.WebhookBlocksWakeUpFinding: {"guard"}, torporv1alpha1.EtcdQuorumSmallFinding: {"a-lease-is-newer", "b-heartbeat-is-newer"},
	}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if len(check.Unread) > 0 {
		t.Errorf("expected everything to be read, found that these were not: %v", check.Unread)
	}
	if check.WakeBy == nil || !check.WakeBy.After(time.Now()) {
		t.Errorf("expected certificates that last for a while, found %v", check.WakeBy)
	}
}

// blockingWebhook matches no request of these tests, so it does not block any.
func blockingWebhook(namespace string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "guard.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "guard"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes/status"}},
		}},
	}}}
}

// TestSurveyOfAHangingServerEnds surveys a server that refuses one list, returns endless pages of another, and never
// answers a third.
func TestSurveyOfAHangingServerEnds(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/cronjobs"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasSuffix(path, "/poddisruptionbudgets"):
			w.WriteHeader(http.StatusNotFound)
		case strings.HasSuffix(path, "/persistentvolumes"):
			_, _ = w.Write([]byte(`{"metadata":{"continue":"on"},"items":[{},{}]}`))
		case strings.HasSuffix(path, "/volumeattachments"):
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		default:
			_, _ = w.Write([]byte(`{"items":[]}`))
		}
	}))
	defer server.Close()
	defer close(ended)
	c, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, server.URL, nil), hibernation.ServerOverride{})
	must(t, err)
	defer c.Close()
	survey := c.ReadSurvey(t.Context(), &Look{At: time.Now()})
	if !survey.IsCutShort() {
		t.Error("expected that another survey may read more, as a list never ended")
	}
	check := survey.BuildCheck(nil)
	for _, unread := range []string{"CronJobs", "PersistentVolumes", "VolumeAttachments", "Nodes of the control plane"} {
		if !slices.Contains(check.Unread, unread) {
			t.Errorf("expected %s to be unread, found %v", unread, check.Unread)
		}
	}
	if slices.Contains(check.Unread, "PodDisruptionBudgets") || slices.Contains(check.Unread, "Namespaces") || check.WakeBy != nil || len(check.Findings) > 0 {
		t.Errorf("expected nothing else, found %+v", check)
	}
}

// TestAFleetIsNotSurveyedAtOnce requests many surveys at once. Only some of the polls return a survey.
func TestAFleetIsNotSurveyedAtOnce(t *testing.T) {
	p := startPool(t)
	standstill := clocktesting.NewFakePassiveClock(time.Now())
	p.surveys = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(surveysPerSecond, surveysAtOnce, standstill)
	surveyed := 0
	for i := range 3 * surveysAtOnce {
		name := "cluster-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		p.add(name)
		q := question(name, ReadAPI)
		q.WantsSurvey = true
		seen := p.look(q)
		must(t, seen.Err)
		if seen.Survey != nil {
			surveyed++
		}
	}
	if surveyed != surveysAtOnce {
		t.Errorf("expected %d surveys, found %d", surveysAtOnce, surveyed)
	}
}

// TestSurveysReadTheServedVersionOfHealthChecks surveys servers with MachineHealthChecks of Cluster API in one version or
// in both. In the latter case, each object counts once.
func TestSurveysReadTheServedVersionOfHealthChecks(t *testing.T) {
	const check = `{"metadata":{"namespace":"m","name":"workers"},"spec":{}}`
	for name, row := range map[string]struct {
		items map[string]string
		want  int32
	}{
		"MachineHealthChecks served only in v1beta1 are found":         {map[string]string{clusterAPIChecks: check}, 1},
		"MachineHealthChecks served only in v1beta2 are found":         {map[string]string{newClusterAPIChecks: check}, 1},
		"MachineHealthChecks served in both versions are counted once": {map[string]string{clusterAPIChecks: check, newClusterAPIChecks: check}, 1},
		"server without the kind has no MachineHealthChecks":           {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := (&servedChecks{items: row.items}).dial(t)
			defer c.Close()
			found := c.ReadSurvey(t.Context(), &Look{At: time.Now()}).BuildCheck(nil)
			var count int32
			for _, f := range found.Findings {
				if f.Code == torporv1alpha1.HealthCheckReplacesMachinesFinding {
					count += f.Count
				}
			}
			testenv.ExpectEqual(t, "MachineHealthChecks", row.want, count)
			testenv.ExpectEqual(t, "unread lists", []string(nil), found.Unread)
		})
	}
}
