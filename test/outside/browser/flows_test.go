// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// manyStopped is the number of objects that are stopped after one confirmation.
const manyStopped = 20

// createMany creates clusters that run.
func (e *pageEnv) createMany(t *testing.T) {
	t.Helper()
	for i := range manyStopped {
		e.ExpectCreated(t, testenv.BuildClusterDeployment(client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("many-%02d", i)}, "cloud", "kubeconfig"))
	}
}

// createSavings gives two clusters savings of this week and the last, and owners.
func (e *pageEnv) createSavings(t *testing.T) {
	t.Helper()
	for name, owner := range map[string]string{"batch-eu": "risk", "load-test": "quality"} {
		cd := e.readCluster(t, name)
		before := client.MergeFrom(cd.DeepCopy())
		cd.Labels = map[string]string{"team": owner}
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), cd, before))
		before = client.MergeFrom(cd.DeepCopy())
		cd.Status.Savings = &torporv1alpha1.Savings{Since: cd.Status.Hibernation.AsleepAt, Machines: int64(len(cd.Status.Hibernation.Nodes)), MachineSeconds: 360000}
		testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cd, before))
	}
}

// TestFlowsInChromium uses each tab and each dialog in two sizes and two colour schemes, and checks them with axe-core.
func TestFlowsInChromium(t *testing.T) {
	findChromium(t)
	axe := axeScript(t)
	e := newPageEnv(t)
	e.createFleet(t)
	e.createMany(t)
	e.createSavings(t)
	e.createSchedules(t)
	b := openTab(t)
	b.do(t, "open the page", chromedp.Navigate(e.url), chromedp.WaitVisible("#token"))
	forEachLook(t, b, func(t *testing.T, _ look) { b.expectNoViolations(t, axe, "the log-in") })
	b.logIn(t, e)
	for name, flow := range map[string]func(*testing.T, *pageEnv, *tab, string, look){
		"twenty objects are stopped after one confirmation": testManyAreStopped,
		"the timeline shows seven days":                     testSevenDays,
		"the savings include amounts of money":              testSavings,
		"the details of a stuck cluster are shown":          testStuckDetails,
		"an app is stopped by its button":                   testStopBesideName,
		"axe-core finds no violation in the schedules":      testSchedulesAreAccessible,
	} {
		t.Run(name, func(t *testing.T) {
			forEachLook(t, b, func(t *testing.T, l look) { flow(t, e, b, axe, l) })
		})
	}
	b.expectNoComplaints(t)
}

// showAll opens the list of objects that a query selects.
func (b *tab) showAll(t *testing.T, e *pageEnv, query string) {
	t.Helper()
	b.do(t, "open the list", chromedp.Navigate(e.url+query), chromedp.WaitVisible("#rows"))
	b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live"`)
}

// countStopped returns the number of the many clusters that are to hibernate for a reason.
func (e *pageEnv) countStopped(t *testing.T, reason string) (n int) {
	t.Helper()
	all := &hivev1.ClusterDeploymentList{}
	testenv.ExpectNoError(t, e.Client.List(t.Context(), all))
	for i := range all.Items {
		if one := &all.Items[i]; one.Spec.PowerState == hivev1.PowerStateHibernating && one.Annotations[torporv1alpha1.ReasonAnnotation] == reason {
			n++
		}
	}
	return n
}

