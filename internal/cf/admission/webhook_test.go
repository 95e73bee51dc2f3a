// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	start = `{"spec":{"desiredState":"STARTED"}}`
	stop  = `{"spec":{"desiredState":"STOPPED"}}`

	managerUser = "manager"
)

// stage is a real API server that calls the real webhooks.
type stage struct {
	*testenv.Environment
	asked atomic.Int64
	down  atomic.Bool
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	s := &stage{Environment: testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	s.install(t)
	t.Run("two hundred restarts are each counted", s.testTwoHundredRestarts)
	t.Run("an edit is refused", s.testEdits)
	t.Run("a retry does not count as a restart", s.testRetries)
	t.Run("author and time are recorded", s.testWho)
	t.Run("the author of a deployment's revision is its creator", s.testDeploymentsAreTheirMakers)
	t.Run("concurrent restarts are each counted once", s.testConcurrentRequests)
	t.Run("concurrent stops and starts are each counted once", s.testConcurrentFlips)
	t.Run("a status is written without admission", s.testStatus)
	t.Run("an unreadable revision is repaired", s.testRepair)
	t.Run("without admission no change is partly applied", s.testDown)
}

// install serves the webhooks and registers them as config/webhook does, but by address instead of by Service.
func (s *stage) install(t *testing.T) {
	t.Helper()
	mux := http.NewServeMux()
	webhooks := Webhooks{Clock: clock.RealClock{}, Manager: func(context.Context) (string, error) { return managerUser, nil }}
	mux.Handle(mutatePath, webhooks.NewMutatingWebhook())
	mux.Handle(validatePath, webhooks.NewValidatingWebhook())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if s.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	mutating, validating := s.InstallWebhooks(t, server.URL, ca)
	strict := func(policy admissionregistrationv1.FailurePolicyType, seconds int32) {
		if policy != admissionregistrationv1.Fail || seconds != 3 {
			t.Errorf("found %s and %d seconds, want Fail and 3", policy, seconds)
		}
	}
	for i := range mutating.Webhooks {
		strict(*mutating.Webhooks[i].FailurePolicy, *mutating.Webhooks[i].TimeoutSeconds)
	}
	for i := range validating.Webhooks {
		strict(*validating.Webhooks[i].FailurePolicy, *validating.Webhooks[i].TimeoutSeconds)
	}
	namespace := s.CreateNamespace(t)
	testenv.Eventually(t, "the API server calls both webhooks", func() error {
		s.asked.Store(0)
		a := app(namespace)
		if err := s.Client.Create(t.Context(), a, client.DryRunAll); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if asked := s.asked.Load(); asked != 2 {
			return fmt.Errorf("expected 2 questions, found %d", asked)
		}
		return nil
	})
}

func app(namespace string) *korifiv1alpha1.CFApp {
	a := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "app-"}}
	a.Spec.DisplayName, a.Spec.DesiredState, a.Spec.Lifecycle.Type = "my-app", korifiv1alpha1.StartedState, korifiv1alpha1.DockerLifecycle
	a.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: "d1"}
	return a
}

