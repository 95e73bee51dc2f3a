// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestClientThatGoesAwayLeavesNoAppStopped(t *testing.T) {
	e := shared.Get(t)
	const points, apart = 20, 500 * time.Microsecond
	space, app := e.createShop(t, 1, started)
	alice := e.callerNamed(t, "alice")
	aborted := 0
	for i := range points {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*apart)
		if _, err := alice.try(ctx, "POST", "/v3/apps/"+app+"/actions/restart", ""); err != nil {
			aborted++
		}
		cancel()
		if found := e.getApp(t, space, app); found.Spec.DesiredState != started {
			t.Fatalf("after %d: found it stopped", i)
		}
	}
	alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/restart", "")
	if e.getApp(t, space, app).Spec.DesiredState != started {
		t.Error("found it stopped, want it restarted")
	}
	if aborted == 0 {
		t.Error("expected the client to go away at least once, found that it never did")
	}
}

func TestStatsAreAboutTheCurrentRevisionOnly(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 3, started)
	alice, bob := e.callerNamed(t, "alice"), e.callerNamed(t, "bob")
	path := "/v3/apps/" + app + "/processes/web/stats"
	if r := bob.get(t, path); r.field(t, "resources.2.state") != "RUNNING" {
		t.Fatalf("found %s, want three that run", r.body)
	}
	e.controllers.setIdle(app, true)
	defer e.controllers.setIdle(app, false)
	if r := alice.send(t, "POST", "/v3/apps/"+app+"/actions/restart", ""); r.field(t, "revision") != "1" {
		t.Fatalf("found %s, want revision 1", r.body)
	}
	for range 10 {
		if r := bob.get(t, path); r.field(t, "resources#") != "3" || strings.Contains(r.body, "RUNNING") {
			t.Fatalf("found %s, want three rows of which none runs", r.body)
		}
	}
	answers := alice.getLater(t, path)
	e.controllers.setIdle(app, false)
	if r := <-answers; r.field(t, "resources.2.state") != "RUNNING" {
		t.Errorf("found %s, want the response held until they run", r.body)
	}
}

func TestCrashIsReportedAtOnceWithItsReason(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 2, stopped)
	e.controllers.setCrashing(app)
	alice := e.callerNamed(t, "alice")
	alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/start", "")
	alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/processes/web/stats", "", "resources.0.state=CRASHED", "resources.1.details=exit code 1")
}

func TestAppOfNoInstancesStartsAtOnce(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 0, stopped)
	alice := e.callerNamed(t, "alice")
	alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/start", "")
	if r := alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/processes/web/stats", "", "resources#=0"); r.took > 9*time.Second {
		t.Errorf("found the response held for %s, want it at once", r.took)
	}
}

func TestParallelRestartsEachGetARevision(t *testing.T) {
	e := shared.Get(t)
	const clients = 6
	_, app := e.createShop(t, 1, started)
	alice := e.callerNamed(t, "alice")
	revisions := make([]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			r, err := alice.try(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "")
			if err != nil || r.status != http.StatusOK {
				t.Errorf("found %d %s (%v), want it restarted", r.status, r.body, err)
				return
			}
			revisions[i] = r.field(t, "revision")
		})
	}
	group.Wait()
	slices.Sort(revisions)
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(revisions, want) {
		t.Errorf("found revisions %v, want %v", revisions, want)
	}
}

func TestDeploymentIsCancelled(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 2, started)
	e.controllers.setIdle(app, true)
	alice, bob, mallory := e.callerNamed(t, "alice"), e.callerNamed(t, "bob"), e.callerNamed(t, "mallory")
	made := alice.expect(t, http.StatusCreated, "POST /v3/deployments", `{`+relatedTo(app)+`}`, "status.reason=DEPLOYING", "revision.version=1")
	path := "/v3/deployments/" + made.field(t, "guid")
	bob.expect(t, http.StatusForbidden, "POST "+path+"/actions/cancel", "")
	mallory.expect(t, http.StatusNotFound, "POST "+path+"/actions/cancel", "")
	alice.expect(t, http.StatusOK, "POST "+path+"/actions/cancel", "")
	bob.expect(t, http.StatusOK, "GET "+path, "", "status.value=FINALIZED", "status.reason=CANCELED")
	alice.expect(t, http.StatusUnprocessableEntity, "POST "+path+"/actions/cancel", "")
}

