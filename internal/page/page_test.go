// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func buildCluster(namespace, name string) *hivev1.ClusterDeployment {
	return testenv.BuildClusterDeployment(types.NamespacedName{Namespace: namespace, Name: name}, "cloud", "kubeconfig")
}

func buildApp(namespace, name string) *korifiv1alpha1.CFApp {
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: namespace, Name: name})
	app.Spec.DesiredState = korifiv1alpha1.StoppedState
	return app
}

// expectShown waits until a page contains all texts in shown and none in hidden.
func (b *browser) expectShown(t *testing.T, path string, shown, hidden []string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s shows %q", path, shown), func() error {
		status, text := b.get(t, path)
		if status != http.StatusOK {
			return fmt.Errorf("expected 200, found %d: %s", status, text)
		}
		for _, words := range shown {
			if !strings.Contains(text, words) {
				return fmt.Errorf("expected %q, found none", words)
			}
		}
		for _, words := range hidden {
			if strings.Contains(text, words) {
				t.Errorf("expected no %q, found it", words)
			}
		}
		return nil
	})
}

func TestPageShowsWhatItsCallerMayList(t *testing.T) {
	e := shared.Get(t)
	ours, others := e.CreateNamespace(t), e.CreateNamespace(t)
	e.ExpectCreated(t, buildCluster(ours, "ours"), buildCluster(others, "theirs"), buildApp(ours, "shop"))
	_, token := e.createAccount(t, ours, "viewer", "list")
	b := e.openBrowser(t)
	for _, path := range []string{"/", "/events"} {
		if status, text := b.get(t, path); status != http.StatusUnauthorized || strings.Contains(text, "ours") {
			t.Errorf("%s without a token: expected 401 and no object, found %d: %s", path, status, text)
		}
	}
	if status, text := b.post(t, "/login", url.Values{"token": {"nobody"}}, nil); status != http.StatusUnauthorized || !strings.Contains(text, "does not accept this token") {
		t.Errorf("a wrong token: expected 401, found %d: %s", status, text)
	}
	b.logIn(t, token)
	b.expectShown(t, "/", []string{">ours<", ">shop<", "system:serviceaccount:" + ours + ":viewer"}, []string{"theirs", others, "<button type=\"button\" data-verb"})
	b.expectShown(t, "/?namespace="+others, []string{"Nothing to show"}, []string{"theirs"})
	b.expectShown(t, "/?kind=CFApp", []string{">shop<"}, []string{">ours<"})
	b.expectShown(t, "/?q=sho+cfapp", []string{">shop<"}, []string{">ours<"})
	if status, text := b.post(t, "/logout", nil, nil); status != http.StatusUnauthorized || !strings.Contains(text, "Log in") {
		t.Errorf("after the log-out: expected the form and 401, found %d: %s", status, text)
	}
}

// TestPageShowsWorkloadsThatAreStopped covers Deployments that a Slumber, a ClusterSlumber and a user stop, and one
// that was never stopped.
func TestPageShowsWorkloadsThatAreStopped(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	night, err := json.Marshal(torporv1alpha1.ScheduledStop{
		Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: since, By: "slumber/nights", Reason: "nobody works at night", Requested: true}},
	})
	testenv.ExpectNoError(t, err)
	everywhere, err := json.Marshal(torporv1alpha1.ScheduledStop{
		Slumber: "cluster_nights", Stops: []torporv1alpha1.StopRecord{{Since: since, By: "ClusterSlumber nights", Reason: "development stops at night", Requested: true}},
	})
	testenv.ExpectNoError(t, err)
	for name, annotations := range map[string]map[string]string{
		"dozy": {
			torporv1alpha1.SlumberAnnotationPrefix + "cluster_nights": string(everywhere),
			torporv1alpha1.RestoreAnnotation:                          `[{"path":"/spec/replicas","before":2,"after":0}]`,
		},
		"sleepy": {
			torporv1alpha1.SlumberAnnotationPrefix + "nights": string(night),
			torporv1alpha1.RestoreAnnotation:                  `[{"path":"/spec/replicas","before":2,"after":0}]`,
		},
		"asked": {torporv1alpha1.StoppedAnnotation: "true", torporv1alpha1.ReasonAnnotation: "a bill"},
		"busy":  nil,
	} {
		e.ExpectCreated(t, testenv.DecodeObject(t, fmt.Sprintf(`{"metadata": {"namespace": %q, "name": %q}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": %[2]q}},
			"template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}`, namespace, name), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}))
	}
	_, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	b := e.openBrowser(t)
	b.logIn(t, token)
	b.expectShown(t, "/?kind=Deployment", []string{">sleepy<", ">asked<", "nobody works at night", "slumber/nights", ">dozy<", "development stops at night", "ClusterSlumber nights", `data-verb="skip"`}, []string{">busy<"})
	start := url.Values{"verb": {"start"}, "kind": {"Deployment"}, "namespace": {namespace}, "name": {"asked"}, "part": {"replicas"}}
	for name, by := range map[string]string{"sleepy": "Slumber nights", "dozy": "ClusterSlumber nights"} {
		scheduled := maps.Clone(start)
		scheduled.Set("name", name)
		if status, text := b.post(t, "/switch", scheduled, nil); status != http.StatusConflict || !strings.Contains(text, "found that "+by+" stops the object; kubectl torpor skip -n "+namespace+" deployment/"+name+" starts the object") {
			t.Errorf("start of an object with a scheduled stop: expected 409 with %q, found %d: %s", by, status, text)
		}
	}
	if status, text := b.post(t, "/switch", start, nil); status != http.StatusNoContent {
		t.Errorf("start of an object with a requested stop: expected 204, found %d: %s", status, text)
	}
	asked := &appsv1.Deployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "asked"}, asked))
	testenv.ExpectEqual(t, "the switch", "false", asked.Annotations[torporv1alpha1.StoppedAnnotation])
}

