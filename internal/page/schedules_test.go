// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func buildSpec(zone, sleep, wake string) torporv1alpha1.SlumberSpec {
	return torporv1alpha1.SlumberSpec{
		TimeZone: zone, Windows: []torporv1alpha1.SlumberWindow{{Sleep: sleep, Wake: wake}},
		Waves: []torporv1alpha1.SlumberWave{{Name: "first", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}}}},
	}
}

func buildNights(namespace, name string) *torporv1alpha1.Slumber {
	return &torporv1alpha1.Slumber{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: buildSpec("Europe/Berlin", "0 20 * * MON-FRI", "0 7 * * MON-FRI"),
	}
}

// grant grants a service account verbs on a group's resources in its namespace, and waits until one of the rights is in
// effect.
func (e *pageEnv) grant(t *testing.T, namespace, user, group string, resources []string, verbs ...string) {
	t.Helper()
	at := metav1.ObjectMeta{Namespace: namespace, GenerateName: "grant-"}
	role := &rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{group}, Resources: resources}}}
	e.ExpectCreated(t, role)
	e.ExpectCreated(t, &rbacv1.RoleBinding{
		ObjectMeta: at, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: user[strings.LastIndex(user, ":")+1:]}},
	})
	e.AwaitRight(t, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verbs[0], Group: group, Resource: resources[0]}, user)
}

// openSchedules returns a browser for a user who may list and create Slumbers in a namespace.
func (e *pageEnv) openSchedules(t *testing.T, namespace string) *browser {
	t.Helper()
	user, token := e.createAccount(t, namespace, "planner")
	e.grant(t, namespace, user, torporv1alpha1.GroupVersion().Group, []string{"slumbers"}, "list", "create")
	e.grant(t, namespace, user, "apps", []string{"deployments"}, "list", "patch")
	b := e.openBrowser(t)
	b.logIn(t, token)
	return b
}

func (e *pageEnv) createTeamDeployment(t *testing.T, namespace, name, team string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}}
	e.ExpectCreated(t, testenv.DecodeObject(t, fmt.Sprintf(`{"metadata": {"namespace": %q, "name": %q}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": %[2]q}},
		"template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}`, namespace, name), d))
	return d
}

func TestSchedulesAreThoseOfTheCaller(t *testing.T) {
	e := shared.Get(t)
	ours, others := e.CreateNamespace(t), e.CreateNamespace(t)
	nights := buildNights(ours, "our-nights")
	e.ExpectCreated(t, nights, buildNights(others, "their-nights"), &torporv1alpha1.ClusterSlumber{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere-" + ours},
		Spec:       torporv1alpha1.ClusterSlumberSpec{SlumberSpec: buildSpec("UTC", "0 20 * * *", "0 7 * * *"), NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"absent": "x"}}},
	})
	nights.Status = torporv1alpha1.SlumberStatus{
		State: torporv1alpha1.SlumberFallingAsleep, Members: 7, Asleep: 6, ObservedGeneration: nights.Generation,
		Waves: []torporv1alpha1.SlumberWaveStatus{{Name: "first", ShouldSleep: true, Members: 7, Asleep: 6, WaitsFor: "Deployment web (1 <Pod> runs)"}},
	}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), nights))
	b := e.openSchedules(t, ours)
	b.expectShown(t, "/schedules", []string{
		">our-nights <", "6 of 7 objects are stopped", "FallingAsleep", "waits for Deployment web (1 &lt;Pod&gt; runs)", "<caption>When Slumber " + ours + "/our-nights stops",
		"You may not list ClusterSlumbers", `aria-current="page">Schedules`,
	}, []string{"their-nights", others, "everywhere-"})
	b.expectShown(t, "/schedules?q=nowhere", []string{"Nothing to show"}, []string{"our-nights"})
	b.expectShown(t, "/", []string{`<a href="schedules">Schedules</a>`}, nil)
	if status, _ := e.openBrowser(t).get(t, "/schedules"); status != http.StatusUnauthorized {
		t.Errorf("without a token: expected 401, found %d", status)
	}
}

