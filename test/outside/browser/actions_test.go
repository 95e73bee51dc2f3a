// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// drawerIsLoaded is true if the details of an object are shown.
const drawerIsLoaded = `document.getElementById("drawer").open && document.getElementById("drawer").ariaBusy === "false"`

func (e *pageEnv) readCluster(t *testing.T, name string) *hivev1.ClusterDeployment {
	t.Helper()
	cd := &hivev1.ClusterDeployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, cd))
	return cd
}

// testExtendAndSkip extends a stop from its details, and skips the Slumbers of an object that runs.
func testExtendAndSkip(t *testing.T, e *pageEnv, b *tab) {
	b.do(t, "open the details", run(rowOf("ClusterDeployment", "batch-eu", "machines")+`.querySelector("a.name").click()`))
	b.waitFor(t, "the details have the button", drawerIsLoaded+` && document.querySelector('#drawer button[data-verb="extend"]')`)
	b.do(t, "extend the stop", chromedp.Click(`#drawer button[data-verb="extend"]`), chromedp.WaitVisible("#flip"), chromedp.SetValue(`#flip input[name=until]`, "1h"),
		chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "an earlier end is refused", `document.querySelector("#flip .error").innerText.includes("after the current end of the stop")`)
	b.do(t, "enter a later end", chromedp.SetValue(`#flip input[name=until]`, "2099-01-02T03:04:05Z"), chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the note is in the drawer", `!document.getElementById("flip").open && document.getElementById("toast").checkVisibility() && document.getElementById("drawer").contains(document.getElementById("toast"))`)
	testenv.ExpectEqual(t, "the end", "2099-01-02T03:04:05Z", e.readCluster(t, "batch-eu").Annotations[torporv1alpha1.UntilAnnotation])
	b.do(t, "close the details, and open those of a running app at once",
		run(`document.querySelector("#drawer .close").click(); `+rowOf("CFApp", "shop", "app")+`.querySelector("a.name").click()`))
	b.waitFor(t, "the details have the button", drawerIsLoaded+` && document.querySelector('#drawer button[data-verb="skip"]')`)
	b.do(t, "skip", chromedp.Click(`#drawer button[data-verb="skip"]`), chromedp.WaitVisible("#flip"), chromedp.Click(`#flip [data-end="tomorrow"]`))
	b.waitFor(t, "the end is echoed", fmt.Sprintf(`document.getElementById("flip-echo").innerText.includes(%q)`, time.Now().AddDate(0, 0, 1).Format("2006-01-02")))
	b.expectReadable(t, "the dialog above the details")
	b.photograph(t, "skip")
	b.do(t, "send it", chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the focus returns to the details", `!document.getElementById("flip").open && document.getElementById("drawer").contains(document.activeElement)`)
	b.waitFor(t, "the details have the skip", `document.getElementById("drawer").innerText.includes("Skipped until")`)
	b.do(t, "close the details, and go to the search at once", run(`document.getElementById("drawer").addEventListener("close", () => { window.detailsClosed = true; }, { once: true });
		document.querySelector("#drawer .close").click(); document.querySelector("input[name=q]").focus()`))
	b.waitFor(t, "the details are closed", `window.detailsClosed && !document.getElementById("drawer").open`)
	testenv.ExpectEqual(t, "the focus after the details are closed", "q", evaluate[string](t, b, `document.activeElement.name ?? document.activeElement.tagName`))
}

// testBulkStop selects two clusters, stops both after one confirmation that lists them, and undoes the stops.
func testBulkStop(t *testing.T, e *pageEnv, b *tab) {
	names := []string{"bulk-a", "bulk-b"}
	for _, name := range names {
		cd := testenv.BuildClusterDeployment(client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, "cloud", "kubeconfig")
		e.ExpectCreated(t, cd)
		defer func() { testenv.ExpectNoError(t, e.Client.Delete(t.Context(), cd)) }()
	}
	b.do(t, "search for them", chromedp.SendKeys(`input[name=q]`, "bulk-"))
	b.waitFor(t, "their rows are shown", `document.querySelectorAll("#rows tr").length === 2`)
	b.do(t, "select them", chromedp.Click(`#rows tr:nth-child(1) .pick`), chromedp.Click(`#selection [data-select=all]`))
	testenv.ExpectEqual(t, "the selection", "2 selected", evaluate[string](t, b, `document.querySelector("#selection span").innerText`))
	b.expectReadable(t, "the selection")
	b.do(t, "ask for the stop", chromedp.Click(`#selection [data-select=stop]`), chromedp.WaitVisible("#flip"))
	for _, name := range names {
		testenv.ExpectEqual(t, "the question lists "+name, true, evaluate[bool](t, b, fmt.Sprintf(`document.getElementById("flip-objects").innerText.includes(%q)`, name)))
	}
	b.photograph(t, "bulk")
	b.do(t, "confirm", chromedp.SendKeys(`#flip input[name=reason]`, "a bill"), chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the note counts them", `document.getElementById("toast").checkVisibility() && document.getElementById("toast").innerText.includes("Stop of 2 objects is requested")`)
	for _, name := range names {
		cd := e.readCluster(t, name)
		testenv.ExpectEqual(t, "the stop of "+name, fmt.Sprint(hivev1.PowerStateHibernating, " a bill"), fmt.Sprint(cd.Spec.PowerState, " ", cd.Annotations[torporv1alpha1.ReasonAnnotation]))
	}
	b.undo(t)
	for _, name := range names {
		testenv.ExpectEqual(t, "the state of "+name, hivev1.PowerStateRunning, e.readCluster(t, name).Spec.PowerState)
	}
	b.do(t, "close the note and go back to all", chromedp.Click(`#toast .close`), chromedp.Navigate(e.url))
	b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live"`)
}

// undo presses Undo, and waits for the answer. The answer moves the note, so a click on the note before the answer
// would be lost.
func (b *tab) undo(t *testing.T) {
	t.Helper()
	b.do(t, "press Undo", chromedp.Click(`#toast .undo`))
	b.waitFor(t, "the change is taken back", `document.getElementById("toast").innerText.includes("taken back")`)
}

// testPhoneStop stops an app from its card, with a chip for the end and a remembered reason.
func testPhoneStop(t *testing.T, e *pageEnv, b *tab) {
	b.showOn(t, phoneWidth, phoneHeight)
	defer b.showOn(t, deskWidth, deskHeight)
	button := rowOf("CFApp", "shop", "app") + `.querySelector(".act button")`
	b.do(t, "press Stop", run(button+`.click()`), chromedp.WaitVisible("#flip"), chromedp.SendKeys(`#flip input[name=reason]`, "from a phone"), chromedp.Click(`#flip [data-end="monday"]`))
	b.waitFor(t, "the end is echoed", `document.getElementById("flip-echo").innerText.startsWith("Until ")`)
	testenv.ExpectEqual(t, "the dialog is no wider than the phone", true, evaluate[bool](t, b, `document.getElementById("flip").getBoundingClientRect().right <= innerWidth`))
	b.photograph(t, "phone-stop")
	b.do(t, "send it", chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the note is at the bottom", `(() => { const note = document.getElementById("toast").getBoundingClientRect(); return note.height > 0 && note.bottom <= innerHeight && note.top > innerHeight - 200; })()`)
	b.photograph(t, "phone-undo")
	b.undo(t)
	b.waitFor(t, "the row has the start", button+`.dataset.verb === "stop"`)
	testenv.ExpectEqual(t, "the remembered reason", true, evaluate[bool](t, b, `JSON.parse(localStorage.getItem("torpor-reasons")).includes("from a phone")`))
	b.do(t, "close the note", chromedp.Click(`#toast .close`))
}

// weightScript adds up the sizes of the document and of all that it has loaded, uncompressed.
const weightScript = `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((sum, one) => sum + one.decodedBodySize, 0)`

// testWeight adds up the page with all its files, uncompressed.
func testWeight(t *testing.T, _ *pageEnv, b *tab) {
	const maxWeight = 150 << 10
	b.do(t, "load the page", chromedp.Reload())
	b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live"`)
	weight := evaluate[int](t, b, weightScript)
	if weight > maxWeight || weight < 20<<10 {
		t.Errorf("expected a page of at most %d bytes, found %d", maxWeight, weight)
	}
}