// TestCancelThatIsTooLateIsRefused cancels a deployment after the controllers have reported that no older revision is
// left.
func TestCancelThatIsTooLateIsRefused(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 2, started)
	e.controllers.setIdle(app, true)
	e.controllers.setUncancellable(app)
	alice := e.callerNamed(t, "alice")
	path := "/v3/deployments/" + alice.expect(t, http.StatusCreated, "POST /v3/deployments", `{`+relatedTo(app)+`}`).field(t, "guid")
	alice.expect(t, http.StatusUnprocessableEntity, "POST "+path+"/actions/cancel", "", "errors.0.detail="+tooLateToCancel)
}

// TestCancelRestoresTheServingRevision cancels two deployments. After the second, the revision that serves again is not
// the one with the preceding number.
func TestCancelRestoresTheServingRevision(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 2, started)
	alice := e.callerNamed(t, "alice")
	env := "/v3/apps/" + app + "/environment_variables"
	alice.expect(t, http.StatusOK, "PATCH "+env, `{"var":{"COLOUR":"red"}}`)
	alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/restart", "", "revision=1")
	alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/processes/web/stats", "", "resources.1.state=RUNNING")
	e.controllers.setIdle(app, true) // The instances of revision 1 continue to serve.
	for i, colour := range []string{"green", "blue"} {
		alice.expect(t, http.StatusOK, "PATCH "+env, `{"var":{"COLOUR":"`+colour+`"}}`)
		deployed := alice.expect(t, http.StatusCreated, "POST /v3/deployments", `{`+relatedTo(app)+`}`, "revision.version="+strconv.Itoa(i+2))
		testenv.Eventually(t, "the revision keeps its settings", func() error {
			if r := alice.get(t, "/v3/revisions/"+app+"-"+strconv.Itoa(i+2)+"/environment_variables"); r.field(t, "var.COLOUR") != colour {
				return errorFound(r)
			}
			return nil
		})
		alice.expect(t, http.StatusOK, "POST /v3/deployments/"+deployed.field(t, "guid")+"/actions/cancel", "")
		alice.expect(t, http.StatusOK, "GET "+env, "", "var.COLOUR=red")
	}
}

// Revisions are not counted if the admission webhooks are not configured, or exclude the space.
func TestARestartThatBeginsNoRevisionIsAnError(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	alice := e.callerNamed(t, "alice")
	selector := fmt.Appendf(nil, `[{"op":"add","path":"/webhooks/0/namespaceSelector","value":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":[%q]}]}}]`, space)
	for _, configuration := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		configuration.SetName("torpor")
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), configuration, client.RawPatch(types.JSONPatchType, selector)))
	}
	for _, action := range []string{"restart", "stop"} {
		testenv.Eventually(t, "a "+action+" that begins no revision is an error", func() error {
			r := alice.send(t, "POST", "/v3/apps/"+app+"/actions/"+action, "")
			said := r.status == http.StatusServiceUnavailable && strings.Contains(r.field(t, "errors.0.detail"), "the admission webhook of apps is not installed")
			return testenv.ErrorIf(!said, "found %d %s", r.status, r.body)
		})
	}
}

func TestAppActionsFailWhileAdmissionIsDown(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	before := e.getApp(t, space, app)
	alice := e.callerNamed(t, "alice")
	e.admissionDown.Store(true)
	defer e.admissionDown.Store(false)
	for _, action := range []string{"stop", "restart"} {
		r := alice.expect(t, http.StatusServiceUnavailable, "POST /v3/apps/"+app+"/actions/"+action, "")
		if !strings.Contains(r.field(t, "errors.0.detail"), "check the current state, and try again") {
			t.Errorf("%s: found %s, want an error with the next step", action, r.body)
		}
	}
	e.admissionDown.Store(false)
	e.expectUnchanged(t, before)
	testenv.Eventually(t, "a restart works again", func() error {
		_, err := alice.try(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "")
		return err
	})
}