func TestButtonsActAsTheirCaller(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	cd := buildCluster(namespace, "fleet")
	e.ExpectCreated(t, cd)
	user, token := e.createAccount(t, namespace, "operator", "get", "list", "patch")
	_, viewerToken := e.createAccount(t, namespace, "viewer", "get", "list")
	stop := url.Values{"verb": {"stop"}, "kind": {"ClusterDeployment"}, "namespace": {namespace}, "name": {"fleet"}, "part": {"machines"}, "reason": {"no <b>budget"}, "until": {"8h"}}
	with := func(name, value string) url.Values {
		changed := url.Values{}
		maps.Copy(changed, stop)
		changed.Set(name, value)
		return changed
	}
	operator, viewer := e.openBrowser(t), e.openBrowser(t)
	operator.logIn(t, token)
	viewer.logIn(t, viewerToken)
	for name, test := range map[string]struct {
		by     *browser
		form   url.Values
		header map[string]string
		status int
		words  string
	}{
		"a request without a token is refused":  {e.openBrowser(t), stop, nil, http.StatusUnauthorized, "Log in again"},
		"a viewer is refused":                   {viewer, stop, nil, http.StatusForbidden, "cannot patch resource"},
		"a form from another site is refused":   {operator, stop, map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden, "cross-origin"},
		"a form from another origin is refused": {operator, stop, map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden, "cross-origin"},
		"an end that has passed is refused":     {operator, with("until", "2020-01-01T00:00:00Z"), nil, http.StatusBadRequest, "which has passed"},
		"a malformed end is refused":            {operator, with("until", "someday"), nil, http.StatusBadRequest, `found "someday"`},
		"an unknown switch is refused":          {operator, with("part", "wheels"), nil, http.StatusBadRequest, `found "wheels"`},
		"a kind without switches is refused":    {operator, with("kind", "Secret"), nil, http.StatusBadRequest, `found "Secret"`},
		"an unknown verb is refused":            {operator, with("verb", "delete"), nil, http.StatusBadRequest, "stop, start, extend or skip"},
		"a missing object: status 503":          {operator, with("name", "none"), nil, http.StatusServiceUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if status, text := test.by.post(t, "/switch", test.form, test.header); status != test.status || !strings.Contains(text, test.words) {
				t.Errorf("expected %d with %q, found %d: %s", test.status, test.words, status, text)
			}
		})
	}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	if cd.Spec.PowerState == hivev1.PowerStateHibernating {
		t.Fatal("expected the refused requests to stop nothing, found a hibernating cluster")
	}
	operator.expectShown(t, "/", []string{`data-verb="stop"`}, nil)
	viewer.expectShown(t, "/", []string{">fleet<"}, []string{`data-verb="stop"`})

	// The API server applies new policies only after a short time.
	testenv.Eventually(t, "the stop names the requester", func() error {
		for _, form := range []url.Values{with("verb", "start"), stop} {
			if status, text := operator.post(t, "/switch", form, nil); status != http.StatusNoContent {
				return fmt.Errorf("expected 204, found %d: %s", status, text)
			}
		}
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
			return err
		}
		found := cd.Annotations[torporv1alpha1.RequestedByAnnotation]
		return testenv.ErrorIf(found != user, "expected %s, found %q", user, found)
	})
	testenv.ExpectEqual(t, "the power state", hivev1.PowerStateHibernating, cd.Spec.PowerState)
	testenv.ExpectEqual(t, "the reason", "no <b>budget", cd.Annotations[torporv1alpha1.ReasonAnnotation])
	testenv.ExpectEqual(t, "the end", "8h", cd.Annotations[torporv1alpha1.UntilAnnotation])
	operator.expectShown(t, "/", []string{`data-verb="start"`}, nil)
}

