// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	earlier = "somebody-earlier"
	forged  = "the-ceo"
)

// role is a user or a program, with the kind of request that it uses to write.
type role struct {
	name string
	// user is its user name.
	user string
	// connect returns its client configuration.
	connect func(*hub) *rest.Config
	send    func(t *testing.T, c client.Client, obj client.Object, change map[string]any) error
}

func roles() []role {
	as := func(user string, groups ...string) func(*hub) *rest.Config {
		return func(h *hub) *rest.Config { return h.ImpersonateUser(user, groups...) }
	}
	patchAs := func(manager string) func(*testing.T, client.Client, client.Object, map[string]any) error {
		return func(t *testing.T, c client.Client, obj client.Object, change map[string]any) error {
			t.Helper()
			return c.Patch(t.Context(), obj, mergePatch(t, change), client.FieldOwner(manager))
		}
	}
	const account = "system:serviceaccount:default:gitops"
	return []role{
		{"a person", "alice", as("alice", "system:masters"), patchAs("kubectl-patch")},
		{"a person with another user's name as field manager", "bob", as("bob", "system:masters"), patchAs(forged)},
		{"a person who may only change these kinds", "carol", as("carol"), patchAs("kubectl-edit")},
		{"a service account", account, as(account, "system:masters"), patchAs("gitops")},
		{"a person who applies", "dave", as("dave", "system:masters"), applyChange},
		{"a person who replaces the object", "erin", as("erin", "system:masters"), replaceObject},
		{"the administrator", "admin", func(h *hub) *rest.Config { return h.Config }, patchAs("kubectl-annotate")},
	}
}

func applyChange(t *testing.T, c client.Client, obj client.Object, change map[string]any) error {
	t.Helper()
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	testenv.ExpectNoError(t, err)
	applied := &unstructured.Unstructured{Object: annotated(change, nil)}
	applied.SetGroupVersionKind(gvk)
	applied.SetNamespace(obj.GetNamespace())
	applied.SetName(obj.GetName())
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(forged), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
}

func replaceObject(t *testing.T, c client.Client, obj client.Object, change map[string]any) error {
	t.Helper()
	for {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		merge(t, obj, change)
		err := c.Update(t.Context(), obj, client.FieldOwner(forged))
		if err == nil || !strings.Contains(err.Error(), "the object has been modified") { // The manager writes, too.
			return err
		}
	}
}

// verb is a change to a switch by a user, such as a stop.
type verb struct {
	name string
	// before are earlier changes by another user, and change is the change of this verb.
	before []func(kind) map[string]any
	change func(kind) map[string]any
	// editsOnlyNote is true if the change only names another user.
	editsOnlyNote bool
	// skips is true if the change makes Slumbers skip the object.
	skips bool
	// creates is true if the change creates the object.
	creates bool
	// stoppedBy and startedBy are expected in the record; you stands for the role's user.
	stoppedBy, startedBy string
}

const you = "you"

