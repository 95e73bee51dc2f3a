// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func formOf(verb, kind, namespace, name, part, until string) url.Values {
	return url.Values{"verb": {verb}, "kind": {kind}, "namespace": {namespace}, "name": {name}, "part": {part}, "until": {until}}
}

func (b *browser) expectAnswer(t *testing.T, what, path string, form url.Values, status int, words string) {
	t.Helper()
	if found, text := b.post(t, path, form, nil); found != status || !strings.Contains(text, words) {
		t.Errorf("%s: expected %d with %q, found %d: %s", what, status, words, found, text)
	}
}

// TestExtensionsPostponeAnEnd extends the stops of stopped clusters with an end, and tries to extend a running cluster.
func TestExtensionsPostponeAnEnd(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	end := time.Now().Add(5 * time.Hour).UTC().Truncate(time.Second)
	stopped, running := buildCluster(namespace, "stopped"), buildCluster(namespace, "running")
	stopped.Spec.PowerState = hivev1.PowerStateHibernating
	e.ExpectCreated(t, stopped, running)
	stopped.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Now().Truncate(time.Second)), By: "ann", Until: new(metav1.NewTime(end)), Requested: true}}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), stopped))
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	_, viewerToken := e.createAccount(t, namespace, "viewer", "get", "list")
	operator, viewer := e.openBrowser(t), e.openBrowser(t)
	operator.logIn(t, token)
	viewer.logIn(t, viewerToken)
	extend := func(name, until string) url.Values {
		return formOf("extend", "ClusterDeployment", namespace, name, "machines", until)
	}
	operator.expectAnswer(t, "no end", "/switch", extend("stopped", ""), http.StatusBadRequest, "expected the new end")
	operator.expectAnswer(t, "an earlier end", "/switch", extend("stopped", "1h"), http.StatusConflict, "after the current end of the stop, "+end.Format(time.RFC3339))
	operator.expectAnswer(t, "an end that has passed", "/switch", extend("stopped", "2020-01-01T00:00:00Z"), http.StatusBadRequest, "which has passed")
	operator.expectAnswer(t, "a cluster that runs", "/switch", extend("running", "9h"), http.StatusConflict, "expected a manual stop in effect, found none")
	viewer.expectAnswer(t, "a viewer", "/switch", extend("stopped", "9h"), http.StatusForbidden, "cannot patch")
	operator.expectAnswer(t, "a later end", "/switch", extend("stopped", "9h"), http.StatusNoContent, "")
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "stopped"}, stopped))
	until, err := time.Parse(time.RFC3339, stopped.Annotations[torporv1alpha1.UntilAnnotation])
	if err != nil || until.Sub(end) < 3*time.Hour || until.Sub(end) > 5*time.Hour {
		t.Errorf("expected an end four hours after %s, found %q: %v", end, stopped.Annotations[torporv1alpha1.UntilAnnotation], err)
	}
}

// TestSkipsEndWithTheSleep skips the stop of a Deployment until a given time, and until the end of its Slumber's sleep.
func TestSkipsEndWithTheSleep(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	e.createDeployment(t, namespace, "web", nil)
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	b := e.openBrowser(t)
	b.logIn(t, token)
	skip := func(until string) url.Values {
		return formOf("skip", "Deployment", namespace, "web", "replicas", until)
	}
	readSkip := func() string {
		web := &appsv1.Deployment{}
		testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "web"}, web))
		return web.Annotations[torporv1alpha1.SkipUntilAnnotation]
	}
	b.expectAnswer(t, "no Slumber", "/switch", skip(""), http.StatusConflict, "enter the end")
	b.expectAnswer(t, "an end that has passed", "/switch", skip("2020-01-01T00:00:00Z"), http.StatusBadRequest, "which has passed")
	testenv.ExpectEqual(t, "the skip", "", readSkip())
	b.expectAnswer(t, "a time", "/switch", skip("2099-01-02T03:04:05+01:00"), http.StatusNoContent, "")
	testenv.ExpectEqual(t, "the skip", "2099-01-02T02:04:05Z", readSkip())
	e.ExpectCreated(t, &torporv1alpha1.Slumber{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nights"},
		Spec: torporv1alpha1.SlumberSpec{
			TimeZone: "UTC", Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 19 * * *", Wake: "0 7 * * *"}},
			Waves: []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{APIGroup: "apps", Kind: "Deployment"}}}},
		},
	})
	b.expectAnswer(t, "a caller who may not read Slumbers", "/switch", skip(""), http.StatusConflict, "enter the end")
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "slumbers"}
	e.ExpectCreated(t,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{"torpor.dev"}, Resources: []string{"slumbers"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "slumbers"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "operator"}},
		})
	testenv.Eventually(t, "the skip ends with the sleep", func() error {
		if status, text := b.post(t, "/switch", skip(""), nil); status != http.StatusNoContent {
			return fmt.Errorf("expected 204, found %d: %s", status, text)
		}
		return nil
	})
	if found := readSkip(); !strings.HasSuffix(found, "T07:00:00Z") || strings.HasPrefix(found, "2099") {
		t.Errorf("expected a skip until 7:00, found %q", found)
	}
}