func testManyAreStopped(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.showAll(t, e, "?q=many-")
	b.expectNoViolations(t, axe, "the list")
	b.do(t, "select all", run(`document.querySelector("#rows .pick").click()`), chromedp.Click(`#selection [data-select=all]`))
	testenv.ExpectEqual(t, "the selection", fmt.Sprint(manyStopped, " selected"), evaluate[string](t, b, `document.querySelector("#selection span").innerText`))
	b.expectNoViolations(t, axe, "the selection")
	b.do(t, "ask for the stop", chromedp.Click(`#selection [data-select=stop]`), chromedp.WaitVisible("#flip"))
	testenv.ExpectEqual(t, "the objects of the question", manyStopped, evaluate[int](t, b, `document.querySelectorAll("#flip-objects li").length`))
	b.expectNoViolations(t, axe, "the question")
	b.photograph(t, fmt.Sprintf("many-%d-%s", l.width, l.scheme))
	reason := "a freeze at " + l.String()
	b.do(t, "confirm", chromedp.SendKeys(`#flip input[name=reason]`, reason), chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the note counts them", fmt.Sprintf(`document.getElementById("toast").innerText.includes("Stop of %d objects is requested")`, manyStopped))
	testenv.ExpectEqual(t, "stopped clusters", manyStopped, e.countStopped(t, reason))
	b.waitFor(t, "the rows follow", fmt.Sprintf(`document.querySelectorAll('#rows .act button[data-verb="start"]').length === %d`, manyStopped))
	b.expectNoViolations(t, axe, "the note")
	b.undo(t)
	testenv.ExpectEqual(t, "stopped clusters after Undo", 0, e.countStopped(t, reason))
	b.do(t, "close the note", chromedp.Click(`#toast .close`))
}

func testSevenDays(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.showAll(t, e, "")
	b.do(t, "open the tab", chromedp.Click(`.views a[href="timeline"]`), chromedp.WaitVisible("#timeline"))
	row := `[...document.querySelectorAll("#timeline tbody tr")].find((row) => row.innerText.includes("batch-eu"))`
	testenv.ExpectEqual(t, "the hours of a stop that began 62 hours ago", true, evaluate[bool](t, b, row+`.querySelector(".number").innerText.match(/^62\.\d$/) !== null`))
	testenv.ExpectEqual(t, "the bar of the stop is a third of the row", true, evaluate[bool](t, b, `((bar, row) => bar.width > row.width * 0.35 && bar.width < row.width * 0.39)(`+row+`.querySelector("rect.stopped").getBoundingClientRect(), `+row+`.querySelector("svg").getBoundingClientRect())`))
	testenv.ExpectEqual(t, "its text", true, evaluate[bool](t, b, row+`.querySelector("svg").ariaLabel.match(/^Requested stops: \w+ \d\d:\d\d to now$/) !== null`))
	testenv.ExpectEqual(t, "the stuck cluster has a bar of its colour", 1, evaluate[int](t, b, `[...document.querySelectorAll("#timeline tbody tr")].find((row) => row.innerText.includes("staging-3")).querySelectorAll("rect.stuck").length`))
	testenv.ExpectEqual(t, "the last day is today", time.Now().UTC().Format("Mon 2 Jan"), evaluate[string](t, b, `document.querySelector(".days span:last-child").innerText`))
	b.expectFits(t)
	b.expectNoViolations(t, axe, "the timeline")
	b.expectReadable(t, "the timeline")
	b.photograph(t, fmt.Sprintf("timeline-%d-%s", l.width, l.scheme))
	b.do(t, "search", chromedp.SendKeys(`input[name=q]`, "batch-eu"), chromedp.Click(`#filter button[type=submit]`), chromedp.WaitVisible(`#filter input[value="batch-eu"]`))
	testenv.ExpectEqual(t, "rows of the search", 1, evaluate[int](t, b, `document.querySelectorAll("#timeline tbody tr").length`))
}

func testSavings(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.showAll(t, e, "")
	b.do(t, "open the tab", chromedp.Click(`.views a[href="savings"]`), chromedp.WaitVisible("#savings"))
	b.do(t, "select all stops", chromedp.Click(`a[href^="savings?week=all"]`), chromedp.WaitVisible(`#savings a[href^="savings?week=all"][aria-current]`))
	// Two clusters saved 100 machine-hours each in earlier stops. Now 24 machines are stopped for 62 hours, and 40 for
	// nine days.
	cells := `document.querySelector("#savings tr:has([aria-current])").querySelectorAll("td")`
	hours := evaluate[float64](t, b, `Number(`+cells+`[1].innerText.replace(",", ""))`)
	if hours < 10328 || hours > 10328+64 {
		t.Errorf("expected 10,328 machine-hours, or some more after up to an hour, found %v", hours)
	}
	amount := evaluate[float64](t, b, `Number(`+cells+`[2].innerText.replace(",", "").replace(" EUR", ""))`)
	if math.Abs(amount-0.38*hours) > 0.38 {
		t.Errorf("expected 0.38 EUR for each of %v hours, found %v", hours, amount)
	}
	testenv.ExpectEqual(t, "owners", "quality, risk", evaluate[string](t, b, `[...document.querySelectorAll("#savings .scroll:last-of-type tbody th")].map((one) => one.innerText).join(", ")`))
	b.expectFits(t)
	b.expectNoViolations(t, axe, "the savings")
	b.expectReadable(t, "the savings")
	b.photograph(t, fmt.Sprintf("savings-%d-%s", l.width, l.scheme))
}

func testStuckDetails(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.showAll(t, e, "?state=stuck")
	b.do(t, "open the details", chromedp.Click(`#rows a.name`))
	b.waitFor(t, "the details are shown", drawerIsLoaded)
	for _, words := range []string{"staging-3", "1 of 6 machines does not stop: i-0a11c3", "carol@example.com", "Plan of a start", "Stalled"} {
		testenv.ExpectEqual(t, "the details have "+words, true, evaluate[bool](t, b, fmt.Sprintf(`document.getElementById("drawer").innerText.includes(%q)`, words)))
	}
	testenv.ExpectEqual(t, "the drawer is in the window", true, evaluate[bool](t, b, `(({ left, right }) => left >= 0 && right <= innerWidth)(document.getElementById("drawer").getBoundingClientRect())`))
	b.expectNoViolations(t, axe, "the details")
	b.expectReadable(t, "the details")
	b.photograph(t, fmt.Sprintf("stuck-details-%d-%s", l.width, l.scheme))
	b.do(t, "close the details", closeDrawer())
	b.waitFor(t, "the details are closed", `!document.getElementById("drawer").open`)
	address := evaluate[string](t, b, `document.querySelector("#rows a.name").href`)
	b.do(t, "open the details without scripts", chromedp.Navigate(address), chromedp.WaitVisible(".details"))
	b.expectNoViolations(t, axe, "the page of the details")
}

// testStopBesideName stops an app by the button in its row, or in its card on a phone.
func testStopBesideName(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.showAll(t, e, "?q=shop")
	button := rowOf("CFApp", "shop", "app") + `.querySelector(".act button")`
	testenv.ExpectEqual(t, "the button is in the window", true, evaluate[bool](t, b, `(({ left, right }) => left >= 0 && right <= innerWidth)(`+button+`.getBoundingClientRect())`))
	b.do(t, "press Stop", run(button+`.click()`), chromedp.WaitVisible("#flip"), chromedp.SendKeys(`#flip input[name=reason]`, l.String()), chromedp.Click(`#flip [data-end="monday"]`))
	b.waitFor(t, "the end is echoed", `document.getElementById("flip-echo").innerText.startsWith("Until ")`)
	b.expectNoViolations(t, axe, "the question")
	b.do(t, "send it", chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the row follows", button+`.dataset.verb === "start"`)
	testenv.ExpectEqual(t, "the stop", "STOPPED "+l.String(), e.readApp(t, "shop"))
	b.undo(t)
	b.waitFor(t, "the row has the start", button+`.dataset.verb === "stop"`)
	b.do(t, "close the note", chromedp.Click(`#toast .close`))
}

func testSchedulesAreAccessible(t *testing.T, e *pageEnv, b *tab, axe string, l look) {
	b.do(t, "open the tab", chromedp.Navigate(e.url+"schedules"), chromedp.WaitVisible("#schedules"))
	b.expectNoViolations(t, axe, "the schedules")
	b.do(t, "open all details", run(`document.querySelectorAll("details").forEach((e) => { e.open = true; })`))
	b.expectNoViolations(t, axe, "the schedules with their details and the form")
	b.do(t, "preview a schedule", chromedp.SendKeys("#create input[name=name]", "preview"), chromedp.SendKeys("#create input[name=namespace]", "default"),
		chromedp.Click(`#create input[value=MySQLCluster]`), chromedp.Click("#create button[type=submit]"), chromedp.WaitVisible("#preview"))
	b.expectNoViolations(t, axe, "the preview")
	b.photograph(t, fmt.Sprintf("preview-%d-%s", l.width, l.scheme))
	form := `article[data-key="Slumber default/nights"] form.awake`
	b.do(t, "ask to keep objects awake", chromedp.Navigate(e.url+"schedules"), chromedp.WaitVisible(form), chromedp.SendKeys(form+" input[name=until]", "monday 9:00"),
		chromedp.Click(form+" button"), chromedp.WaitVisible("main > form button.primary"))
	b.expectNoViolations(t, axe, "the question about awake objects")
}

// expectFits fails if the document is wider than the window.
func (b *tab) expectFits(t *testing.T) {
	t.Helper()
	testenv.ExpectEqual(t, "pixels beyond the width of the window", 0, evaluate[int](t, b, `Math.max(0, document.documentElement.scrollWidth - innerWidth)`))
}