func TestSlumberIsPreviewedAndCreated(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	b := e.openSchedules(t, namespace)
	form := url.Values{
		"name": {"nights"}, "namespace": {namespace}, "from": {"19:00"}, "to": {"07:00"}, "zone": {"Europe/Berlin"}, "selector": {"team=a"},
		"reason": {"saves <money>"}, "day": {"Mon", "Tue", "Wed", "Thu", "Fri"}, "kind": {"Deployment", "StatefulSet"},
	}
	status, text := b.post(t, "/schedule-preview", form, nil)
	if status != http.StatusOK {
		t.Fatalf("the preview: expected 200, found %d: %s", status, text)
	}
	for _, words := range []string{"sleep: 0 19 * * MON-FRI", "kind: Slumber", "reason: saves &lt;money&gt;", "stop at <time", "start at <time", `action="schedule-create"`} {
		if !strings.Contains(text, words) {
			t.Errorf("the preview: expected %q, found %s", words, text)
		}
	}
	key, found := types.NamespacedName{Namespace: namespace, Name: "nights"}, &torporv1alpha1.Slumber{}
	if err := e.Client.Get(t.Context(), key, found); err == nil {
		t.Error("the preview: expected no Slumber, found one")
	}
	if status, text := b.post(t, "/schedule-create", form, nil); status != http.StatusCreated || !strings.Contains(text, "The Slumber nights was created in "+namespace) {
		t.Fatalf("expected 201, found %d: %s", status, text)
	}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), key, found))
	testenv.ExpectEqual(t, "the window", "{0 19 * * MON-FRI 0 7 * * MON-FRI}", fmt.Sprint(found.Spec.Windows[0]))
	testenv.ExpectEqual(t, "the waves", "first Deployment team=a, second StatefulSet team=a", describeWaves(found))
	b.expectShown(t, "/schedules", []string{">nights <", "no controller has acted yet"}, nil)
	for name, row := range map[string]struct {
		field, value string
		status       int
		words        string
	}{
		"existing name: conflict":                  {"name", "nights", http.StatusConflict, "A Slumber of this name exists already"},
		"unknown time zone: refused":               {"zone", "Berlin", http.StatusBadRequest, "spec.timeZone: expected the name of a time zone"},
		"overlong name: refused by the API server": {"name", strings.Repeat("n", 64), http.StatusUnprocessableEntity, "The API server refuses the Slumber: expected a name of at most 63 characters"},
		"equal start and end times: refused":       {"to", "19:00", http.StatusBadRequest, "from and to: expected two times of day"},
		"invalid labels: refused":                  {"selector", "=", http.StatusBadRequest, "labels: expected labels such as team=a"},
		"form without days: refused":               {"day", "", http.StatusBadRequest, "days: expected one or more, found none"},
		"form without a supported kind: refused":   {"kind", "Pod", http.StatusBadRequest, "kinds: expected one or more, found none"},
		"blank name: refused":                      {"name", " ", http.StatusBadRequest, "name and namespace: expected both"},
		"namespace without rights: forbidden":      {"namespace", "default", http.StatusForbidden, "You lack a permission: slumbers.torpor.dev is forbidden"},
		"reason with HTML: escaped":                {"reason", `"><script>`, http.StatusConflict, `value="&#34;&gt;&lt;script&gt;"`},
	} {
		changed := maps.Clone(form)
		changed[row.field] = []string{row.value}
		status, text := b.post(t, "/schedule-preview", changed, nil)
		if status != row.status || !strings.Contains(text, row.words) {
			t.Errorf("%s: expected %d and %q, found %d: %s", name, row.status, row.words, status, text)
		}
	}
}

func describeWaves(s *torporv1alpha1.Slumber) string {
	var all []string
	for _, w := range s.Spec.Waves {
		for _, target := range w.Targets {
			all = append(all, w.Name+" "+target.Kind+" "+metav1.FormatLabelSelector(&target.Selector))
		}
	}
	return strings.Join(all, ", ")
}