func TestInstancesOfOneAnswerAreBounded(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	for i := range 11 {
		p := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprintf("%s-%d", space, i)}}
		p.Spec = korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: app}, ProcessType: fmt.Sprintf("w%d", i), MemoryMB: 1, DiskQuotaMB: 1, DesiredInstances: new(int32(korifiv1alpha1.MaxInstances)),
		}
		e.ExpectCreated(t, p)
	}
	alice, path := e.callerNamed(t, "alice"), "GET /v3/processes?embed=process_instances&space_guids="+space
	testenv.Eventually(t, "the API has the processes in its cache", func() error {
		if r := alice.get(t, "/v3/processes?space_guids="+space); r.field(t, "pagination.total_results") != "12" {
			return errorFound(r)
		}
		return nil
	})
	if r := alice.expect(t, http.StatusUnprocessableEntity, path, ""); !strings.Contains(r.body, "expected at most 100000 instances in one response") {
		t.Errorf("found %.200s", r.body)
	}
	alice.expect(t, http.StatusOK, path+"&per_page=5", "", "resources#=5")
}

// A package cannot be built until the builder has received its code. A client that filters for ready packages does not
// receive the package.
func TestCodeThatIsAwaitedIsNotBuilt(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	code := &korifiv1alpha1.CFPackage{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: space + "-code"}, Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.BitsPackage, AppRef: korifiv1alpha1.Reference{Name: app},
	}}
	e.ExpectCreated(t, code)
	alice := e.callerNamed(t, "alice")
	alice.awaitStatus(t, http.StatusOK, "/v3/packages/"+code.Name)
	alice.expect(t, http.StatusUnprocessableEntity, "POST /v3/builds", `{"package":{"guid":"`+code.Name+`"}}`)
	ready := alice.expect(t, http.StatusOK, "GET /v3/packages?states=READY&app_guids="+app, "", "resources#=1", "resources.0.type=docker").field(t, "resources.0.guid")
	alice.expect(t, http.StatusOK, "GET /v3/packages?types=bits&app_guids="+app, "", "resources#=1", "resources.0.guid="+code.Name)
	alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/packages?guids="+ready, "", "resources#=1", "resources.0.guid="+ready)
}

func TestLoginsAtRegistriesAreSecretsOfTheApp(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	alice := e.callerNamed(t, "alice")
	createPackage := func(status int, image, login string) string {
		t.Helper()
		answer := alice.expect(t, status, "POST /v3/packages", `{"type":"docker","data":{"image":"`+image+`"`+login+`},`+relatedTo(app)+`}`)
		if strings.Contains(string(answer.body), "s3cret") {
			t.Errorf("expected a response without the password, found %s", answer.body)
		}
		if status != http.StatusCreated {
			return ""
		}
		made := &korifiv1alpha1.CFPackage{}
		testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: answer.field(t, "guid")}, made))
		if len(made.Spec.Source.Registry.ImagePullSecrets) != 1 {
			t.Fatalf("expected one Secret, found %v", made.Spec.Source.Registry)
		}
		return made.Spec.Source.Registry.ImagePullSecrets[0].Name
	}
	createPackage(http.StatusUnprocessableEntity, "shop", `,"username":"alice"`)
	createPackage(http.StatusUnprocessableEntity, "No/Image", `,"username":"alice","password":"s3cret1"`)
	first := createPackage(http.StatusCreated, "registry.example.com:5000/shop:1", `,"username":"alice","password":"s3cret1"`)
	second := createPackage(http.StatusCreated, "registry.example.com:5000/other:2", `,"username":"alice","password":"s3cret2"`)
	hub := createPackage(http.StatusCreated, "shop", `,"username":"alice","password":"s3cret3"`)
	if first != second || first == hub {
		t.Errorf("expected one Secret for each registry, found %s, %s and %s", first, second, hub)
	}
	for name, want := range map[string]string{
		first: `{"auths":{"registry.example.com:5000":{"auth":"YWxpY2U6czNjcmV0Mg==","password":"s3cret2","username":"alice"}}}`,
		hub:   `{"auths":{"https://index.docker.io/v1/":{"auth":"YWxpY2U6czNjcmV0Mw==","password":"s3cret3","username":"alice"}}}`,
	} {
		secret := &corev1.Secret{}
		testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, secret))
		if found := string(secret.Data[corev1.DockerConfigJsonKey]); found != want || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Name != app {
			t.Errorf("expected a Secret of the app with %s, found %s of %v", want, found, secret.OwnerReferences)
		}
	}
	e.log.ExpectWithout(t, "s3cret1", "s3cret2", "s3cret3")
}
