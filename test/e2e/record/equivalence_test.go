// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	switchwebhook "github.com/torpor-dev/torpor/internal/switches/requester/webhook"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	requestsOfObject = 9
	heldFinalizer    = "example.com/held"
)

// webhookHub is an API server of an older version, which calls a webhook in the test's own process.
type webhookHub struct {
	*hub
	// questions is the number of calls of the webhook.
	questions *atomic.Int32
}

// countingServer implements as much of a webhook server as the webhook needs.
type countingServer struct {
	webhook.Server
	mux       *http.ServeMux
	questions *atomic.Int32
}

func (s countingServer) Register(path string, hook http.Handler) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		s.questions.Add(1)
		hook.ServeHTTP(w, r)
	})
}

func newWebhookHub(t *testing.T) *webhookHub {
	t.Helper()
	h := newOlderHub(t)
	questions := h.serveRecordWebhooks(t)
	h.installForeignKinds(t)
	h.waitUntilKindsAreNoted(t)
	return &webhookHub{h, questions}
}

// serveRecordWebhooks answers the API server in the test's own process, and counts the calls.
func (h *hub) serveRecordWebhooks(t *testing.T) *atomic.Int32 {
	t.Helper()
	server := countingServer{mux: http.NewServeMux(), questions: &atomic.Int32{}}
	switchwebhook.Register(server)
	h.installRecordWebhooks(t, server.mux)
	return server.questions
}

// installRecordWebhooks has the API server call a handler of the test.
func (h *hub) installRecordWebhooks(t *testing.T, answers http.Handler) {
	t.Helper()
	web := httptest.NewTLSServer(answers)
	t.Cleanup(web.Close)
	h.InstallRecordWebhooks(t, web.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), features()...)
}

// notedKind is a kind whose annotations are compared, with the values for requests.
type notedKind struct {
	kind
	// switches and others are annotations, with their possible values.
	switches, others map[string][]string
	// field is the field of the spec that requests change, and values are its values.
	field  string
	values []any
}

func notedKinds() []notedKind {
	names := []string{forged, earlier}
	versions := []string{"1", "new"}
	ends := []string{"8h", "9h", "", strings.Repeat("ü", 64), strings.Repeat("ü", 65)}
	endNotes := []string{"8h by " + forged, "9h by " + earlier}
	of := func(prefix string) map[string][]string {
		until := "torpor.dev/" + prefix + "until"
		return map[string][]string{until: ends, until + torporv1alpha1.NotedSuffix: endNotes, "torpor.dev/" + prefix + "reason": {"disks", "no budget"}}
	}
	requester := func(prefix string) map[string][]string {
		return map[string][]string{"torpor.dev/" + prefix + "requested-by": names, "torpor.dev/" + prefix + "request-version": versions}
	}
	values := []string{"true", "true", "false", "yes"}
	switched := map[string][]string{torporv1alpha1.StoppedAnnotation: values}
	record := map[string][]string{torporv1alpha1.StopsAnnotation: {"[]", "[{}]"}, torporv1alpha1.RestoreAnnotation: {"{}", "x"}, "slumber.torpor.dev/nights": {"a", "b"}}
	skips := map[string][]string{torporv1alpha1.SkipUntilAnnotation: ends, torporv1alpha1.SkipUntilNotedAnnotation: endNotes}
	ofEveryKind := union(skips, map[string][]string{"example.com/a": {"1", "2"}})
	return []notedKind{
		{
			kind: clusterDeployments(), others: union(of(""), requester(""), ofEveryKind),
			field: "powerState", values: []any{string(hivev1.PowerStateHibernating), string(hivev1.PowerStateRunning)},
		},
		{kind: slumbers(), others: union(of(""), requester(""), ofEveryKind), field: "suspend", values: []any{true, false}},
		{
			kind: mysqlClusters(),
			switches: map[string][]string{
				mocov1beta2.ClusteringStoppedAnnotation: values, mocov1beta2.ReconciliationStoppedAnnotation: values,
				mocov1beta2.StoppedInstancesAnnotation: {"[0]", " [ 0 ,12]", "[]", "[0", "[-1]"},
			},
			others: union(of(""), of("clustering-"), of("reconciliation-"), of("instances-"), requester("clustering-"), requester("reconciliation-"), requester("instances-"), ofEveryKind),
		},
		{kind: deployments(), switches: switched, others: union(of(""), requester(""), record, ofEveryKind)},
		{kind: kustomizations(), switches: switched, others: union(of(""), requester(""), record, ofEveryKind)},
	}
}

func union(all ...map[string][]string) map[string][]string {
	one := map[string][]string{}
	for _, some := range all {
		maps.Copy(one, some)
	}
	return one
}

// generatedRequest is a request that is sent to both API servers.
type generatedRequest struct {
	method, user, fieldManager string
	// annotations are the annotations to set; those without a value are removed.
	annotations map[string]*string
	// spec contains the fields of the spec to set; nil sets none.
	spec map[string]any
}