func TestObjectsAreKeptAwake(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	web, other := e.createTeamDeployment(t, namespace, "web", "a"), e.createTeamDeployment(t, namespace, "other", "b")
	e.ExpectCreated(t, buildNights(namespace, "nights"))
	b := e.openSchedules(t, namespace)
	b.expectShown(t, "/schedules", []string{">nights <"}, nil)
	berlin, err := time.LoadLocation("Europe/Berlin")
	testenv.ExpectNoError(t, err)
	year, month, day := time.Now().AddDate(0, 0, 200).Date()
	until := time.Date(year, month, day, 9, 0, 0, 0, berlin)
	local, utc := until.Format(slumber.LocalTime), until.UTC().Format(time.RFC3339)
	request := url.Values{"kind": {"Slumber"}, "namespace": {namespace}, "name": {"nights"}, "until": {until.Format(time.DateOnly) + " 9:00"}}
	if status, text := b.get(t, "/keep-awake?"+request.Encode()); status != http.StatusOK || !strings.Contains(text, "Keep one object awake until "+local+"?") ||
		!strings.Contains(text, "<li>Deployment web</li>") || !strings.Contains(text, `value="`+utc+`"`) || strings.Contains(text, "Deployment other") {
		t.Fatalf("the question: expected the object and the end, found %d: %s", status, text)
	}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(web), web))
	testenv.ExpectEqual(t, "the skip before the answer", "", web.Annotations[torporv1alpha1.SkipUntilAnnotation])
	request.Set("until", utc)
	if status, text := b.post(t, "/keep-awake", request, nil); status != http.StatusOK || !strings.Contains(text, "1 of 1 objects in "+namespace+" are kept awake until "+local+".") {
		t.Fatalf("expected 200, found %d: %s", status, text)
	}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(web), web))
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	if status, text := b.get(t, "/keep-awake?kind=Slumber&name=nights&namespace="+namespace); status != http.StatusOK || !strings.Contains(text, "07:00 CE") {
		t.Errorf("without an end: expected the end of the sleep, found %d: %s", status, text)
	}
	testenv.ExpectEqual(t, "the skip", utc, web.Annotations[torporv1alpha1.SkipUntilAnnotation])
	testenv.ExpectEqual(t, "the skip of an object of another team", "", other.Annotations[torporv1alpha1.SkipUntilAnnotation])
	for _, row := range []struct {
		field, value string
		status       int
		words        string
	}{
		{"until", "yesterday", http.StatusBadRequest, "Until: expected a time such as 18:00"},
		{"until", "2020-01-01", http.StatusBadRequest, "Until: expected a time in the future"},
		{"name", "days", http.StatusNotFound, "Expected a schedule that you may list"},
		{"namespace", "default", http.StatusNotFound, "Expected a schedule that you may list"},
	} {
		changed := url.Values{"kind": {"Slumber"}, "namespace": {namespace}, "name": {"nights"}, "until": {"2h"}}
		changed.Set(row.field, row.value)
		if status, text := b.post(t, "/keep-awake", changed, nil); status != row.status || !strings.Contains(text, row.words) {
			t.Errorf("%s %s: expected %d and %q, found %d: %s", row.field, row.value, row.status, row.words, status, text)
		}
	}
}

