// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// createFleet creates the objects of a platform team. No controller runs: the statuses are what controllers
// would write.
func (e *pageEnv) createFleet(t *testing.T) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, c := range []struct {
		name, state, stuck string
		nodes              int
		asleep             time.Duration
		stop               *torporv1alpha1.StopRecord
	}{
		{"payments-prod", "Running", "", 0, 0, nil},
		{"batch-eu", "Hibernating", "", 24, 62 * time.Hour, &torporv1alpha1.StopRecord{Since: ago(62 * time.Hour), By: "alice@example.com", Reason: "no batch runs until Monday", Until: new(metav1.NewTime(now.Add(10 * time.Hour))), Requested: true}},
		{"staging-3", "FailedToStop", "1 of 6 machines does not stop: i-0a11c3 (protected against stopping)", 6, 0, &torporv1alpha1.StopRecord{Since: ago(26 * time.Minute), By: "carol@example.com", Reason: "no budget in November", Requested: true}},
		{"demo-blue", "Stopping", "", 5, 0, &torporv1alpha1.StopRecord{Since: ago(40 * time.Second), By: "system:serviceaccount:ci:nightly", Reason: "nightly", Until: new(metav1.NewTime(now.Add(8 * time.Hour))), Requested: true}},
		{"load-test", "Hibernating", "", 40, 9 * 24 * time.Hour, &torporv1alpha1.StopRecord{Since: ago(9 * 24 * time.Hour), By: "dan@example.com", Until: new(ago(2 * time.Hour)), Requested: true}},
	} {
		cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: c.name}, "cloud", "kubeconfig")
		if c.stop != nil {
			cd.Spec.PowerState, cd.Status.Stops = hivev1.PowerStateHibernating, []torporv1alpha1.StopRecord{*c.stop}
		}
		status := cd.Status
		e.ExpectCreated(t, cd)
		cd.Status = status
		cd.Status.PowerState = c.state
		if c.asleep > 0 {
			cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: ago(c.asleep), AsleepAt: new(ago(c.asleep)), Nodes: make([]hivev1.RecordedNode, c.nodes)}
		}
		if c.stuck != "" {
			cd.Status.Conditions = []metav1.Condition{{Type: hivev1.ClusterStalledCondition, Status: metav1.ConditionTrue, Reason: "FailedToStop", Message: c.stuck, LastTransitionTime: ago(0)}}
		}
		testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), cd))
	}
	e.createApps(t, ago)
	e.createDatabases(t, ago)
	e.createKustomization(t, ago)
}

func (e *pageEnv) createApps(t *testing.T, ago func(time.Duration) metav1.Time) {
	t.Helper()
	for name, stop := range map[string]*torporv1alpha1.StopRecord{
		"shop": nil, "mail": nil,
		"imported": {Since: ago(30 * 24 * time.Hour), By: "mallory@example.com", Reason: "<img src=x onerror=\"window.hacked=1\">", Requested: true},
		"reports":  {Since: ago(3 * time.Hour), By: "erin@example.com", Reason: "database is being moved", Requested: true},
	} {
		app := testenv.BuildCFApp(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name})
		app.Spec.DesiredState = korifiv1alpha1.StartedState
		reason := korifiv1alpha1.RunningReason
		if stop != nil {
			app.Spec.DesiredState, reason = korifiv1alpha1.StoppedState, korifiv1alpha1.StoppedReason
		}
		e.ExpectCreated(t, app)
		if stop != nil {
			app.Status.Stops = []torporv1alpha1.StopRecord{*stop}
		}
		app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: reason, Message: "2 of 2 instances are ready", LastTransitionTime: ago(time.Hour)}}
		if stop != nil {
			app.Status.Conditions[0].Message = "no instance is to run"
		}
		testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), app))
	}
}

func (e *pageEnv) createDatabases(t *testing.T, ago func(time.Duration) metav1.Time) {
	t.Helper()
	c := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "orders"}, 3)
	c.Annotations = map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"}
	e.ExpectCreated(t, c)
	c.Status.ClusteringStops = []torporv1alpha1.StopRecord{{Since: ago(50 * time.Minute), By: "dba@example.com", Reason: "compare replicas", Requested: true}}
	c.Status.Conditions = []metav1.Condition{
		{Type: mocov1beta2.ClusteringActiveCondition, Status: metav1.ConditionFalse, Reason: "Stopped", Message: "stopped by an annotation", LastTransitionTime: ago(50 * time.Minute)},
		{Type: mocov1beta2.ReconciliationActiveCondition, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: ago(time.Hour)},
	}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), c))
}