// TestSeveralObjectsAreOneRequest stops two clusters and a missing one in one request, and sends requests that are
// rejected as a whole.
func TestSeveralObjectsAreOneRequest(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	e.ExpectCreated(t, buildCluster(namespace, "a"), buildCluster(namespace, "b"))
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	_, viewerToken := e.createAccount(t, namespace, "viewer", "get", "list")
	operator, viewer := e.openBrowser(t), e.openBrowser(t)
	operator.logIn(t, token)
	viewer.logIn(t, viewerToken)
	object := func(name, part string) string {
		return url.Values{"kind": {"ClusterDeployment"}, "namespace": {namespace}, "name": {name}, "part": {part}}.Encode()
	}
	a, b := object("a", "machines"), object("b", "machines")
	stop := url.Values{"verb": {"stop"}, "reason": {"a bill"}, "object": {a, b}}
	with := func(name string, values ...string) url.Values {
		changed := maps.Clone(stop)
		changed[name] = values
		return changed
	}
	many := make([]string, maxBulk+1)
	for i := range many {
		many[i] = a
	}
	e.openBrowser(t).expectAnswer(t, "no token", "/switches", stop, http.StatusUnauthorized, "Log in again")
	operator.expectAnswer(t, "no object", "/switches", with("object"), http.StatusBadRequest, "expected 1 to 50 objects, found 0")
	operator.expectAnswer(t, "too many objects", "/switches", with("object", many...), http.StatusBadRequest, "found 51")
	operator.expectAnswer(t, "another verb", "/switches", with("verb", "skip"), http.StatusBadRequest, `found "skip"`)
	operator.expectAnswer(t, "an invalid object", "/switches", with("object", a, object("b", "wheels")), http.StatusBadRequest, `found "wheels"`)
	operator.expectAnswer(t, "an invalid end", "/switches", with("until", "someday"), http.StatusBadRequest, `found "someday"`)
	if status, text := operator.post(t, "/switches", stop, map[string]string{"Sec-Fetch-Site": "cross-site"}); status != http.StatusForbidden {
		t.Errorf("another site: expected 403, found %d: %s", status, text)
	}
	readStates := func() (states string) {
		for _, name := range []string{"a", "b"} {
			cd := &hivev1.ClusterDeployment{}
			testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, cd))
			states += fmt.Sprint(cd.Spec.PowerState == hivev1.PowerStateHibernating, " ", cd.Annotations[torporv1alpha1.ReasonAnnotation], ";")
		}
		return states
	}
	send := func(by *browser, form url.Values) (result bulkResult) {
		status, text := by.post(t, "/switches", form, nil)
		if status != http.StatusOK {
			t.Fatalf("expected 200, found %d: %s", status, text)
		}
		testenv.ExpectNoError(t, json.Unmarshal([]byte(text), &result))
		return result
	}
	refused := send(viewer, stop)
	if refused.Done != 0 || len(refused.Refused) != 2 || !strings.Contains(refused.Refused[1].Error, "cannot patch") || refused.Refused[1].Object != b {
		t.Errorf("a viewer: expected two refusals, found %+v", refused)
	}
	testenv.ExpectEqual(t, "the clusters", "false ;false ;", readStates())
	stopped := send(operator, with("object", a, object("none", "machines"), b))
	if stopped.Done != 2 || len(stopped.Refused) != 1 || stopped.Refused[0].Object != object("none", "machines") {
		t.Errorf("expected two stops and a refusal, found %+v", stopped)
	}
	testenv.ExpectEqual(t, "the clusters", "true a bill;true a bill;", readStates())
	if started := send(operator, with("verb", "start")); started.Done != 2 {
		t.Errorf("expected two starts, found %+v", started)
	}
	testenv.ExpectEqual(t, "the clusters", "false ;false ;", readStates())
}