// TestRefusedSkipsAreReported covers a user who may list the objects but not patch them.
func TestRefusedSkipsAreReported(t *testing.T) {
	e := shared.Get(t)
	namespace := e.CreateNamespace(t)
	e.createTeamDeployment(t, namespace, "web", "a")
	e.ExpectCreated(t, buildNights(namespace, "nights"))
	user, token := e.createAccount(t, namespace, "reader")
	e.grant(t, namespace, user, torporv1alpha1.GroupVersion().Group, []string{"slumbers"}, "list")
	b := e.openBrowser(t)
	b.logIn(t, token)
	b.expectShown(t, "/schedules", []string{">nights <"}, nil)
	request := url.Values{"kind": {"Slumber"}, "namespace": {namespace}, "name": {"nights"}, "until": {"2h"}}
	if status, text := b.post(t, "/keep-awake", request, nil); status != http.StatusForbidden || !strings.Contains(text, "You may not list objects of the kind Deployment") {
		t.Errorf("without the right to list: expected 403, found %d: %s", status, text)
	}
	e.grant(t, namespace, user, "apps", []string{"deployments"}, "list")
	if status, text := b.post(t, "/keep-awake", request, nil); status != http.StatusConflict || !strings.Contains(text, "Not kept awake: Deployment web: You lack a permission: deployments.apps") {
		t.Errorf("without the right to patch: expected 409, found %d: %s", status, text)
	}
}

// TestClusterSlumberKeepsOneNamespaceAwake covers a ClusterSlumber that selects one of two namespaces, and a Slumber
// that selects one of the objects.
func TestClusterSlumberKeepsOneNamespaceAwake(t *testing.T) {
	e := shared.Get(t)
	namespace, outside := e.CreateNamespace(t), e.CreateNamespace(t)
	web, own := e.createTeamDeployment(t, namespace, "web", "a"), e.createTeamDeployment(t, namespace, "own", "a")
	own.Labels["tier"] = "own"
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), own))
	precedes := buildNights(namespace, "precedes")
	precedes.Spec.Waves[0].Targets[0].Selector.MatchLabels["tier"] = "own"
	e.ExpectCreated(t, precedes, &torporv1alpha1.ClusterSlumber{
		ObjectMeta: metav1.ObjectMeta{Name: "all-" + namespace},
		Spec: torporv1alpha1.ClusterSlumberSpec{
			SlumberSpec: buildSpec("UTC", "0 20 * * *", "0 7 * * *"), NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		},
	})
	user, token := e.createAccount(t, namespace, "admin")
	name := strings.ReplaceAll(user, ":", "-")
	e.ExpectCreated(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"list"}, APIGroups: []string{torporv1alpha1.GroupVersion().Group}, Resources: []string{"slumbers", "clusterslumbers"}},
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
			{Verbs: []string{"list", "patch"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "admin"}},
		})
	e.AwaitRight(t, authorizationv1.ResourceAttributes{Verb: "list", Group: torporv1alpha1.GroupVersion().Group, Resource: "clusterslumbers"}, user)
	b := e.openBrowser(t)
	b.logIn(t, token)
	b.expectShown(t, "/schedules?q=all-"+namespace, []string{">all-" + namespace + " <", "for the namespaces that it selects", `name="in" required`}, nil)
	b.expectShown(t, "/schedules?namespace="+namespace, []string{">precedes <"}, []string{">all-" + namespace})
	request := url.Values{"kind": {"ClusterSlumber"}, "name": {"all-" + namespace}, "in": {namespace}, "until": {"2h"}}
	if status, text := b.get(t, "/keep-awake?"+request.Encode()); status != http.StatusOK || !strings.Contains(text, "Keep one object awake") || !strings.Contains(text, "<li>Deployment web</li>") {
		t.Fatalf("the question: expected one object, found %d: %s", status, text)
	}
	if status, text := b.post(t, "/keep-awake", request, nil); status != http.StatusOK {
		t.Fatalf("expected 200, found %d: %s", status, text)
	}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(web), web))
	if web.Annotations[torporv1alpha1.SkipUntilAnnotation] == "" {
		t.Error("expected the annotation of a skip, found none")
	}
	for in, words := range map[string]string{outside: "does not select the namespace " + outside, "": "Expected the namespace whose objects are kept awake"} {
		request.Set("in", in)
		if status, text := b.post(t, "/keep-awake", request, nil); status < http.StatusBadRequest || !strings.Contains(text, words) {
			t.Errorf("%q: expected %q, found %d: %s", in, words, status, text)
		}
	}
}