func TestStreamSendsChanges(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	cd, app := buildCluster(namespace, "fleet"), buildApp(namespace, "shop")
	e.ExpectCreated(t, cd, app)
	_, token := e.createAccount(t, namespace, "viewer", "list")
	b := e.openBrowser(t)
	b.logIn(t, token)
	b.expectShown(t, "/", []string{">fleet<", ">shop<"}, nil)
	_, next := b.openStream(t, "sort=name")
	first := next()
	if len(first.Rows) != 2 || first.Rows[0].HTML == "" || first.Rows[1].HTML == "" || first.Parts["summary"] == "" {
		t.Fatalf("expected both rows and the other parts, found %+v", first)
	}
	cd.Status.Conditions = []metav1.Condition{{
		Type: hivev1.ClusterStalledCondition, Status: metav1.ConditionTrue, Reason: "FailedToStop", Message: "i-1 <script>alert(1)</script> does not stop", LastTransitionTime: metav1.NewTime(time.Now()),
	}}
	cd.Status.PowerState = "Stopping"
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), cd))
	second := next()
	text, err := json.Marshal(second)
	testenv.ExpectNoError(t, err)
	if len(second.Rows) != 2 || !strings.Contains(second.Rows[0].HTML, "Stuck:") || second.Rows[1].HTML != "" || strings.Contains(string(text), "<script") || second.Parts["columns"] != "" {
		t.Errorf("expected only the changed row, escaped, found %s", text)
	}
}

// TestOnlyABadTokenEndsThePage checks that the browser reconnects after an error of the API server, and requests a new
// token only if the token was rejected.
func TestOnlyABadTokenEndsThePage(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"no error: the page stays":                            {nil, false},
		"no token: the page ends":                             {fmt.Errorf("read the request: %w", errNotLoggedIn), true},
		"an expired token: the page ends":                     {k8serrors.NewUnauthorized("expired"), true},
		"an API server that is down: the page stays":          {errors.New("connection refused"), false},
		"an API server that is busy: the page stays":          {k8serrors.NewTooManyRequests("later", 1), false},
		"an API server that does not respond: the page stays": {k8serrors.NewInternalError(context.DeadlineExceeded), false},
	} {
		if found := isLoggedOut(row.err); found != row.want {
			t.Errorf("%s: found that it ends the page: %t", name, found)
		}
	}
}

func TestStreamsAreFew(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	_, token := e.createAccount(t, namespace, "viewer", "list")
	b := e.openBrowser(t)
	b.logIn(t, token)
	for range maxStreamsOfCaller {
		if status, _ := b.openStream(t, ""); status != http.StatusOK {
			t.Fatalf("expected 200, found %d", status)
		}
	}
	if status, _ := b.openStream(t, ""); status != http.StatusTooManyRequests {
		t.Errorf("one more: expected 429, found %d", status)
	}
}

func TestResponsesHaveSecurityHeaders(t *testing.T) {
	e := shared.Get(t)
	_, token := e.createAccount(t, e.CreateNamespace(t), "viewer", "list")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	testenv.ExpectNoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultTransport.RoundTrip(request)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, answer.Body.Close())
	cookies := answer.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].MaxAge != 0 || !cookies[0].Expires.IsZero() {
		t.Errorf("expected one cookie for this site and no script, found %+v", cookies)
	}
	for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		testenv.ExpectEqual(t, name, want, answer.Header.Get(name))
	}
}

