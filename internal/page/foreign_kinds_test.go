// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	stopadaptercontroller "github.com/torpor-dev/torpor/internal/switches/stopadapter/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const kustomizations = "kustomizations.kustomize.toolkit.fluxcd.io"

func buildKustomization(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "spec": map[string]any{"interval": "10m", "path": "./"},
	}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// startStopAdapters runs the controllers of StopAdapters with the rights of the manager.
func (e *pageEnv) startStopAdapters(t *testing.T) {
	t.Helper()
	limited := *e.Environment
	limited.Config = e.ImpersonateUser("system:serviceaccount:" + metav1.NamespaceDefault + ":torpor-manager")
	stop := testenv.StartManager(t, &limited, func(mgr manager.Manager) error {
		return stopadaptercontroller.Controller{Clock: clock.RealClock{}, Manager: mgr}.SetupWithManager(mgr)
	})
	t.Cleanup(stop)
}

// TestKindsOfStopAdaptersComeAndGo follows one adapter from before its kind is served until after the adapter is
// deleted.
func TestKindsOfStopAdaptersComeAndGo(t *testing.T) {
	e := newPageEnv(t)
	e.startStopAdapters(t)
	ours, others := e.CreateNamespace(t), e.CreateNamespace(t)
	user, token := e.createAccount(t, ours, "operator", "get", "list", "patch")
	_, strangersToken := e.createAccount(t, others, "viewer", "get", "list")
	operator, stranger := e.openBrowser(t), e.openBrowser(t)
	operator.logIn(t, token)
	stranger.logIn(t, strangersToken)
	e.ApplyManifest(t, "record/workloads.yaml")
	e.ApplyManifest(t, filepath.Join("..", "examples", "stopadapters", "flux-kustomization.yaml"))
	adapter := &torporv1alpha1.StopAdapter{ObjectMeta: metav1.ObjectMeta{Name: kustomizations}}
	e.WaitForCondition(t, adapter, torporv1alpha1.StopAdapterReadyCondition, metav1.ConditionFalse, torporv1alpha1.StopAdapterDormantReason)
	operator.expectSoon(t, "nothing is shown of it", func(text string) bool {
		return strings.Contains(text, "Nothing to show") && !strings.Contains(text, "StopAdapter")
	})

	t.Log("A kind that torpor manager may not list causes a warning, and is shown once the role exists.")
	e.InstallCRDs(t, "../switches/stopadapter/controller/testdata/crds.yaml")
	e.WaitForCondition(t, adapter, torporv1alpha1.StopAdapterReadyCondition, metav1.ConditionFalse, torporv1alpha1.StopAdapterForbiddenReason)
	operator.expectShown(t, "/", []string{kustomizations + ": torpor manager may not list objects of this kind"}, nil)
	e.AggregateRole(t, "torpor-stopadapters")
	e.WaitForCondition(t, adapter, torporv1alpha1.StopAdapterReadyCondition, metav1.ConditionTrue, torporv1alpha1.StopAdapterRunningReason)
	shop := buildKustomization(ours, "shop")
	e.ExpectCreated(t, shop, buildKustomization(ours, "untouched"))
	operator.expectShown(t, "/", []string{"Nothing to show"}, nil)

	t.Log("An object that is stopped for the first time is added to an open page.")
	_, next := operator.openStream(t, "")
	if first := next(); len(first.Rows) != 0 {
		t.Fatalf("expected no row of an object that was never stopped, found %+v", first.Rows)
	}
	operator.stopUntilNoted(t, e, shop, user)
	row := ""
	for !strings.Contains(row, user) { // The row may appear before its controller records the requester.
		if event := next(); len(event.Rows) == 1 {
			row = event.Rows[0].HTML
		}
	}
	for _, words := range []string{`data-key="` + kustomizations + "/" + ours + `/shop/switch"`, "Kustomization of kustomize.toolkit.fluxcd.io", "no budget", user} {
		if !strings.Contains(row, words) {
			t.Errorf("expected %q in the new row, found %s", words, row)
		}
	}
	operator.expectShown(t, "/?kind="+kustomizations, []string{">shop<", `data-verb="start"`, `data-state="stopped"`, `<option selected>` + kustomizations}, []string{">untouched<"})
	e.expectSaidByPlugin(t, ours, "shop", "stopped", user, "no budget")
	stranger.expectShown(t, "/", []string{"Nothing to show"}, []string{"shop", kustomizations})
	form := url.Values{"verb": {"start"}, "kind": {kustomizations}, "namespace": {ours}, "name": {"shop"}, "part": {"switch"}}
	if status, text := stranger.post(t, "/switch", form, nil); status != http.StatusForbidden {
		t.Errorf("a start without rights: expected 403, found %d: %s", status, text)
	}
	if status, text := operator.post(t, "/switch", form, nil); status != http.StatusNoContent {
		t.Fatalf("a start: expected 204, found %d: %s", status, text)
	}
	e.WaitFor(t, "it is started", shop, func() error {
		return testenv.ErrorIf(len(fieldswitch.ReadSwitch(shop).Saved) > 0, "found %v", shop.Object)
	})
	operator.expectShown(t, "/", []string{">shop<", `data-verb="stop"`, user}, nil)

	t.Log("The rows of a removed kind disappear, and no others.")
	e.ExpectCreated(t, buildCluster(ours, "fleet"))
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kustomizations}}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), crd))
	operator.expectSoon(t, "the rows are gone", func(text string) bool {
		return !strings.Contains(text, ">shop<") && strings.Contains(text, ">fleet<") && !strings.Contains(text, "StopAdapter")
	})
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), adapter))
	if status, text := operator.post(t, "/switch", form, nil); status == http.StatusNoContent {
		t.Errorf("a start of a removed object: expected a refusal, found %d: %s", status, text)
	}
}

