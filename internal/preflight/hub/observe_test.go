// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/installation"
	"github.com/torpor-dev/torpor/internal/preflight"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestHubIsLookedAt asks a real API server, first as it is, and then after each change that a check is about.
func TestHubIsLookedAt(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	check := func(name string, cfg *rest.Config, want map[preflight.Check]preflight.CheckState, says ...string) {
		t.Helper()
		seen, err := Observer{Config: cfg, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
		testenv.ExpectNoError(t, err)
		worst, text := map[preflight.Check]preflight.CheckState{}, ""
		for _, f := range preflight.Judge(seen) {
			text += string(f.Check) + ": " + f.Message + "\n"
			if f.State != preflight.Passed && worst[f.Check] != preflight.Failed {
				worst[f.Check] = f.State
			}
		}
		for _, c := range preflight.ListChecks() {
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
	check("a bare hub is ready", env.Config, nil, "no Torpor acts yet", "0 are Torpor's")
	stranger := env.ImpersonateUser("stranger", "system:authenticated")
	if _, err := (Observer{Config: stranger, Namespace: "torpor-system", Clock: clock.RealClock{}}).Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("expected that a stranger may not look, found %v", err)
	}
	env.GrantRights(t, "viewer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get"}})
	check("somebody who may only look is told so", env.ImpersonateUser("viewer", "system:authenticated"),
		map[preflight.Check]preflight.CheckState{preflight.RightsCheck: preflight.Failed}, "found none to create namespaces")
	for name, row := range map[string]struct {
		by   time.Duration
		want preflight.CheckState
	}{
		"a clock that is half a minute late": {-30 * time.Second, preflight.Warned},
		"a clock that is an hour early":      {time.Hour, preflight.Failed},
	} {
		cfg := rest.CopyConfig(env.Config)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return shiftedClock{next, row.by} })
		check(name, cfg, map[preflight.Check]preflight.CheckState{preflight.ClockCheck: row.want}, "apart")
	}
	env.InstallCRDs(t, filepath.Join("..", "..", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml"))
	env.ExpectCreated(t,
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: installation.LeaseNamespace, Name: installation.LeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("elsewhere"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())},
		},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: webhookName},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "mutate-cfapps.torpor.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			}},
		})
	check("a hub with Hive, another Torpor and a webhook without trust", env.Config, map[preflight.Check]preflight.CheckState{
		preflight.DefinitionsCheck: preflight.Warned, preflight.InstallationCheck: preflight.Failed, preflight.WebhookCheck: preflight.Failed,
	}, "clusterdeployments.hive.openshift.io: another project's", "namespace elsewhere acts", "mutate-cfapps.torpor.dev: expected a certificate")
}

// TestWhatNotesWhoStopsThingsIsTold looks at an API server with the policies, and at an older one before and after it has the webhook.
func TestWhatNotesWhoStopsThingsIsTold(t *testing.T) {
	t.Parallel()
	expect := func(env *testenv.Environment, want preflight.CheckState, says string) {
		t.Helper()
		seen, err := Observer{Config: env.Config, Namespace: "torpor-system", Clock: clock.RealClock{}}.Observe(t.Context())
		testenv.ExpectNoError(t, err)
		for _, f := range preflight.Judge(seen) {
			if f.Check == preflight.RecordCheck && (f.State != want || !strings.Contains(f.Message, says)) {
				t.Errorf("expected %s and %q, found %+v", want, says, f)
			}
		}
	}
	newer, older := testenv.Start(t), testenv.StartOlder(t, "1.33")
	expect(newer, preflight.Passed, "kubectl apply -k config/record")
	newer.ApplyManifest(t, "record/hibernation.yaml")
	expect(newer, preflight.Passed, "policies note who stops things: torpor-hibernation-record")
	expect(older, preflight.Warned, "there is no webhook")
	older.ApplyManifest(t, "record/webhook/hibernation.yaml")
	expect(older, preflight.Warned, "torpor-hibernation-record: expected a certificate in the caBundle, found 0 bytes")
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

func TestALeaseThatIsOverActsNoMore(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	holder, seconds := "torpor-system", int32(60)
	for name, row := range map[string]struct {
		renewed *metav1.MicroTime
		want    string
	}{
		"held":              {&metav1.MicroTime{Time: now.Add(-59 * time.Second)}, holder},
		"over":              {&metav1.MicroTime{Time: now.Add(-61 * time.Second)}, ""},
		"never renewed yet": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if found := findActing(&holder, row.renewed, &seconds, now); found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