func TestTokensDoNotPassInClear(t *testing.T) {
	t.Parallel()
	for address, words := range map[string]string{
		"127.0.0.1:8088": "", "[::1]:8088": "", "localhost:8088": "", ":8088": "--page-cert-dir", "0.0.0.0:8088": "--page-cert-dir", "10.1.2.3:8088": "--page-cert-dir", "8088": "expected host:port",
	} {
		err := (&Server{Options: Options{Address: address}}).checkAddress()
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: expected %q, found %v", address, words, err)
		}
	}
}

func TestMachineHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	at := func(hours int) *metav1.Time { return new(metav1.NewTime(now.Add(-time.Duration(hours) * time.Hour))) }
	nodes := make([]hivev1.RecordedNode, 6)
	for name, test := range map[string]struct {
		record  *hivev1.HibernationRecord
		want    float64
		isKnown bool
	}{
		"a cluster that never hibernated has no known savings":                   {nil, 0, false},
		"a current hibernation saves machine-hours until now":                    {&hivev1.HibernationRecord{Nodes: nodes, AsleepAt: at(10)}, 60, true},
		"an ended hibernation saved machine-hours until the start of its resume": {&hivev1.HibernationRecord{Nodes: nodes, AsleepAt: at(10), ResumeStartedAt: at(4)}, 36, true},
		"an incomplete hibernation has no known savings":                         {&hivev1.HibernationRecord{Nodes: nodes}, 0, false},
		"a record without nodes has no known savings":                            {&hivev1.HibernationRecord{AsleepAt: at(10)}, 0, false},
		"a repair has no known savings":                                          {&hivev1.HibernationRecord{Nodes: nodes, AsleepAt: at(10), Repair: true}, 0, false},
		"a clock behind the start of the hibernation: savings of zero":           {&hivev1.HibernationRecord{Nodes: nodes, AsleepAt: at(-1)}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cd := &hivev1.ClusterDeployment{}
			cd.Status.Hibernation = test.record
			if hours, isKnown := readSavings(clusterDeployments(t), cd).MachineHours(now); hours != test.want || isKnown != test.isKnown {
				t.Errorf("expected %v, %t; found %v, %t", test.want, test.isKnown, hours, isKnown)
			}
		})
	}
}

// TestTheTileOfTheWeekDoesNotFall covers a cluster during its hibernation and after its resume.
func TestTheTileOfTheWeekDoesNotFall(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	cd := &hivev1.ClusterDeployment{}
	cd.Status.Savings = &torporv1alpha1.Savings{Since: new(metav1.NewTime(now.Add(-2 * time.Hour))), Machines: 6}
	asleep := readSavings(clusterDeployments(t), cd).WeekMachineHours(now)
	cd.Status.Savings = &torporv1alpha1.Savings{MachineSeconds: 43200, Weeks: []torporv1alpha1.WeekSavings{{Begin: metav1.NewTime(now.Truncate(24*time.Hour).AddDate(0, 0, -1)), MachineSeconds: 43200}}}
	if awake := readSavings(clusterDeployments(t), cd).WeekMachineHours(now); asleep != 12 || awake != 12 {
		t.Errorf("expected 12 machine-hours before and after the resume, found %v and %v", asleep, awake)
	}
}

func TestViewQueries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		"q=a+b&kind=CFApp&namespace=x":    "kind=CFApp&namespace=x&q=a+b",
		"state=stuck&sort=-since&page=3":  "page=3&sort=-since&state=stuck",
		"state=odd&sort=password&page=-1": "",
		"page=1&sort=":                    "",
		"q=" + strings.Repeat("x", 2*maxQueryText): "q=" + strings.Repeat("x", maxQueryText),
	} {
		values, err := url.ParseQuery(text)
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, text, want, parseViewQuery(values).encode())
	}
	q := viewQuery{Page: 4}
	for _, want := range []string{"sort=by", "sort=-by", ""} {
		q = q.sortedBy("by")
		testenv.ExpectEqual(t, "the next order", want, q.encode())
	}
}

