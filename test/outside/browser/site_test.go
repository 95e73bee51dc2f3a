// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
)

// startSite serves the files that make site has built, on loopback.
func startSite(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("TORPOR_SITE")
	if _, err := os.Stat(filepath.Join(folder, "index.html")); folder == "" || err != nil {
		t.Skip("the site is not built: expected index.html in TORPOR_SITE; run `make site test-outside`")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	return server.URL
}

// TestSiteInChromium reads the site as a user does: searches, follows a result, and switches to dark colours.
func TestSiteInChromium(t *testing.T) {
	findChromium(t)
	site := startSite(t)
	b := openTab(t)
	b.preferColors(t, "light")
	b.do(t, "open the site", chromedp.Navigate(site+"/"), chromedp.WaitVisible("main h1"))
	expectVersionsAndReaders(t, b)
	expectRecordingPlays(t, b)
	expectSearchFindsHeading(t, b)
	expectDarkMode(t, b)
	expectOnlyFilesOfTheSite(t, b, site)
	b.expectNoComplaints(t)
}

func expectVersionsAndReaders(t *testing.T, b *tab) {
	t.Helper()
	b.waitFor(t, "the diagram of the README is drawn", `document.querySelector(".diagram svg")`)
	b.waitFor(t, "the menu of versions shows the version of the site",
		`document.querySelector(".VPNavBarMenu .VPNavBarMenuGroup .items").textContent.includes("(shown)")`)
	readers := []string{"New user", "Platform administrator", "DBA", "App developer", "Operator author", "Contributor"}
	for _, reader := range readers {
		b.waitFor(t, "the navigation has "+reader, `[...document.querySelectorAll(".VPSidebarItem.level-0 h2")]
			.some((heading) => heading.textContent.startsWith(`+strconv.Quote(reader)+`))`)
	}
}

func expectRecordingPlays(t *testing.T, b *tab) {
	t.Helper()
	b.do(t, "play the recording", chromedp.Click(".ap-player .ap-overlay-start"))
	b.waitFor(t, "the recording shows the next change of its Slumber",
		`document.querySelector(".ap-player").innerText.includes("starts by itself, or now by kubectl torpor skip")`)
}

func expectSearchFindsHeading(t *testing.T, b *tab) {
	t.Helper()
	const result = `.VPLocalSearchBox .result[href$="/docs/spec/clusterdeployment.html#workers-first"]`
	b.do(t, "open the search",
		chromedp.Click(".VPNavBarSearch button"), chromedp.WaitVisible("#localsearch-input"))
	b.do(t, "search",
		chromedp.SendKeys("#localsearch-input", "workers first"), chromedp.WaitVisible(result))
	b.do(t, "follow the result", chromedp.Click(result))
	b.waitFor(t, "the page of the result is shown",
		`location.pathname === "/docs/spec/clusterdeployment.html" && location.hash === "#workers-first"`)
	b.waitFor(t, "the heading is in the window", `((heading) =>
		heading && heading.textContent.replace("\u200b", "").trim() === "Workers first" &&
		heading.getBoundingClientRect().top >= 0 && heading.getBoundingClientRect().bottom <= innerHeight
	)(document.getElementById("workers-first"))`)
	b.photograph(t, "site-result")
}

func expectDarkMode(t *testing.T, b *tab) {
	t.Helper()
	const background = `getComputedStyle(document.body).backgroundColor`
	if found := evaluate[string](t, b, background); found != "rgb(255, 255, 255)" {
		t.Errorf("expected a white background where light colours are preferred, found %s", found)
	}
	b.do(t, "switch to dark colours", chromedp.Click(".VPNavBarAppearance button.VPSwitchAppearance"))
	b.waitFor(t, "the background is dark", background+`.match(/\d+/g).every((part) => part < 64)`)
	b.do(t, "load the page again", chromedp.Reload(), chromedp.WaitVisible("main h1"))
	b.waitFor(t, "the choice is remembered", background+`.match(/\d+/g).every((part) => part < 64)`)
	b.photograph(t, "site-dark")
}

// expectOnlyFilesOfTheSite fails if the page has loaded anything from another host.
func expectOnlyFilesOfTheSite(t *testing.T, b *tab, site string) {
	t.Helper()
	foreign := `performance.getEntriesByType("resource").map((entry) => entry.name)
		.filter((name) => !name.startsWith("data:") && !name.startsWith(` + strconv.Quote(site) + `))`
	for _, found := range evaluate[[]string](t, b, foreign) {
		t.Errorf("expected only files of the site, found %s", found)
	}
}