// createKustomization creates a Kustomization that a user has stopped through the StopAdapter of the
// examples.
func (e *pageEnv) createKustomization(t *testing.T, ago func(time.Duration) metav1.Time) {
	t.Helper()
	stops, err := json.Marshal([]torporv1alpha1.StopRecord{{Since: ago(20 * time.Minute), By: "frank@example.com", Reason: "rollback by hand", Requested: true}})
	testenv.ExpectNoError(t, err)
	u := testenv.ListForeignObjects()[0].Build(t, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "infrastructure"})
	u.SetAnnotations(map[string]string{
		torporv1alpha1.StoppedAnnotation: "true", torporv1alpha1.StopsAnnotation: string(stops), torporv1alpha1.RestoreAnnotation: `[{"path":"/spec/suspend","after":true}]`,
	})
	spec, _ := u.Object["spec"].(map[string]any)
	spec["suspend"] = true
	e.ExpectCreated(t, u)
}

// TestPageInChromium goes through the page as a user does, in one browser, because starting one is expensive.
func TestPageInChromium(t *testing.T) {
	findChromium(t)
	e := newPageEnv(t)
	e.createFleet(t)
	b := openTab(t)
	b.preferColors(t, "light")
	b.logIn(t, e)
	b.waitFor(t, "the page is live and has all rows", `document.getElementById("connection").dataset.state === "live" && document.querySelectorAll("#rows tr").length === 12`)
	b.photograph(t, "list")
	for name, step := range map[string]func(*testing.T, *pageEnv, *tab){
		"user input is shown as text":                                 testWrittenTextIsText,
		"every control has an accessible name":                        testEverythingHasAName,
		"text is readable in light and dark":                          testTextIsReadable,
		"a stuck object is found with its reason":                     testStuckIsFound,
		"an object of a StopAdapter's kind has a row and a button":    testForeignKindIsShown,
		"a change is shown and announced without a reload":            testChangeShows,
		"a stop dialog asks for a reason, and then returns the focus": testStopIsAsked,
		"columns are sorted, and the address contains the search":     testSortsAndSearches,
		"a stop is undone, and the row keeps its place":               testUndo,
		"the drawer shows the details of one object":                  testDrawer,
		"a stop is extended, and Slumbers are skipped":                testExtendAndSkip,
		"several objects are stopped after one confirmation":          testBulkStop,
		"an app is stopped from its card on a phone":                  testPhoneStop,
		"the page with its files is small":                            testWeight,
		"rows fit the window":                                         testRowsFitTheWindow,
	} {
		t.Run(name, func(t *testing.T) { step(t, e, b) })
	}
	b.expectNoComplaints(t)
}

func testWrittenTextIsText(t *testing.T, _ *pageEnv, b *tab) {
	row := rowOf("CFApp", "imported", "app")
	testenv.ExpectEqual(t, "images made by a reason", 0, evaluate[int](t, b, `document.querySelectorAll("#rows img").length`))
	testenv.ExpectEqual(t, "script run by a reason", "undefined", evaluate[string](t, b, `typeof window.hacked`))
	testenv.ExpectEqual(t, "the reason is shown as it was written", true, evaluate[bool](t, b, row+`.innerText.includes("<img src=x")`))
}

func testEverythingHasAName(t *testing.T, _ *pageEnv, b *tab) {
	for what, expression := range map[string]string{
		"controls without a name":               `[...document.querySelectorAll("button, input:not([type=hidden]), select, a")].filter((e) => e.checkVisibility() && !(e.ariaLabel || e.innerText.trim() || e.labels?.length || e.textContent.trim())).length`,
		"buttons with the same accessible name": `(() => { const names = [...document.querySelectorAll("#rows button")].map((e) => e.ariaLabel); return names.length - new Set(names).size; })()`,
		"name cells that are not row headers":   `[...document.querySelectorAll("#rows tr")].filter((e) => e.firstElementChild.scope !== "row").length`,
		"tables without a caption":              `[...document.querySelectorAll("table")].filter((e) => !e.caption?.innerText).length`,
		"duplicate ids":                         `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.length - new Set(ids).size; })()`,
	} {
		testenv.ExpectEqual(t, what, 0, evaluate[int](t, b, expression))
	}
	b.do(t, "load the page, so that Tab begins at its top", chromedp.Reload())
	b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live"`)
	b.do(t, "press Tab", chromedp.KeyEvent(kb.Tab))
	testenv.ExpectEqual(t, "first stop of Tab", "Skip to the table", evaluate[string](t, b, `document.activeElement.innerText`))
	b.do(t, "leave it", run(`document.activeElement.blur()`))
}