// TestMissingFeatureIsReported covers a manager without the feature slumber, and an API server that no longer serves
// ClusterSlumbers.
func TestMissingFeatureIsReported(t *testing.T) {
	e := newPageEnv(t)
	namespace := e.CreateNamespace(t)
	e.ExpectCreated(t, buildNights(namespace, "nights"))
	b := e.openSchedules(t, namespace)
	b.expectShown(t, "/schedules", []string{">nights <"}, []string{"install the feature"})
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), testenv.DecodeObject(t, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": {"name": "clusterslumbers.torpor.dev"}}`, &unstructured.Unstructured{})))
	b.expectShown(t, "/schedules", []string{"The API server does not serve ClusterSlumbers; install the feature slumber", ">nights <"}, nil)
	e.url = "http://" + e.startPage(t, e.ImpersonateUser("system:serviceaccount:"+namespace+":manager"))
	user, token := e.createAccount(t, namespace, "other")
	e.grant(t, namespace, user, torporv1alpha1.GroupVersion().Group, []string{"slumbers"}, "list")
	other := e.openBrowser(t)
	other.logIn(t, token)
	other.expectShown(t, "/schedules", []string{"Torpor manager may not list Slumbers; install the feature slumber", "Nothing to show"}, nil)
}

func listSchedules(t *testing.T, all ...*torporv1alpha1.Slumber) seenSchedules {
	t.Helper()
	var seen seenSchedules
	for _, s := range all {
		seen.all = append(seen.all, listSchedule(s))
	}
	return seen
}

func TestSchedulesThatNeedAUserComeFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	invalid, stalled, waking, suspended := buildNights("ns", "d"), buildNights("ns", "c"), buildNights("ns", "b"), buildNights("ns", "a")
	invalid.Spec.TimeZone = "Europe/Atlantis"
	stalled.Status.Conditions = []metav1.Condition{{Type: torporv1alpha1.SlumberStalledCondition, Status: metav1.ConditionTrue, Message: "Wave first waits <too> long"}}
	waking.Status.State = torporv1alpha1.SlumberWakingUp
	suspended.Spec.Suspend = true
	v := composeSchedules(listSchedules(t, suspended, waking, stalled, invalid), lease.Acting{}, scheduleQuery{Page: 1}, now)
	var names []string
	for _, s := range v.Schedules {
		names = append(names, s.Name)
	}
	testenv.ExpectEqual(t, "the order", "d c b a", strings.Join(names, " "))
	text := string(renderSchedules(v))
	for _, words := range []string{
		"Nothing is stopped or started: spec.timeZone: expected the name of a time zone such as Europe/Berlin, found &#34;Europe/Atlantis&#34;",
		"Wave first waits &lt;too&gt; long", "No changes: the schedule is invalid.", "suspended: stops nothing", "No changes: the schedule is suspended.",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("expected %q, found %s", words, text)
		}
	}
}

