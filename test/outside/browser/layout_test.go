// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"testing"

	"github.com/chromedp/chromedp"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// phoneWidth and phoneHeight are the size of a small phone.
	phoneWidth, phoneHeight = 390, 844
	// deskWidth and deskHeight are the size of a window on a desk.
	deskWidth, deskHeight = 1440, 860
	// maxDenseRow is the greatest height of the row of a running object.
	maxDenseRow = 44
)

// showOn changes the size of the window.
func (b *tab) showOn(t *testing.T, width, height int64) {
	t.Helper()
	b.do(t, "change the size of the window", chromedp.EmulateViewport(width, height))
}

// testRowsFitTheWindow measures dense rows on a desk, the sticky name on a tablet, and cards on a phone.
func testRowsFitTheWindow(t *testing.T, _ *pageEnv, b *tab) {
	for _, found := range evaluate[[]float64](t, b, `[...document.querySelectorAll('tr[data-badge="running"]')].map((row) => row.getBoundingClientRect().height)`) {
		if found > maxDenseRow {
			t.Errorf("expected a row of at most %d px for a running object, found %v", maxDenseRow, found)
		}
	}
	testenv.ExpectEqual(t, "the table fits a desk", true, evaluate[bool](t, b, `(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector(".scroll"))`))
	b.showOn(t, 768, deskHeight)
	b.do(t, "scroll to the buttons", run(`document.querySelector(".scroll").scrollLeft = 4000`))
	testenv.ExpectEqual(t, "names that have scrolled away", 0, evaluate[int](t, b,
		`[...document.querySelectorAll("#rows th")].filter((name) => name.getBoundingClientRect().left < document.querySelector(".scroll").getBoundingClientRect().left).length`))
	b.showOn(t, phoneWidth, phoneHeight)
	defer b.showOn(t, deskWidth, deskHeight)
	testenv.ExpectEqual(t, "the page is no wider than the phone", true, evaluate[bool](t, b, `document.documentElement.scrollWidth <= innerWidth`))
	testenv.ExpectEqual(t, "buttons that are not beside their name", 0, evaluate[int](t, b, `[...document.querySelectorAll("#rows tr")].filter((row) => {
		const button = row.querySelector(".act button")?.getBoundingClientRect(), name = row.querySelector(".name").getBoundingClientRect();
		return button && (button.bottom < name.top || button.top > name.bottom || button.left < name.right || button.right > innerWidth || button.height < 44);
	}).length`))
	b.expectReadable(t, "cards")
	b.photograph(t, "phone")
}