// created returns a new started app.
func (s *stage) created(t *testing.T) *korifiv1alpha1.CFApp {
	t.Helper()
	a := app(s.CreateNamespace(t))
	if err := s.Client.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// patched applies a merge patch without a resource version, as the CF API does, and returns the app.
func (s *stage) patched(ctx context.Context, a *korifiv1alpha1.CFApp, patch string) (*korifiv1alpha1.CFApp, error) {
	a = a.DeepCopy()
	return a, s.Client.Patch(ctx, a, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (s *stage) patch(t *testing.T, a *korifiv1alpha1.CFApp, patch string) *korifiv1alpha1.CFApp {
	t.Helper()
	after, err := s.patched(t.Context(), a, patch)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func annotate(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

func at(t *testing.T, a *korifiv1alpha1.CFApp, revision, lastStop int) {
	t.Helper()
	got := []string{a.Annotations[korifiv1alpha1.RevisionAnnotation], a.Annotations[korifiv1alpha1.LastStopRevisionAnnotation]}
	if got[0] != strconv.Itoa(revision) || got[1] != strconv.Itoa(lastStop) {
		t.Fatalf("found revision %s and last stop %s, want %d and %d", got[0], got[1], revision, lastStop)
	}
}

func (s *stage) testTwoHundredRestarts(t *testing.T) {
	a := s.created(t)
	at(t, a, 0, 0)
	for i := range 200 {
		a = s.patch(t, a, stop)
		at(t, a, i+1, i+1)
		a = s.patch(t, a, start)
		at(t, a, i+1, i+1)
	}
}

func (s *stage) testEdits(t *testing.T) {
	a := s.patch(t, s.patch(t, s.created(t), stop), start)
	for name, patch := range map[string]string{
		"a lower revision is rejected":                       annotate(korifiv1alpha1.RevisionAnnotation, "0"),
		"a higher revision is rejected":                      annotate(korifiv1alpha1.RevisionAnnotation, "2"),
		"a revision that is not a number is rejected":        annotate(korifiv1alpha1.RevisionAnnotation, "abc"),
		"a changed last-stop annotation is rejected":         annotate(korifiv1alpha1.LastStopRevisionAnnotation, "0"),
		"a changed droplet annotation is rejected":           annotate(torporv1alpha1.DropletAnnotation, "d2"),
		"a changed author annotation is rejected":            annotate(torporv1alpha1.RevisedByAnnotation, "bob"),
		"a revision in the same patch as a stop is rejected": `{"metadata":{"annotations":{"korifi.cloudfoundry.org/app-rev":"7"}},"spec":{"desiredState":"STOPPED"}}`,
		"empty revisions are rejected":                       `{"metadata":{"annotations":{"korifi.cloudfoundry.org/app-rev":"","korifi.cloudfoundry.org/last-stop-app-rev":""}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.patched(t.Context(), a, patch)
			if !k8serrors.IsInvalid(err) || !strings.Contains(err.Error(), "which Torpor has set; found ") || !strings.Contains(err.Error(), "set torpor.dev/restart-request to a new value to restart") {
				t.Errorf("found %v, want a refusal with the next step", err)
			}
		})
	}
	after := s.patch(t, a, `{"metadata":{"annotations":null}}`)
	at(t, after, 1, 1)
}

func (s *stage) testRetries(t *testing.T) {
	a := s.created(t)
	for range 3 {
		at(t, s.patch(t, a, stop), 1, 1)
	}
	for range 3 {
		at(t, s.patch(t, a, start), 1, 1)
	}
	for range 3 {
		at(t, s.patch(t, a, annotate(torporv1alpha1.RestartRequestAnnotation, "r1")), 2, 2)
	}
	for range 3 {
		at(t, s.patch(t, a, annotate(torporv1alpha1.DeploymentAnnotation, "d1")), 3, 2)
	}
	after := s.patch(t, a, `{"spec":{"currentDropletRef":{"name":"d2"}}}`)
	if got := after.Annotations[torporv1alpha1.DropletAnnotation]; got != "d1" {
		t.Errorf("found droplet %s, want the pinned one", got)
	}
	if got := s.patch(t, a, annotate(torporv1alpha1.RestartRequestAnnotation, "r2")).Annotations[torporv1alpha1.DropletAnnotation]; got != "d2" {
		t.Errorf("found droplet %s, want the assigned one", got)
	}
}

// actAs returns a client that impersonates another user with all rights.
func (s *stage) actAs(t *testing.T, user string) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(s.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := client.New(cfg, client.Options{Scheme: s.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	return c
}

func (s *stage) testWho(t *testing.T) {
	a := s.created(t)
	testenv.ExpectNoError(t, s.actAs(t, "alice").Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(stop))))
	a = s.patch(t, a, start)
	if a.Annotations[torporv1alpha1.RevisedByAnnotation] != "alice" || a.Annotations[torporv1alpha1.RevisedAtAnnotation] == "" || a.Annotations[torporv1alpha1.CauseAnnotation] != "Stop" {
		t.Errorf("found %v, want alice's stop", a.Annotations)
	}
}

// testDeploymentsAreTheirMakers checks that the author of a deployment's revision is the deployment's creator, although
// the manager sends the change that begins the revision.
func (s *stage) testDeploymentsAreTheirMakers(t *testing.T) {
	a := s.created(t)
	d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: a.Namespace, Name: "d1", Annotations: map[string]string{torporv1alpha1.RequestedByAnnotation: "bob", torporv1alpha1.CancelledByAnnotation: "bob"},
	}}
	d.Spec.AppRef.Name = a.Name
	alice, carol := s.actAs(t, "alice"), s.actAs(t, "carol")
	testenv.ExpectNoError(t, alice.Create(t.Context(), d))
	expect := func(requested, cancelled string) {
		t.Helper()
		if by := d.Annotations; by[torporv1alpha1.RequestedByAnnotation] != requested || by[torporv1alpha1.CancelledByAnnotation] != cancelled {
			t.Errorf("expected a deployment requested by %q and cancelled by %q, found %v", requested, cancelled, by)
		}
	}
	expect("alice", "")
	for user, want := range map[string]string{managerUser: "alice", "mallory": "mallory"} {
		deploys := fmt.Sprintf(`{"metadata":{"annotations":{%q:"by-%s",%q:"alice"}}}`, torporv1alpha1.DeploymentAnnotation, user, torporv1alpha1.RevisedByAnnotation)
		testenv.ExpectNoError(t, s.actAs(t, user).Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(deploys))))
		if found := a.Annotations[torporv1alpha1.RevisedByAnnotation]; found != want {
			t.Errorf("a revision that %s begins in alice's name: expected %s, found %q", user, want, found)
		}
	}
	testenv.ExpectNoError(t, carol.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cancelled":true}}`))))
	expect("alice", "carol")
	forge := fmt.Sprintf(`{"metadata":{"annotations":{%q:"bob",%q:null}}}`, torporv1alpha1.RequestedByAnnotation, torporv1alpha1.CancelledByAnnotation)
	testenv.ExpectNoError(t, carol.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(forge))))
	expect("alice", "carol")
}

