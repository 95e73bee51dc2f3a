// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// axeScript returns the text of axe-core, which npm installs.
func axeScript(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(os.Getenv("TORPOR_AXE"))
	if err != nil {
		t.Skipf("axe-core is not installed: expected its file in TORPOR_AXE; `make test-outside` installs it with npm: %v", err)
	}
	return string(script)
}

// axeRules are the rules of WCAG 2.2 at the levels A and AA, and the best practices of axe-core.
const axeRules = `{resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}`

// expectNoViolations checks the document and its open dialogs with axe-core.
func (b *tab) expectNoViolations(t *testing.T, axe, where string) {
	t.Helper()
	if !evaluate[bool](t, b, `typeof window.axe === "object"`) {
		b.do(t, "load axe-core", run(axe))
	}
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run(document, `+axeRules+`).then(({ violations, passes }) => [
		...violations.flatMap(({ id, help, nodes }) => nodes.map((one) => id + ": " + help + ": " + one.html.slice(0, 200) + ": " + one.failureSummary)),
		...(passes.length < 10 ? ["axe-core has judged too little: " + passes.length + " rules passed"] : []),
	])`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: run axe-core: %v", where, err)
	}
	for _, violation := range found {
		t.Errorf("%s: expected no violation, found %s", where, violation)
	}
}

// look is a size of the window and a colour scheme.
type look struct {
	width, height int64
	scheme        string
}

func (l look) String() string { return fmt.Sprintf("%d pixels in %s", l.width, l.scheme) }

// forEachLook performs a flow in both sizes and both colour schemes.
func forEachLook(t *testing.T, b *tab, flow func(*testing.T, look)) {
	t.Helper()
	for _, l := range []look{
		{deskWidth, deskHeight, "light"}, {deskWidth, deskHeight, "dark"}, {phoneWidth, phoneHeight, "light"}, {phoneWidth, phoneHeight, "dark"},
	} {
		t.Run(l.String(), func(t *testing.T) {
			b.showOn(t, l.width, l.height)
			b.preferColors(t, l.scheme)
			flow(t, l)
		})
	}
}