func testTextIsReadable(t *testing.T, _ *pageEnv, b *tab) {
	b.expectReadable(t, "light")
	b.preferColors(t, "dark")
	b.expectReadable(t, "dark")
	b.photograph(t, "dark")
	b.preferColors(t, "light")
}

func testStuckIsFound(t *testing.T, _ *pageEnv, b *tab) {
	b.do(t, "choose stuck objects", chromedp.Click(`#summary a[href="?state=stuck"]`))
	b.waitFor(t, "one row is left", `document.querySelectorAll("#rows tr").length === 1 && document.querySelector("#rows").innerText.includes("i-0a11c3")`)
	testenv.ExpectEqual(t, "the address", "?state=stuck", evaluate[string](t, b, `location.search`))
	b.photograph(t, "stuck")
	b.do(t, "choose all", chromedp.Click(`#summary a`))
	b.waitFor(t, "all rows are back", `document.querySelectorAll("#rows tr").length === 12`)
}

// testForeignKindIsShown shows the requester of a stopped Kustomization of Flux, and starts it. The viewer's
// role comes with the example; an administrator decides about the operator's.
func testForeignKindIsShown(t *testing.T, e *pageEnv, b *tab) {
	row := rowOf("kustomizations.kustomize.toolkit.fluxcd.io", "infrastructure", "switch")
	for _, words := range []string{"Kustomization of kustomize.toolkit.fluxcd.io", "frank@example.com", "rollback by hand"} {
		testenv.ExpectEqual(t, "the row has "+words, true, evaluate[bool](t, b, row+fmt.Sprintf(`.innerText.includes(%q)`, words)))
	}
	testenv.ExpectEqual(t, "the state", "stopped", evaluate[string](t, b, row+`.dataset.state`))
	testenv.ExpectEqual(t, "buttons of a viewer", 0, evaluate[int](t, b, row+`.querySelectorAll("button").length`))
	role := &rbacv1.ClusterRole{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Name: "torpor-stopadapter-flux-kustomization"}, role))
	role.Labels[torporv1alpha1.SwitchOperatorRoleLabel] = "true"
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), role))
	e.AggregateRole(t, "torpor-switch-operator")
	b.waitFor(t, "the right shows as a button", row+`.querySelector("button") !== null`)
	b.do(t, "press Start", run(row+`.querySelector(".act button").click()`), chromedp.WaitVisible("#flip"), chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the row follows", row+`.querySelector("button").dataset.verb === "stop"`)
}

func testChangeShows(t *testing.T, e *pageEnv, b *tab) {
	b.do(t, "mark the document", run(`window.before = true`))
	cd := &hivev1.ClusterDeployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "demo-blue"}, cd))
	cd.Status.PowerState = "Hibernating"
	cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(time.Now()), AsleepAt: new(metav1.NewTime(time.Now())), Nodes: make([]hivev1.RecordedNode, 5)}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), cd))
	b.waitFor(t, "the row follows", rowOf("ClusterDeployment", "demo-blue", "machines")+`.dataset.state === "Hibernating"`)
	testenv.ExpectEqual(t, "announced text", "demo-blue: Stopping became Hibernating", evaluate[string](t, b, `document.getElementById("news").innerText`))
	testenv.ExpectEqual(t, "the document is the same", true, evaluate[bool](t, b, `window.before === true`))
	b.photograph(t, "live")
}

func testStopIsAsked(t *testing.T, e *pageEnv, b *tab) {
	button := rowOf("ClusterDeployment", "payments-prod", "machines") + `.querySelector("button")`
	b.do(t, "press Stop", run(button+`.click()`), chromedp.WaitVisible("#flip"))
	testenv.ExpectEqual(t, "focused field", "reason", evaluate[string](t, b, `document.activeElement.name`))
	b.expectReadable(t, "the dialog")
	b.do(t, "enter a reason, and a wrong end", chromedp.SendKeys(`#flip input[name=reason]`, "move to the new region"), chromedp.SendKeys(`#flip input[name=until]`, "someday"))
	b.do(t, "send it", chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the error is shown", `document.querySelector("#flip .error").innerText.includes("someday") && !document.querySelector("#flip .error").hidden`)
	b.do(t, "correct the end", chromedp.SetValue(`#flip input[name=until]`, "8h"))
	b.photograph(t, "stop")
	b.do(t, "send it", chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the dialog closes and the button has the focus", `!document.getElementById("flip").open && document.activeElement === `+button)
	b.waitFor(t, "the row has a stop", button+`.dataset.verb === "start"`)
	cd := &hivev1.ClusterDeployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "payments-prod"}, cd))
	testenv.ExpectEqual(t, "the stop", fmt.Sprint(hivev1.PowerStateHibernating, " move to the new region 8h"),
		fmt.Sprint(cd.Spec.PowerState, " ", cd.Annotations[torporv1alpha1.ReasonAnnotation], " ", cd.Annotations[torporv1alpha1.UntilAnnotation]))
}