func (s *stage) testConcurrentRequests(t *testing.T) {
	const clients = 6
	a := s.created(t)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			if _, err := s.patched(t.Context(), a, annotate(torporv1alpha1.RestartRequestAnnotation, strconv.Itoa(i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	at(t, s.patch(t, a, `{}`), clients, clients)
}

// testConcurrentFlips checks that the revision equals the number of effective stops for any interleaving of concurrent
// stops and starts.
func (s *stage) testConcurrentFlips(t *testing.T) {
	const clients, flips = 4, 10
	a := s.created(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]map[string]bool{}
	for range clients {
		group.Go(func() {
			for i := range 2 * flips {
				after, err := s.patched(t.Context(), a, map[bool]string{true: stop, false: start}[i%2 == 0])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				revision := after.Annotations[korifiv1alpha1.RevisionAnnotation]
				if seen[revision] == nil {
					seen[revision] = map[string]bool{}
				}
				seen[revision][string(after.Spec.DesiredState)] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	a = s.patch(t, a, stop)
	last, err := strconv.Atoi(a.Annotations[korifiv1alpha1.RevisionAnnotation])
	if err != nil || last < flips || last > clients*flips+1 {
		t.Fatalf("found revision %d (%v), want at least %d and at most %d", last, err, flips, clients*flips+1)
	}
	for revision := 1; revision < last; revision++ {
		if !seen[strconv.Itoa(revision)]["STOPPED"] {
			t.Errorf("no stop began revision %d of %d", revision, last)
		}
	}
}

func (s *stage) testStatus(t *testing.T) {
	a := s.created(t)
	s.asked.Store(0)
	a.Status.ObservedRevision = 3
	if err := s.Client.SubResource("status").Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if asked := s.asked.Load(); asked != 0 {
		t.Errorf("found %d calls, want none", asked)
	}
}

// testRepair uses an app with an observed revision above its annotation, as after a bypass of admission. The next
// admitted change continues from the observed revision.
func (s *stage) testRepair(t *testing.T) {
	a := s.created(t)
	a.Status.ObservedRevision = 7
	if err := s.Client.SubResource("status").Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	a = s.patch(t, a, `{"spec":{"displayName":"other"}}`)
	at(t, a, 8, 8)
	if got := a.Annotations[torporv1alpha1.CauseAnnotation]; got != "Repair" {
		t.Errorf("found %s, want Repair", got)
	}
}

func (s *stage) testDown(t *testing.T) {
	a := s.created(t)
	s.down.Store(true)
	defer s.down.Store(false)
	_, err := s.patched(t.Context(), a, stop)
	if err == nil || !strings.Contains(err.Error(), "mutate-cfapps.torpor.dev") {
		t.Errorf("found %v, want an error that names the webhook", err)
	}
	t.Logf("without admission the API server returns: %v", err)
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	if at(t, a, 0, 0); a.Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Errorf("found %s, want nothing changed", a.Spec.DesiredState)
	}
}
