// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/page"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// stepTimeout is the time allowed for one step, on a machine that may be busy.
const stepTimeout = time.Minute

// pageEnv is an API server and the page, with the rights of the manager.
type pageEnv struct {
	*testenv.Environment
	url, token, user string
}

func newPageEnv(t *testing.T) *pageEnv {
	t.Helper()
	e := &pageEnv{Environment: testenv.Start(t)}
	manager := e.ApplyManagerRoles(t, metav1.NamespaceDefault)
	e.ApplyManifest(t, "page/roles.yaml")
	e.InstallCRDs(t, "../../../internal/switches/stopadapter/controller/testdata/crds.yaml")
	e.ApplyManifest(t, filepath.Join("..", "examples", "stopadapters", "flux-kustomization.yaml"))
	for _, role := range []string{"torpor-stopadapters", "torpor-switch-viewer", "torpor-switch-operator"} {
		e.AggregateRole(t, role)
	}
	e.user = "system:serviceaccount:" + metav1.NamespaceDefault + ":alice"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "alice"}}
	e.ExpectCreated(t, account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-switch-operator"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceDefault, Name: "alice"}},
	})
	request := &authenticationv1.TokenRequest{}
	testenv.ExpectNoError(t, e.Client.SubResource("token").Create(t.Context(), account, request))
	e.token = request.Status.Token
	address, prices := testenv.FreeAddress(t), t.TempDir()
	for key, text := range map[string]string{"machineHour": "0.38", "currency": "EUR", "ownerLabel": "team"} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(prices, key), []byte(text), 0o600))
	}
	server, err := page.New(page.Options{Address: address, PricesFolder: prices, Config: e.ImpersonateUser(manager), Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: page.NewMetrics()})
	testenv.ExpectNoError(t, err)
	testenv.RunInBackground(t, "the page", server.Start)
	e.url = "http://" + address + "/"
	testenv.Eventually(t, "the page answers", func() error {
		answer, err := http.Get(e.url)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
	return e
}

// tab is a tab of the browser that shows the page.
type tab struct {
	ctx context.Context
	mu  sync.Mutex
	// complaints are errors of the script, and resources that the browser refused to load or run.
	complaints []string
}

func findChromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: expected it on PATH; `make test-outside` installs it as root on Debian")
	}
	return path
}

func openTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)), chromedp.NoSandbox, chromedp.WSURLReadTimeout(stepTimeout))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	b := &tab{ctx: ctx}
	testenv.ExpectNoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(1440, 860))) // The browser lives as long as this context.
	said := chromedp.Console(ctx)
	go func() {
		for message, err := range said {
			if err != nil {
				return
			}
			if message.Type == chromedp.ConsoleError || message.Type == chromedp.ConsoleException {
				b.mu.Lock()
				b.complaints = append(b.complaints, message.Text)
				b.mu.Unlock()
			}
		}
	}()
	return b
}

// do performs a user's actions, and names the step in the error if it fails.
func (b *tab) do(t *testing.T, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 2000)`))
		t.Fatalf("%s: %v; the page shows:\n%s", what, err, text)
	}
}

// waitFor waits until a condition in JavaScript holds.
func (b *tab) waitFor(t *testing.T, what, condition string) {
	t.Helper()
	b.do(t, what, ignoring(chromedp.Poll[any](condition+" ? 1 : 0", chromedp.WithPollingTimeout(stepTimeout))))
}

// ignoring performs an action whose result is not needed.
func ignoring[T any](action chromedp.Action[T]) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := action(ctx, target)
		return err
	})
}

// run executes a statement in JavaScript.
func run(statement string) chromedp.Action[chromedp.Void] {
	return ignoring(chromedp.Evaluate[bool](statement + "; true"))
}

func evaluate[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func (b *tab) logIn(t *testing.T, e *pageEnv) {
	t.Helper()
	b.do(t, "log in", chromedp.Navigate(e.url), chromedp.SetValue("#token", e.token), chromedp.Click("button[type=submit]"), chromedp.WaitVisible("#summary"))
}

func (b *tab) preferColors(t *testing.T, scheme string) {
	t.Helper()
	b.do(t, "prefer "+scheme, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return err
	}))
}

// photograph saves a screenshot of the page in the folder TORPOR_PHOTOGRAPHS, if it is set.
func (b *tab) photograph(t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("TORPOR_PHOTOGRAPHS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600))
}

// expectNoComplaints fails if the browser refused a resource, or the script failed.
func (b *tab) expectNoComplaints(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		// These are the answers to the login form, to an invalid form and to a refused extension.
		isAnswer := func(status string) bool { return strings.Contains(complaint, status) }
		if !slices.ContainsFunc([]string{"401 (Unauthorized)", "400 (Bad Request)", "409 (Conflict)"}, isAnswer) {
			t.Errorf("expected no complaint of the browser, found %s", complaint)
		}
	}
}

// expectReadable measures the contrast of all text as WCAG 2.2 does: at least 4.5 to 1.
func (b *tab) expectReadable(t *testing.T, when string) {
	t.Helper()
	for _, found := range evaluate[[]string](t, b, contrastScript) {
		t.Errorf("%s: expected a contrast of 4.5 at least, found %s", when, found)
	}
}

const contrastScript = `(() => {
	const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const below = (element) => { for (let e = element; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const element of document.body.querySelectorAll("*")) {
		const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join("");
		if (!text || !element.checkVisibility() || element.closest("script, option")) continue;
		const [a, b] = [light(parse(getComputedStyle(element).color)), light(below(element))].sort((x, y) => y - x);
		const contrast = (a + 0.05) / (b + 0.05);
		if (contrast < 4.5) bad.push(contrast.toFixed(2) + " of " + element.tagName + "." + element.className + " " + text.slice(0, 40));
	}
	return bad;
})()`

// rowOf returns the row of an object as a JavaScript expression.
func rowOf(kind, name, part string) string {
	return fmt.Sprintf("document.querySelector('tr[data-key=%q]')", kind+"/"+metav1.NamespaceDefault+"/"+name+"/"+part)
}