// expectSoon waits until the page satisfies a condition.
func (b *browser) expectSoon(t *testing.T, what string, holds func(text string) bool) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		_, text := b.get(t, "/")
		return testenv.ErrorIf(!holds(text), "found %s", text)
	})
}

// stopUntilNoted stops an object, and retries until the API server applies the policy that records the requester.
func (b *browser) stopUntilNoted(t *testing.T, e *pageEnv, u *unstructured.Unstructured, user string) {
	t.Helper()
	testenv.Eventually(t, "the policy is followed", func() error {
		tried := buildKustomization(u.GetNamespace(), "tried")
		tried.SetAnnotations(map[string]string{torporv1alpha1.StoppedAnnotation: "true"})
		err := e.Client.Create(t.Context(), tried, client.DryRunAll)
		return testenv.ErrorIf(err != nil || tried.GetAnnotations()[torporv1alpha1.RequestedByAnnotation] == "", "found %v: %v", tried.GetAnnotations(), err)
	})
	// An object that was never stopped has no row with a button. kubectl torpor stop writes this patch.
	asUser, err := client.New(e.ImpersonateUser(user), client.Options{Scheme: e.Client.Scheme(), Mapper: e.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	patch := `{"metadata": {"annotations": {"torpor.dev/stopped": "true", "torpor.dev/reason": "no budget"}}}`
	testenv.ExpectNoError(t, asUser.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// expectSaidByPlugin checks that kubectl torpor status reports the same.
func (e *pageEnv) expectSaidByPlugin(t *testing.T, namespace, name, state, by, reason string) {
	t.Helper()
	var out, stderr strings.Builder
	code := torpor.Run(t.Context(), torpor.Streams{Out: &out, Err: &stderr}, []string{"status", "--kubeconfig", e.KubeconfigPath(t), "-n", namespace, "-o", "json"})
	var rows []struct{ Name, State, By, Reason string }
	if code != 0 || json.Unmarshal([]byte(out.String()), &rows) != nil {
		t.Fatalf("kubectl torpor status: expected rows, found %d: %s%s", code, out.String(), stderr.String())
	}
	for _, r := range rows {
		if r.Name == name {
			testenv.ExpectEqual(t, "the row of kubectl torpor status", fmt.Sprint(state, by, reason), fmt.Sprint(r.State, r.By, r.Reason))
			return
		}
	}
	t.Errorf("kubectl torpor status: expected %s, found %+v", name, rows)
}

// TestAKindUnseenInOneNamespaceStaysSo covers a kind that cannot be read in two namespaces, then in one of them, and
// finally in none.
func TestAKindUnseenInOneNamespaceStaysSo(t *testing.T) {
	t.Parallel()
	all := newInventory()
	warnings := func() []string { return listWarnings(all.listGaps(), &visibility{}) }
	all.setUnseen("Slumber", "team-a", noAnswer)
	all.setUnseen("Slumber", "team-b", noAnswer)
	testenv.ExpectEqual(t, "warnings without two", []string{"Slumber: " + noAnswer}, warnings())
	all.setUnseen("Slumber", "team-b", "")
	testenv.ExpectEqual(t, "warnings without one", []string{"Slumber: " + noAnswer}, warnings())
	all.setUnseen("Slumber", "team-a", "")
	testenv.ExpectEqual(t, "warnings when both are seen", 0, len(warnings()))
}

// TestForeignRowsAreBounded covers more stopped objects of one kind than the page keeps, and more StopAdapters than it
// watches.
func TestForeignRowsAreBounded(t *testing.T) {
	t.Parallel()
	all, k := newInventory(), listAdapter(buildAdapter("kustomizations")).kind
	all.addKind(k)
	build := func(n int) *listing {
		u := buildKustomization("ns", fmt.Sprintf("k-%d", n))
		fieldswitch.AskForStop(u)
		return newListing(k, u)
	}
	for n := range maxForeignRows + 2 {
		all.put(k, build(n))
	}
	everything := func(kindNamespace) bool { return true }
	testenv.ExpectEqual(t, "rows", maxForeignRows, len(all.listSwitches(everything)))
	sees := &visibility{everywhere: map[string]bool{k.Name(): true}}
	if found := listWarnings(all.listGaps(), sees); len(found) != 1 || !strings.Contains(found[0], "only 1000 objects that are or were stopped are shown") {
		t.Errorf("expected a warning about the objects left out, found %q", found)
	}
	if found := listWarnings(all.listGaps(), &visibility{}); len(found) != 0 {
		t.Errorf("a caller who sees none of them: expected no warning, found %q", found)
	}
	for _, gone := range []int{maxForeignRows, 0} {
		all.remove(k, build(gone))
	}
	all.put(k, build(maxForeignRows+1)) // An object that changes is added, because there is room again.
	testenv.ExpectEqual(t, "rows after some have gone", maxForeignRows, len(all.listSwitches(everything)))
	if found := listWarnings(all.listGaps(), sees); len(found) != 0 {
		t.Errorf("expected nothing to be left out, found %q", found)
	}
	all.removeKind(k)
	testenv.ExpectEqual(t, "rows without the kind", 0, len(all.listSwitches(everything)))

	var known []any
	for n := range maxForeignKinds + 3 {
		known = append(known, listAdapter(buildAdapter(fmt.Sprintf("k%03d", n))))
	}
	broken := buildAdapter("a")
	broken.Spec.State.Asleep = "object."
	dormant := buildAdapter("b")
	dormant.Status.Conditions = []metav1.Condition{{Type: torporv1alpha1.StopAdapterReadyCondition, Reason: torporv1alpha1.StopAdapterDormantReason}}
	wanted, surplus := chooseAdapters(append(known, listAdapter(broken), listAdapter(dormant)))
	if len(wanted) != maxForeignKinds || surplus != 3 || wanted["k000.example.com"] == nil || wanted[broken.Name] != nil || wanted[dormant.Name] != nil {
		t.Errorf("expected the first %d valid ones, and 3 more, found %d and %d", maxForeignKinds, len(wanted), surplus)
	}
	all.setUnwatched(surplus)
	if found := listWarnings(all.listGaps(), sees); len(found) != 1 || !strings.Contains(found[0], "there are 3 more") {
		t.Errorf("expected a warning about three StopAdapters, found %q", found)
	}
}

func buildAdapter(resource string) *torporv1alpha1.StopAdapter {
	return &torporv1alpha1.StopAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: resource + ".example.com"},
		Spec: torporv1alpha1.StopAdapterSpec{
			Target: torporv1alpha1.StopAdapterTarget{Group: "example.com", Version: "v1", Kind: "Kustomization", Resource: resource},
			Stop:   []torporv1alpha1.StopOperation{{Op: torporv1alpha1.AddOperation, Path: "/spec/suspend", Value: &torporv1alpha1.JSONValue{Raw: []byte("true")}}},
		},
	}
}
