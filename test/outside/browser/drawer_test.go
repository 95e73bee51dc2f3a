// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// readApp returns the requested state of an app, and the reason for its stop.
func (e *pageEnv) readApp(t *testing.T, name string) string {
	t.Helper()
	app := &korifiv1alpha1.CFApp{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, app))
	return fmt.Sprint(app.Spec.DesiredState, " ", app.Annotations["torpor.dev/reason"])
}

// closeDrawer presses Close in one step, because a change to the object renders the details again.
func closeDrawer() chromedp.Action[chromedp.Void] {
	return run(`document.querySelector("#drawer .close").click()`)
}

// testUndo stops an app, whose row keeps its place, and takes the stop back.
func testUndo(t *testing.T, e *pageEnv, b *tab) {
	row := rowOf("CFApp", "mail", "app")
	place := `[...document.querySelectorAll("#rows tr")].indexOf(` + row + `)`
	before := evaluate[int](t, b, place)
	b.do(t, "press Stop", run(row+`.querySelector(".act button").click()`), chromedp.WaitVisible("#flip"),
		chromedp.SendKeys(`#flip input[name=reason]`, "a mistake"), chromedp.Click(`#flip button[type=submit]`))
	b.waitFor(t, "the note is shown", `!document.getElementById("toast").hidden && document.getElementById("toast").innerText.includes("Stop of mail is requested")`)
	b.waitFor(t, "the row has the stop", row+`.querySelector(".act button").dataset.verb === "start"`)
	testenv.ExpectEqual(t, "the place of the row", before, evaluate[int](t, b, place))
	testenv.ExpectEqual(t, "the stop", fmt.Sprint(korifiv1alpha1.StoppedState, " a mistake"), e.readApp(t, "mail"))
	// The browser scrolls by whole pixels.
	testenv.ExpectEqual(t, "the note is in the window, beside the row", true, evaluate[bool](t, b, `(() => {
		const note = document.getElementById("toast").getBoundingClientRect(), row = `+row+`.getBoundingClientRect();
		return note.bottom <= innerHeight + 1 && note.right <= innerWidth && note.top >= row.top && note.top < row.bottom + 60;
	})()`))
	b.expectReadable(t, "the note")
	b.photograph(t, "undo")
	b.undo(t)
	b.waitFor(t, "the row has the start", row+`.querySelector(".act button").dataset.verb === "stop"`)
	testenv.ExpectEqual(t, "the start", fmt.Sprint(korifiv1alpha1.StartedState, " "), e.readApp(t, "mail"))
	b.do(t, "close the note", chromedp.Click(`#toast .close`))
}

// testDrawer opens the details by the keyboard and by an address, in both widths.
func testDrawer(t *testing.T, _ *pageEnv, b *tab) {
	name := rowOf("ClusterDeployment", "staging-3", "machines") + `.querySelector("a.name")`
	b.do(t, "open the details", run(name+`.focus()`), chromedp.KeyEvent(kb.Enter))
	b.waitFor(t, "the details are shown", drawerIsLoaded)
	for _, words := range []string{"staging-3", "i-0a11c3", "carol@example.com", "no budget in November", "Plan of a start", "History", "Stalled", "Events"} {
		testenv.ExpectEqual(t, "the details have "+words, true, evaluate[bool](t, b, fmt.Sprintf(`document.getElementById("drawer").innerText.includes(%q)`, words)))
	}
	testenv.ExpectEqual(t, "the name of the dialog", "staging-3", evaluate[string](t, b, `document.getElementById(document.getElementById("drawer").getAttribute("aria-labelledby")).innerText`))
	testenv.ExpectEqual(t, "the focus", "drawer-title", evaluate[string](t, b, `document.activeElement.id`))
	b.expectReadable(t, "the details")
	b.photograph(t, "details")
	address := evaluate[string](t, b, `location.href`)
	b.do(t, "press Esc", chromedp.KeyEvent(kb.Escape))
	b.waitFor(t, "the focus returns, and the address has no fragment", `!document.getElementById("drawer").open && location.hash === "" && document.activeElement === `+name)
	b.showOn(t, phoneWidth, phoneHeight)
	defer b.showOn(t, deskWidth, deskHeight)
	b.do(t, "open the address in a new document", chromedp.Navigate("about:blank"), chromedp.Navigate(address))
	b.waitFor(t, "the details are shown again", drawerIsLoaded+` && document.getElementById("drawer").innerText.includes("i-0a11c3")`)
	testenv.ExpectEqual(t, "the drawer is no wider than the phone", true, evaluate[bool](t, b, `document.getElementById("drawer").scrollWidth <= innerWidth`))
	b.photograph(t, "details-phone")
	b.do(t, "go back to all", closeDrawer())
	b.waitFor(t, "the page is live", `!document.getElementById("drawer").open && document.getElementById("connection").dataset.state === "live"`)
}