// TestEndsAreThoseOfTheCallersZone shows the ends for several inputs, and stops a cluster until "tomorrow" or a similar
// word.
func TestEndsAreThoseOfTheCallersZone(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	e.ExpectCreated(t, buildCluster(namespace, "fleet"))
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	b := e.openBrowser(t)
	b.logIn(t, token)
	day := time.Now().UTC().AddDate(0, 0, 30)
	date := day.Format(time.DateOnly)
	for query, want := range map[string]string{
		"until=" + date + "&zone=Asia/Tokyo": "200 " + date + " 08:00 JST", "until=" + date: "200 " + date + " 08:00 UTC",
		"until=someday": `400 found "someday"`, "until=1h&zone=Mars": `400 found "Mars"`, "": `400 found ""`,
	} {
		status, text := b.get(t, "/until?"+query)
		code, words, _ := strings.Cut(want, " ")
		if fmt.Sprint(status) != code || !strings.Contains(text, words) {
			t.Errorf("%s: expected %s, found %d: %s", query, want, status, text)
		}
	}
	if status, _ := e.openBrowser(t).get(t, "/until?until=1h"); status != http.StatusUnauthorized {
		t.Errorf("without a token: expected 401, found %d", status)
	}
	stop := formOf("stop", "ClusterDeployment", namespace, "fleet", "machines", date)
	stop.Set("zone", "Asia/Tokyo")
	b.expectAnswer(t, "a day", "/switch", stop, http.StatusNoContent, "")
	cd := &hivev1.ClusterDeployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "fleet"}, cd))
	testenv.ExpectEqual(t, "the end", day.AddDate(0, 0, -1).Format(time.DateOnly)+"T23:00:00Z", cd.Annotations[torporv1alpha1.UntilAnnotation])
}

// TestTilesAndTheEmptyPageLead checks that every tile links to its objects, and that a caller without objects gets the
// first commands.
func TestTilesAndTheEmptyPageLead(t *testing.T) {
	t.Parallel()
	text := string(renderSummary(view{Summary: summaryView{Total: 3, Overdue: 1, SavedHours: "7.0"}}))
	for _, state := range []string{"", "state=stopped", "state=changing", "state=stuck", "state=overdue", "state=saving"} {
		if !strings.Contains(text, `<a href="?`+state+`"`) {
			t.Errorf("expected a tile with %q, found %s", state, text)
		}
	}
	if found := strings.Count(string(renderEmpty(view{})), "<code>kubectl torpor "); found != 3 {
		t.Errorf("expected three commands on an empty page, found %d", found)
	}
	testenv.ExpectEqual(t, "a page with objects", "", string(renderEmpty(view{Summary: summaryView{Total: 1}})))
	now := time.Now()
	cd := buildCluster("ns", "fleet")
	cd.Spec.PowerState, cd.Status.PowerState = hivev1.PowerStateHibernating, "Hibernating"
	cd.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now.Add(-9 * time.Hour)), Until: new(metav1.NewTime(now.Add(-time.Hour))), Requested: true}}
	cd.Status.Hibernation = &hivev1.HibernationRecord{Nodes: make([]hivev1.RecordedNode, 2), AsleepAt: new(metav1.NewTime(now.Add(-time.Hour)))}
	running := buildCluster("ns", "other")
	for state, want := range map[string]bool{"overdue": true, "saving": true, "stopped": true, "running": false} {
		testenv.ExpectEqual(t, state, want, viewQuery{State: state}.hasState(newListing(clusterDeployments(t), cd).switches[0], now))
	}
	for _, state := range []string{"overdue", "saving"} {
		testenv.ExpectEqual(t, state, false, viewQuery{State: state}.hasState(newListing(clusterDeployments(t), running).switches[0], now))
	}
}