func verbs() []verb {
	stop, start := func(k kind) map[string]any { return k.stop }, func(k kind) map[string]any { return k.start }
	with := func(change func(kind) map[string]any, names func(kind) []string, value string) func(kind) map[string]any {
		return func(k kind) map[string]any {
			notes := map[string]string{}
			for _, name := range names(k) {
				notes[name] = value
			}
			return annotated(change(k), notes)
		}
	}
	notes, nothing := func(k kind) []string { return k.notes }, func(kind) map[string]any { return nil }
	ofEveryKind := func(name string) func(kind) []string { return func(kind) []string { return []string{name} } }
	until, untilNotes := ofEveryKind(torporv1alpha1.UntilAnnotation), ofEveryKind(torporv1alpha1.UntilNotedAnnotation)
	skip := with(with(nothing, ofEveryKind(torporv1alpha1.SkipUntilAnnotation), skippedUntil), ofEveryKind(torporv1alpha1.SkipUntilNotedAnnotation), skippedUntil+" by "+forged)
	type steps = []func(kind) map[string]any
	return []verb{
		{name: "stop", change: stop, stoppedBy: you},
		{name: "start", before: steps{stop}, change: start, stoppedBy: earlier, startedBy: you},
		{name: "stop in the name of another user", change: with(stop, notes, forged), stoppedBy: you},
		{name: "edit the requester's annotation", before: steps{stop}, change: with(nothing, notes, forged), editsOnlyNote: true, stoppedBy: earlier},
		{name: "extend", before: steps{with(stop, until, "8h")}, change: with(with(nothing, until, "9h"), untilNotes, "9h by "+forged), stoppedBy: earlier},
		{name: "skip", before: steps{stop}, change: skip, skips: true, stoppedBy: earlier},
		{name: "stop after a start", before: steps{stop, start}, change: stop, stoppedBy: you},
		{name: "create a stopped object", change: stop, creates: true, stoppedBy: you},
	}
}

// cell is one combination of kind, verb and role, with its object.
type cell struct {
	kind kind
	verb verb
	role role
	obj  client.Object
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s as %s", c.verb.name, c.kind.name, c.role.name)
}

// TestRequesterOfEveryVerbIsRecorded tests each verb on each kind by each role, in the record and on the page: 56
// cells for each kind.
func TestRequesterOfEveryVerbIsRecorded(t *testing.T) {
	t.Parallel()
	newManagedHub(t).expectEveryoneNamed(t, roles(), 56)
}

// TestRequesterOfEveryVerbIsRecordedByTheWebhook runs the same test with three roles, on an API server that does not
// serve the policies.
func TestRequesterOfEveryVerbIsRecordedByTheWebhook(t *testing.T) {
	t.Parallel()
	forger, applier, replacer := roles()[1], roles()[4], roles()[5]
	newOlderManagedHub(t).expectEveryoneNamed(t, []role{forger, applier, replacer}, 24)
}

func (h *managedHub) expectEveryoneNamed(t *testing.T, roles []role, wantOfKind int) {
	t.Helper()
	address := testenv.FreeAddress(t)
	h.startManager(t, "--page-address", address)
	h.waitUntilNoted(t)
	h.allowCarol(t)
	page := h.openPage(t, address)
	var cells []cell
	clients := map[string]client.Client{earlier: h.clientOf(t, earlier)}
	for _, r := range roles {
		c, err := client.New(r.connect(h.hub), client.Options{Scheme: h.Client.Scheme(), Mapper: h.Client.RESTMapper()})
		testenv.ExpectNoError(t, err)
		clients[r.user] = c
	}
	for k, of := range allKinds() {
		for v, what := range verbs() {
			for r, who := range roles {
				c := cell{kind: of, verb: what, role: who, obj: of.build(t, h.hub, fmt.Sprintf("cell-%d-%d-%d", k, v, r))}
				c.prepare(t, clients[earlier])
				cells = append(cells, c)
			}
		}
	}
	for _, c := range cells {
		if c.verb.startedBy != "" { // A stop that ends before the manager observes it is not recorded.
			c.expectRecord(t, h.hub, earlier, "")
		}
		c.run(t, clients[c.role.user])
	}
	if want := wantOfKind * len(allKinds()); len(cells) != want {
		t.Errorf("expected %d cells, found %d", want, len(cells))
	}
	for _, c := range cells {
		c.expectRecord(t, h.hub, c.nameOf(c.verb.stoppedBy), c.nameOf(c.verb.startedBy))
	}
	for _, of := range allKinds() {
		page.expectShown(t, of, cells)
	}
	h.WaitForEvent(t, metav1.NamespaceDefault, "RevisionBegan", "Stop by "+roles[1].user)
	h.WaitForEvent(t, metav1.NamespaceDefault, fieldswitch.EventStopped, "asked for by "+roles[1].user)
	h.WaitForEvent(t, metav1.NamespaceDefault, fieldswitch.EventRestored, "started by "+roles[1].user)
}