func pick[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

func (k notedKind) generate(random *rand.Rand) generatedRequest {
	r := generatedRequest{
		method: pick(random, []string{"patch", "patch", "update", "apply"}), user: pick(random, []string{"alice", "bob", "system:serviceaccount:default:gitops"}),
		fieldManager: pick(random, []string{"kubectl-edit", anotherProgram, "torpor-workloads"}), annotations: map[string]*string{},
	}
	choose := func(from map[string][]string, likely float64) {
		for _, name := range slices.Sorted(maps.Keys(from)) {
			switch {
			case random.Float64() >= likely:
			case random.IntN(4) == 0:
				r.annotations[name] = nil
			default:
				r.annotations[name] = new(pick(random, from[name]))
			}
		}
	}
	choose(k.switches, 0.4)
	choose(k.others, 0.15)
	if k.field != "" && random.IntN(2) == 0 {
		r.spec = map[string]any{k.field: pick(random, k.values)}
	}
	return r
}

// change returns the request as a merge patch.
func (r generatedRequest) change() map[string]any {
	annotations := map[string]any{}
	for name, value := range r.annotations {
		if annotations[name] = nil; value != nil {
			annotations[name] = *value
		}
	}
	change := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if r.spec != nil {
		change["spec"] = r.spec
	}
	return change
}

// mergeInto applies the change to an object, which is then sent as a whole.
func (r generatedRequest) mergeInto(t *testing.T, obj client.Object) {
	t.Helper()
	set := r.change()
	annotations := obj.GetAnnotations()
	for name, value := range r.annotations {
		if value == nil {
			delete(annotations, name)
			delete(set["metadata"].(map[string]any)["annotations"].(map[string]any), name)
		}
	}
	obj.SetAnnotations(annotations)
	merge(t, obj, set)
}

func (r generatedRequest) send(t *testing.T, c client.Client, obj client.Object) error {
	t.Helper()
	switch owner := client.FieldOwner(r.fieldManager); r.method {
	case "create":
		r.mergeInto(t, obj)
		return c.Create(t.Context(), obj, owner)
	case "patch":
		return c.Patch(t.Context(), obj, mergePatch(t, r.change()), owner)
	case "update":
		r.mergeInto(t, obj)
		return c.Update(t.Context(), obj, owner)
	default:
		return r.apply(t, c, obj)
	}
}

func (r generatedRequest) apply(t *testing.T, c client.Client, obj client.Object) error {
	t.Helper()
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	testenv.ExpectNoError(t, err)
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	if r.spec != nil {
		applied.Object["spec"] = maps.Clone(r.spec)
	}
	applied.SetGroupVersionKind(gvk)
	applied.SetNamespace(obj.GetNamespace())
	applied.SetName(obj.GetName())
	annotations := map[string]string{}
	for name, value := range r.annotations {
		if value != nil {
			annotations[name] = *value
		}
	}
	applied.SetAnnotations(annotations)
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(r.fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
}

// comparedObject is one of the two objects that get the same requests.
type comparedObject struct {
	hub      *hub
	obj      client.Object
	versions []string
}

// send sends a request and returns the resulting annotations, with steps in place of versions, because an API server
// may or may not write for a request that changes nothing.
func (o *comparedObject) send(t *testing.T, r generatedRequest) (map[string]string, string) {
	t.Helper()
	err := r.send(t, o.hub.clientOf(t, r.user), o.obj)
	found := map[string]string{}
	for name, value := range o.obj.GetAnnotations() {
		for step, version := range slices.Backward(o.versions) {
			if version == value {
				value = fmt.Sprintf("version after step %d", step)
				break
			}
		}
		found[name] = value
	}
	o.versions = append(o.versions, o.obj.GetResourceVersion())
	return found, string(k8serrors.ReasonForError(err))
}

// TestWebhookAndPoliciesRecordTheSame sends the same requests to an API server with the policies and to one
// that calls the webhook.
func TestWebhookAndPoliciesRecordTheSame(t *testing.T) {
	t.Parallel()
	byPolicies, byWebhook := newHub(t, features()...), newWebhookHub(t).hub
	byPolicies.installForeignKinds(t)
	byPolicies.waitUntilKindsAreNoted(t)
	for _, k := range notedKinds() {
		byPolicies.waitUntilForgeriesAreRefused(t, k.kind)
		byWebhook.waitUntilForgeriesAreRefused(t, k.kind)
	}
	objectsOfKind := testenv.CountRepetitions(8, 14)
	expectSameNotes(t, byPolicies, byWebhook, "alone", objectsOfKind)

	t.Log("The policies and the webhook together record the same as each of them.")
	questions := byPolicies.serveRecordWebhooks(t)
	testenv.Eventually(t, "the webhook is called in addition to the policies", func() error {
		tried := clusterDeployments().build(t, byPolicies, "tried")
		merge(t, tried, clusterDeployments().stop)
		err := byPolicies.Client.Create(t.Context(), tried, client.DryRunAll)
		return testenv.ErrorIf(err != nil || questions.Load() == 0, "found no call (%v)", err)
	})
	expectSameNotes(t, byPolicies, byWebhook, "together", objectsOfKind/4)
}

// expectSameNotes sends requests about some objects of each kind.
func expectSameNotes(t *testing.T, one, other *hub, prefix string, objects int) {
	t.Helper()
	sent, noted := 0, 0
	for at, k := range notedKinds() {
		for i := range objects {
			random := rand.New(rand.NewPCG(uint64(at), uint64(i)))
			name := fmt.Sprintf("%s-%d-%d", prefix, at, i)
			first, second := comparedObject{hub: one, obj: k.build(t, one, name)}, comparedObject{hub: other, obj: k.build(t, other, name)}
			for step := range requestsOfObject {
				r := k.generate(random)
				if step == 0 {
					r.method = "create"
				}
				if isDeleted := i%4 == 0; isDeleted && step == requestsOfObject-2 {
					first.delete(t)
					second.delete(t)
				}
				want, wantError := first.send(t, r)
				found, foundError := second.send(t, r)
				if diff := cmp.Diff(want, found); diff != "" || wantError != foundError {
					t.Fatalf("%s %s, step %d, %+v: expected %q as from the policies, found %q (-policies +webhook):\n%s", k.name, name, step, r.change(), wantError, foundError, diff)
				}
				sent++
				if slices.ContainsFunc(k.notes, func(note string) bool { return found[note] == r.user }) {
					noted++
				}
			}
		}
	}
	if sent != 5*objects*requestsOfObject || noted < sent/4 {
		t.Errorf("expected %d requests and a note of many, found %d and %d", 5*objects*requestsOfObject, sent, noted)
	}
}

// waitUntilForgeriesAreRefused waits for the policies that refuse false names if no requester is recorded, as for an
// object that is being deleted.
func (h *hub) waitUntilForgeriesAreRefused(t *testing.T, k kind) {
	t.Helper()
	probe := comparedObject{hub: h, obj: k.build(t, h, "forged")}
	h.ExpectCreated(t, probe.obj)
	probe.delete(t)
	testenv.Eventually(t, "a forged name is refused", func() error {
		tried, _ := probe.obj.DeepCopyObject().(client.Object)
		err := h.Client.Patch(t.Context(), tried, mergePatch(t, annotated(nil, map[string]string{k.notes[0]: forged})), client.DryRunAll)
		return testenv.ErrorIf(!k8serrors.IsInvalid(err), "expected a refusal, found %v", err)
	})
}

// delete begins a deletion that a finalizer prevents from completing.
func (o *comparedObject) delete(t *testing.T) {
	t.Helper()
	held := map[string]any{"metadata": map[string]any{"finalizers": []string{heldFinalizer}}}
	testenv.ExpectNoError(t, o.hub.Client.Patch(t.Context(), o.obj, mergePatch(t, held)))
	testenv.ExpectNoError(t, o.hub.Client.Delete(t.Context(), o.obj))
	testenv.ExpectNoError(t, o.hub.Client.Get(t.Context(), client.ObjectKeyFromObject(o.obj), o.obj))
}

// TestWebhookIsCalledOnlyForStops makes changes that need no record, like most changes by the manager and by users.
func TestWebhookIsCalledOnlyForStops(t *testing.T) {
	t.Parallel()
	h := newWebhookHub(t)
	annotate := func(name, value string) map[string]any {
		return annotated(nil, map[string]string{name: value})
	}
	label := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}
	for _, k := range notedKinds() {
		obj := k.build(t, h.hub, "asked-about")
		h.ExpectCreated(t, obj)
		before := h.questions.Load()
		for _, change := range []map[string]any{label, annotate("example.com/a", "b"), annotate("status.torpor.dev/a", "b"), annotate(torporv1alpha1.ReasonAnnotation, "disks")} {
			h.patch(t, "alice", obj, change)
		}
		testenv.ExpectNoError(t, h.Client.Patch(t.Context(), obj, mergePatch(t, annotate(torporv1alpha1.StopsAnnotation, "[]")), client.FieldOwner("torpor-workloads")))
		testenv.ExpectNoError(t, h.Client.Patch(t.Context(), obj, mergePatch(t, annotate(torporv1alpha1.StopsAnnotation, "[{}]")), client.FieldOwner("torpor-workloads")))
		testenv.ExpectEqual(t, "calls for changes that stop no "+k.name, before, h.questions.Load())
		h.patch(t, "alice", obj, k.stop)
		if h.questions.Load() == before || obj.GetAnnotations()[k.notes[0]] != "alice" {
			t.Errorf("%s: expected a question about a stop and alice noted, found %v", k.name, obj.GetAnnotations())
		}
	}
}