func TestSwitchesAreSorted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	list := func() []*listedSwitch {
		running, stopped, stuck, late := buildCluster("ns", "c"), buildCluster("ns", "b"), buildCluster("ns", "a"), buildCluster("ns", "d")
		running.Status.PowerState = "Running"
		stopped.Spec.PowerState, stopped.Status.PowerState = hivev1.PowerStateHibernating, "Hibernating"
		stopped.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now), By: "zoe", Requested: true}}
		stuck.Status.PowerState, stuck.Status.Conditions = "Starting", []metav1.Condition{{Type: hivev1.ClusterStalledCondition, Status: metav1.ConditionTrue}}
		late.Spec.PowerState, late.Status.PowerState = hivev1.PowerStateHibernating, "Hibernating"
		late.Status.Stops = []torporv1alpha1.StopRecord{{
			Since: metav1.NewTime(now.Add(-10 * time.Hour)), By: "ann", Until: new(metav1.NewTime(now.Add(-2 * time.Hour))), Requested: true,
		}}
		var all []*listedSwitch
		for _, cd := range []*hivev1.ClusterDeployment{running, stopped, stuck, late} {
			all = append(all, newListing(clusterDeployments(t), cd).switches...)
		}
		return all
	}
	for text, want := range map[string]string{
		"": "a d b c", "sort=name": "a b c d", "sort=-name": "d c b a", "sort=since": "d b a c", "sort=-by": "b d a c", "sort=state": "b d c a",
	} {
		values, err := url.ParseQuery(text)
		testenv.ExpectNoError(t, err)
		all := list()
		parseViewQuery(values).sortSwitches(all, now)
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		testenv.ExpectEqual(t, text, want, strings.Join(names, " "))
	}
}

func clusterDeployments(t *testing.T) *kinds.Kind {
	t.Helper()
	return findKind(t, "ClusterDeployment")
}

func findKind(t *testing.T, name string) *kinds.Kind {
	t.Helper()
	k, err := newInventory().findKind(name)
	testenv.ExpectNoError(t, err)
	return k
}

// TestRowsNameAppsAsUsersDo covers apps with valid display names, which are shown, and with invalid ones. Buttons refer
// to the object's name.
func TestRowsNameAppsAsUsersDo(t *testing.T) {
	t.Parallel()
	for displayName, want := range map[string]string{
		"shop":                  `>shop</a><span class="quiet">5a3c</span><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
		"5a3c":                  `>5a3c</a><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
		"":                      `>5a3c</a><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
		"a b":                   `>5a3c</a><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
		"sh\u202eop\x1b[2J":     `>5a3c</a><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
		strings.Repeat("x", 65): `>5a3c</a><span class="quiet">in ns</span><span class="quiet">CFApp</span>`,
	} {
		app := buildApp("ns", "5a3c")
		app.Spec.DisplayName = displayName
		row := newRowView(newListing(findKind(t, "CFApp"), app).switches[0], time.Now())
		row.Verb = "stop"
		text := string(renderRow(row))
		if !strings.Contains(text, want) || strings.Contains(text, "\x1b") {
			t.Errorf("%q: expected %s, found %s", displayName, want, text)
		}
		button := fmt.Sprintf(`data-name="5a3c" data-title="%[1]s" data-part="app" aria-label="Stop cfapp %[1]s in ns: app"`, row.Title)
		if !strings.Contains(text, button) {
			t.Errorf("%q: expected a button with %s, found %s", displayName, button, text)
		}
	}
}

// TestSearchFindsAppsByBothNames searches for the display name and the GUID of an app.
func TestSearchFindsAppsByBothNames(t *testing.T) {
	t.Parallel()
	app := buildApp("ns", "5a3c")
	app.Spec.DisplayName = "shop"
	s := newListing(findKind(t, "CFApp"), app).switches[0]
	for text, want := range map[string]bool{"shop": true, "SHO": true, "5a3c": true, "shop cfapp": true, "cart": false} {
		testenv.ExpectEqual(t, text, want, viewQuery{Text: text}.isAbout(s))
	}
}

// TestRowsMarkOverdueStops covers stops with an end in the future, an end that has just passed, and an end two hours
// ago.
func TestRowsMarkOverdueStops(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for passed, want := range map[time.Duration]string{
		-time.Hour:    "<td class=\"text\">starts by itself</td>",
		time.Minute:   "<td class=\"text\">starts by itself</td>",
		2 * time.Hour: `<span class="next">should have started by itself: check whether the manager runs</span>`,
	} {
		app := buildApp("ns", "shop")
		app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.StoppedReason}}
		app.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now.Add(-24 * time.Hour)), Until: new(metav1.NewTime(now.Add(-passed))), Requested: true}}
		text := string(renderRow(newRowView(newListing(findKind(t, "CFApp"), app).switches[0], now)))
		if !strings.Contains(text, want) || strings.Contains(text, "overdue") != (passed == 2*time.Hour) {
			t.Errorf("%s after the end: expected %s, found %s", passed, want, text)
		}
	}
}