// allowCarol grants carol only the permissions that she needs.
func (h *managedHub) allowCarol(t *testing.T) {
	t.Helper()
	groups, workloads := []string{"kustomize.toolkit.fluxcd.io"}, []string{"kustomizations"}
	for _, k := range kinds.ListWorkloads() {
		groups, workloads = append(groups, k.GVK().Group), append(workloads, k.Resource())
	}
	h.GrantRights(t, "carol", rbacv1.PolicyRule{
		APIGroups: []string{"hive.openshift.io", "moco.cybozu.com", "korifi.cloudfoundry.org"}, Resources: []string{"clusterdeployments", "mysqlclusters", "cfapps"},
		Verbs: []string{"get", "create", "patch"},
	}, rbacv1.PolicyRule{
		APIGroups: groups, Resources: workloads,
		Verbs: []string{"get", "create", "patch"},
	})
}

// prepare makes the earlier changes, as another user.
func (c cell) prepare(t *testing.T, sender client.Client) {
	t.Helper()
	if c.verb.creates {
		return
	}
	c.expectSent(t, sender.Create(t.Context(), c.obj))
	for _, step := range c.verb.before {
		c.expectSent(t, sender.Patch(t.Context(), c.obj, mergePatch(t, step(c.kind))))
	}
}

func (c cell) run(t *testing.T, own client.Client) {
	t.Helper()
	if c.verb.creates {
		merge(t, c.obj, c.verb.change(c.kind))
		c.expectSent(t, own.Create(t.Context(), c.obj, client.FieldOwner(forged)))
		return
	}
	err := c.role.send(t, own, c.obj, c.verb.change(c.kind))
	if c.verb.editsOnlyNote && c.kind.refusesForgery {
		testenv.ExpectRefused(t, err, "expected")
		c.expectSent(t, own.Get(t.Context(), client.ObjectKeyFromObject(c.obj), c.obj))
	} else {
		c.expectSent(t, err)
	}
	c.expectNotes(t)
}

func (c cell) expectSent(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
}

// expectNotes checks the annotations that admission has added to the request itself.
func (c cell) expectNotes(t *testing.T) {
	t.Helper()
	names, want := c.kind.notes, c.nameOf(c.verb.stoppedBy)
	switch {
	case c.verb.startedBy != "":
		names, want = c.kind.startNotes, c.nameOf(c.verb.startedBy)
	case c.verb.skips:
		names, want = []string{torporv1alpha1.SkipUntilNotedAnnotation}, skippedUntil+" by "+c.role.user
	}
	for _, name := range names {
		if found := c.obj.GetAnnotations()[name]; found != want {
			t.Errorf("%s: expected %s in %s, found %q", c, want, name, found)
		}
	}
}

func (c cell) nameOf(who string) string {
	if who == you {
		return c.role.user
	}
	return who
}

func (c cell) expectRecord(t *testing.T, h *hub, stoppedBy, startedBy string) {
	t.Helper()
	if c.verb.creates && !c.kind.isStoppedWhenNew {
		return // A new app has never run.
	}
	h.WaitFor(t, c.String()+" is recorded", c.obj, func() error {
		for _, stops := range c.kind.records(c.obj) {
			if len(stops) == 0 || stops[0].By != stoppedBy || stops[0].StartedBy != startedBy || (stops[0].EndedAt != nil) != (startedBy != "") {
				return fmt.Errorf("expected a stop by %q that was ended by %q, found %+v", stoppedBy, startedBy, stops)
			}
			if c.verb.name == "extend" && (stops[0].RequestedUntil != "9h" || stops[0].UntilBy != c.role.user) {
				return fmt.Errorf("expected an end after nine hours, set by %s, found %+v", c.role.user, stops[0])
			}
		}
		return nil
	})
}