func testSortsAndSearches(t *testing.T, _ *pageEnv, b *tab) {
	b.do(t, "sort by the name", chromedp.Click(`#columns th:first-child a`))
	b.waitFor(t, "the first comes first", `document.querySelector("#rows .name").innerText === "batch-eu" && document.querySelector("#columns th").ariaSort === "ascending"`)
	b.do(t, "search", chromedp.SendKeys(`input[name=q]`, "dba"))
	b.waitFor(t, "one row is left", `document.querySelectorAll("#rows tr").length === 1`)
	testenv.ExpectEqual(t, "the address", "?q=dba&sort=name", evaluate[string](t, b, `location.search`))
	b.do(t, "load the address", chromedp.Reload())
	b.waitFor(t, "the page shows the same", `document.querySelectorAll("#rows tr").length === 1 && document.getElementById("connection").dataset.state === "live"`)
	b.do(t, "go back to all", chromedp.Navigate(evaluate[string](t, b, `location.origin`)))
	b.waitFor(t, "all rows are back", `document.querySelectorAll("#rows tr").length === 12 && document.getElementById("connection").dataset.state === "live"`)
}

const manyObjects = 5000

// measureUpdates returns the sorted times in seconds from the request for a change until the test sees the change in
// the browser.
func (e *pageEnv) measureUpdates(t *testing.T, b *tab) (seconds []float64) {
	t.Helper()
	b.showAll(t, e, "?sort=name")
	for i := range changes {
		b.awaitQuiet(t)
		begin := time.Now()
		e.changeCluster(t, i)
		b.waitFor(t, "the row follows", rowOf("ClusterDeployment", "cluster-0", "machines")+fmt.Sprintf(`.innerText.includes("change %d")`, i))
		seconds = append(seconds, time.Since(begin).Seconds())
	}
	slices.Sort(seconds)
	return seconds
}

// awaitQuiet waits until the page has not changed for two seconds, because the page collects changes for one second.
func (b *tab) awaitQuiet(t *testing.T) {
	t.Helper()
	b.waitFor(t, "the page is quiet", `(() => {
		window.quiet ??= { since: Date.now(), watch: new MutationObserver(() => { window.quiet.since = Date.now(); }) };
		window.quiet.watch.observe(document.getElementById("rows"), { childList: true, subtree: true });
		return Date.now() - window.quiet.since > 2000;
	})()`)
}

// TestBenchFirstPaint measures how soon a page about five thousand objects and three hundred schedules is painted, is live,
// and shows a change.
func TestBenchFirstPaint(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected `make bench NAME=page`")
	}
	findChromium(t)
	e := newPageEnv(t)
	e.createClusters(t, manyObjects)
	e.createManySchedules(t)
	b := openTab(t)
	b.logIn(t, e)
	b.waitFor(t, "all are listed", `document.querySelector("#summary b").innerText === "5000"`)
	var paints, lives []float64
	for range 15 {
		b.do(t, "load the page", chromedp.Reload())
		b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live"`)
		lives = append(lives, evaluate[float64](t, b, `performance.now() / 1000`))
		b.waitFor(t, "the page is painted", `performance.getEntriesByName("first-contentful-paint").length > 0`)
		paints = append(paints, evaluate[float64](t, b, `performance.getEntriesByName("first-contentful-paint")[0].startTime / 1000`))
		testenv.ExpectEqual(t, "rows of a page", 100, evaluate[int](t, b, `document.querySelectorAll("#rows tr").length`))
	}
	updates := e.measureUpdates(t, b)
	slices.Sort(paints)
	slices.Sort(lives)
	firstPaint := paints[len(paints)/2]
	testenv.MergeFigures(t, "record.json", map[string]float64{"page_first_paint_seconds": firstPaint})
	testenv.MergeFigures(t, "page.json", map[string]float64{
		"page_update_seconds": updates[len(updates)/2], "page_update_worst_seconds": updates[len(updates)-1],
		"page_first_paint_seconds": firstPaint, "page_first_paint_worst_seconds": paints[len(paints)-1], "page_live_seconds": lives[len(lives)/2],
		"page_bytes": evaluate[float64](t, b, weightScript),
	})
}