// TestWeekIsWrittenOut covers the week in which the clocks are set back. The times of that day include the zone.
func TestWeekIsWrittenOut(t *testing.T) {
	t.Parallel()
	s := buildNights("ns", "nights")
	v := newScheduleView(listSchedule(s), time.Date(2026, 10, 23, 12, 0, 0, 0, time.UTC))
	var days []string
	for _, d := range v.Week {
		days = append(days, d.Name+": "+d.Text)
	}
	testenv.ExpectEqual(t, "the week", strings.Join([]string{
		"Fri 23 Oct: 00:00–07:00, 20:00–24:00", "Sat 24 Oct: all day", "Sun 25 Oct: all day; the clocks change: the day has 25 hours",
		"Mon 26 Oct: 00:00–07:00, 20:00–24:00", "Tue 27 Oct: 00:00–07:00, 20:00–24:00", "Wed 28 Oct: 00:00–07:00, 20:00–24:00", "Thu 29 Oct: 00:00–07:00, 20:00–24:00",
	}, "\n"), strings.Join(days, "\n"))
	testenv.ExpectEqual(t, "the length of the longer day in minutes", 25*60, v.Week[2].Length)
	testenv.ExpectEqual(t, "the bar of now", "840 true", fmt.Sprint(v.Week[0].Now, v.Week[0].IsNow))
	var next []string
	for _, c := range v.Next {
		next = append(next, c.Verb+" "+c.At.Human)
	}
	testenv.ExpectEqual(t, "the number of changes", 10, len(next))
	testenv.ExpectEqual(t, "the changes over the weekend", "stop Fri 2026-10-23 20:00 CEST, start Mon 2026-10-26 07:00 CET", strings.Join(next[:2], ", "))
	s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "30 1 * * SUN", Wake: "30 2 * * SUN"}}
	v = newScheduleView(listSchedule(s), time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC))
	testenv.ExpectEqual(t, "the day of the change", "01:30 CEST–02:30 CEST; the clocks change: the day has 25 hours", v.Week[0].Text)
	s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "*/2 * * * *", Wake: "1-59/2 * * * *"}}
	v = newScheduleView(listSchedule(s), time.Date(2026, 10, 23, 12, 0, 0, 0, time.UTC))
	if first, last := v.Week[0].Text, v.Week[6].Text; !strings.Contains(first, "and 95 more; too many changes to show") || last != "too many changes to show" {
		t.Errorf("expected a cut week, found %q and %q", first, last)
	}
}

// TestManySchedulesArePaged covers more schedules than fit on a page. Every value is escaped.
func TestManySchedulesArePaged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var all []*torporv1alpha1.Slumber
	for i := range 300 {
		s := buildNights("ns", fmt.Sprintf("nights-%03d", i))
		s.Spec.Reason = `<script>"&`
		s.Status.State = torporv1alpha1.SlumberAwake
		all = append(all, s)
	}
	seen := listSchedules(t, all...)
	v := composeSchedules(seen, lease.Acting{}, parseScheduleQuery(url.Values{"page": {"99"}, "q": {"night"}}), now)
	text := string(renderSchedules(v))
	testenv.ExpectEqual(t, "the page", "15 of 15, 20 of 300", fmt.Sprintf("%d of %d, %d of %d", v.Query.Page, v.Pages, len(v.Schedules), v.Matching))
	if !strings.Contains(text, `<a href="schedules?page=14&amp;q=night" rel="prev">`) || strings.Contains(text, `rel="next"`) || !strings.Contains(text, "281–300 of 300") {
		t.Errorf("expected the last page, found %s", text)
	}
	if strings.Contains(text, "<script>") || !strings.Contains(text, "&lt;script&gt;&#34;&amp;") {
		t.Errorf("expected escaped values, found %s", text)
	}
	if len(text) > 150_000 {
		t.Errorf("expected at most 150 kB, found %d", len(text))
	}
}

// TestScheduleGapsAreShown covers a manager that runs without the Slumber controllers.
func TestScheduleGapsAreShown(t *testing.T) {
	t.Parallel()
	acting := lease.Acting{Installation: "torpor-system", Scope: &lease.Scope{Controllers: []string{"hibernation"}}}
	v := composeSchedules(listSchedules(t, buildNights("ns", "nights")), acting, scheduleQuery{Page: 1}, time.Now())
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "No controller acts on these Slumbers: the manager in the namespace torpor-system runs without the controllers slumber") {
		t.Errorf("expected one warning, found %q", v.Warnings)
	}
}

func TestDaysOfTheForm(t *testing.T) {
	t.Parallel()
	for days, want := range map[string]string{
		"Mon Tue Wed Thu Fri": "Mon-Fri", "Mon Tue Wed Thu Fri Sat Sun": "*", "Sat Sun": "Sat,Sun", "Mon Wed Fri": "Mon,Wed,Fri", "Sun": "Sun", "Fri Sat Sun": "Fri-Sun",
	} {
		testenv.ExpectEqual(t, days, want, scheduleForm{Days: strings.Fields(days)}.daysText())
	}
}
