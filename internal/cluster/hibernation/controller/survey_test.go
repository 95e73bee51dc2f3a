// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestSurveyReportsRisksOfAHibernation uses a cluster with a CronJob that starts every minute, and a webhook that
// nodes need. The cluster hibernates despite the findings.
func TestSurveyReportsRisksOfAHibernation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	possible := hivev1.ClusterHibernationPossibleCondition
	e.startManager(t, clouds())
	clean := e.newCluster(t, nil)
	clean.awaitCondition(t, expectedCondition{possible, "True", hivev1.NothingFoundReason, nil})

	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	e.ExpectCreated(t, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "often"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
	}})
	e.ExpectCreated(t, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "guard.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "guard"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"certificates.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"certificatesigningrequests"}},
		}},
	}}})
	s := e.newCluster(t, nil)
	found := expectedCondition{possible, "False", torporv1alpha1.WebhookBlocksWakeUpFinding, []string{"found guard;", "CronJobsMissStarts: ", "default/often"}}
	s.awaitCondition(t, found)
	check := s.get(t).Status.HibernationCheck
	if check == nil || check.WakeBy == nil || !check.WakeBy.After(time.Now()) {
		t.Fatalf("expected certificates that last for a while, found %+v", check)
	}
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.awaitEvents(t, torporv1alpha1.WebhookBlocksWakeUpFinding, "Stopping", "Hibernating")
	if err := found.check(s.get(t)); err != nil {
		t.Error(err)
	}

	// The findings about certificates are still reported while the cluster hibernates.
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, torporv1alpha1.UntilAnnotation, check.WakeBy.Add(time.Hour).UTC().Format(time.RFC3339)))
	s.awaitCondition(t, expectedCondition{possible, "False", torporv1alpha1.StopOutlastsCertificatesFinding, []string{"WebhookBlocksWakeUp: "}})
	for _, cluster := range []*testCluster{clean, s} {
		series := "torpor_cluster_wake_by_timestamp_seconds name=" + cluster.key.Name + " namespace=" + cluster.key.Namespace
		testenv.ExpectEqual(t, series, float64(check.WakeBy.Unix()), e.gatherMetrics(t)[series])
	}
}

// TestIncompleteSurveyIsRepeated uses API servers that fail to serve a list the first time. The missing findings are
// reported within minutes, not only by the next regular pass ten minutes later.
func TestIncompleteSurveyIsRepeated(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	type surveyed struct {
		*testCluster

		lists *atomic.Int64
	}
	clusters := map[string]surveyed{}
	for title, failOnce := range map[string]http.HandlerFunc{
		"survey without an answer in time is repeated": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"survey after too many requests is repeated":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"survey with an internal error is repeated":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		kubeconfig, lists := e.serveTargetAPI(t, failOnce)
		s := e.newCluster(t, func(r *clusterSetup) { r.kubeconfig = kubeconfig })
		clusters[title] = surveyed{s, lists}
	}
	for title, s := range clusters {
		t.Run(title, func(t *testing.T) {
			s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "True", hivev1.NothingFoundReason, nil})
			if s.lists.Load() < 2 {
				t.Error("expected a list that failed, and another, found one")
			}
		})
	}
}

// serveTargetAPI returns a kubeconfig for an API server that fails the first list of CronJobs, and a counter of the
// lists of CronJobs.
func (e *env) serveTargetAPI(t *testing.T, failOnce http.HandlerFunc) (kubeconfig map[string][]byte, lists *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(e.Config.Host)
	testenv.ExpectNoError(t, err)
	transport, err := rest.TransportFor(e.Config)
	testenv.ExpectNoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	lists = &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/cronjobs") && lists.Add(1) == 1 {
			failOnce(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return writeKubeconfig(t, server.URL, authority, "any"), lists
}

func TestClustersAreSurveyedInTurn(t *testing.T) {
	name, now := types.NamespacedName{Namespace: "n", Name: "c"}, fixedTime()
	isDue := func(s *surveySchedule, isKnown bool, after time.Duration) bool {
		return s.isDue(name, isKnown, now.Add(after))
	}
	for title, row := range map[string]struct {
		isKnown           bool
		atOnce, afterHour bool
	}{
		"cluster without a survey is surveyed at once":                          {false, true, true},
		"cluster that was surveyed before a restart is surveyed within an hour": {true, false, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newSurveySchedule()
			testenv.ExpectEqual(t, "due at once", row.atOnce, isDue(s, row.isKnown, 0))
			testenv.ExpectEqual(t, "due in an hour", row.afterHour, isDue(s, row.isKnown, time.Hour))
			s.noteMade(name, true, now.Add(-time.Hour))
			testenv.ExpectEqual(t, "due soon after an incomplete survey", true, isDue(s, row.isKnown, -time.Hour+2*time.Minute))
			s.noteMade(name, false, now.Add(time.Hour))
			testenv.ExpectEqual(t, "due within the hour after that", false, isDue(s, row.isKnown, 2*time.Hour-time.Minute))
			testenv.ExpectEqual(t, "due later", true, isDue(s, row.isKnown, 2*time.Hour+12*time.Minute))
			s.forget(name)
			testenv.ExpectEqual(t, "remembered surveys", 0, len(s.due))
		})
	}
}

// TestAClusterThatNeverShowsAllCostsLittle uses surveys that are always incomplete. The interval doubles up to the
// usual one.
func TestAClusterThatNeverShowsAllCostsLittle(t *testing.T) {
	name, now := types.NamespacedName{Namespace: "n", Name: "c"}, fixedTime()
	s := newSurveySchedule()
	testenv.ExpectEqual(t, "the wait before any survey", time.Duration(0), s.untilRetry(name, now))
	for _, seconds := range []int{15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600} {
		s.noteMade(name, true, now)
		least := time.Duration(seconds) * time.Second
		if wait := s.untilRetry(name, now); wait < least || wait > least*6/5 {
			t.Errorf("expected the next after %s, or up to a fifth later, found %s", least, wait)
		}
	}
	testenv.ExpectEqual(t, "the wait for a due survey", time.Duration(0), s.untilRetry(name, now.Add(2*time.Hour)))
	s.noteMade(name, false, now)
	testenv.ExpectEqual(t, "the wait after a complete survey", time.Duration(0), s.untilRetry(name, now))
	s.noteMade(name, true, now)
	if wait := s.untilRetry(name, now); wait > 18*time.Second {
		t.Errorf("expected the first wait again after a complete survey, found %s", wait)
	}
}
