// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// askedAtOnce is the number of concurrent access reviews.
const askedAtOnce = 8

// right is a verb on a resource. If names is set, the verb is allowed only for objects with these names.
type right struct{ group, resource, verb, names string }

// role is a ClusterRole or a Role of config, or all roles of an account. namespace is set for a Role.
type role struct{ name, namespace, account string }

// user returns the name of the account, or of the user that has only this role.
func (r role) user() string { return cmp.Or(r.account, "has-"+r.name+r.namespace) }

// bindEachRole binds every role of config to a user of its own.
func bindEachRole(t *testing.T, e *testenv.Environment) []role {
	t.Helper()
	var all []role
	var clusterRoles rbacv1.ClusterRoleList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &clusterRoles))
	for i := range clusterRoles.Items {
		if r := &clusterRoles.Items[i]; strings.HasPrefix(r.Name, "torpor-") {
			all = append(all, role{name: r.Name})
		}
	}
	var roles rbacv1.RoleList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &roles))
	for i := range roles.Items {
		if r := &roles.Items[i]; strings.HasPrefix(r.Name, "torpor-") {
			all = append(all, role{name: r.Name, namespace: r.Namespace})
		}
	}
	for _, r := range all {
		bindRole(t, e, r)
	}
	return all
}

func bindRole(t *testing.T, e *testenv.Environment, r role) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: r.user(), Namespace: r.namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.user()}}
	if r.namespace == "" {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.name}
		e.ExpectCreated(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		return
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.name}
	e.ExpectCreated(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

// listResources returns the resources and subresources that the API server serves, each with its verbs and with the
// additional verbs that authorizers check.
func listResources(t *testing.T, e *testenv.Environment) map[right]bool {
	t.Helper()
	found := map[right]bool{}
	dc, err := discovery.NewDiscoveryClientForConfig(e.Config)
	testenv.ExpectNoError(t, err)
	_, lists, err := dc.ServerGroupsAndResources()
	testenv.ExpectNoError(t, err)
	for _, list := range lists {
		group, _, hasGroup := strings.Cut(list.GroupVersion, "/")
		if !hasGroup {
			group = ""
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			verbs := slices.Clone(resource.Verbs)
			switch resource.Name {
			case "roles", "clusterroles":
				verbs = append(verbs, "bind", "escalate")
			case "users", "groups", "serviceaccounts":
				verbs = append(verbs, "impersonate")
			case "certificatesigningrequests":
				verbs = append(verbs, "approve", "sign")
			}
			for _, verb := range verbs {
				found[right{group: group, resource: resource.Name, verb: verb}] = true
			}
		}
	}
	return found
}

// listClaims returns the rights that the API server lists for a user, without those of every user.
func listClaims(t *testing.T, e *testenv.Environment, r role) map[right]bool {
	t.Helper()
	claims, none := readRules(t, e, r.user(), r.namespace), "has-no-role"
	if r.account != "" {
		none = "system:serviceaccount:" + system + ":" + none
	}
	for claim := range readRules(t, e, none, r.namespace) {
		delete(claims, claim)
	}
	return claims
}

func readRules(t *testing.T, e *testenv.Environment, user, namespace string) map[right]bool {
	t.Helper()
	c, err := client.New(e.ImpersonateUser(user), client.Options{Scheme: e.Client.Scheme(), Mapper: e.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	review := &authorizationv1.SelfSubjectRulesReview{}
	review.Spec.Namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	testenv.ExpectNoError(t, c.Create(t.Context(), review))
	found := map[right]bool{}
	for _, rule := range review.Status.ResourceRules {
		names := strings.Join(rule.ResourceNames, " ")
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found[right{group, resource, verb, names}] = true
				}
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, path := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				found[right{resource: path, verb: verb}] = true
			}
		}
	}
	return found
}

// isAllowed asks the API server whether a user has a right, and repeats this for each name in the right.
func isAllowed(ctx context.Context, e *testenv.Environment, r role, asked right) (bool, error) {
	names := strings.Fields(asked.names)
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: r.user()}}
		if strings.HasPrefix(asked.resource, "/") {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: asked.resource, Verb: asked.verb}
		} else {
			resource, subresource, _ := strings.Cut(asked.resource, "/")
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Group: asked.group, Resource: resource, Subresource: subresource, Verb: asked.verb, Name: name,
				Namespace: cmp.Or(r.namespace, metav1.NamespaceDefault),
			}
		}
		if err := e.Client.Create(ctx, review); err != nil || !review.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// askForEach asks the API server about each right, and returns the granted ones. It fails the test if the API server
// lists other rights for the user.
func askForEach(t *testing.T, e *testenv.Environment, r role, asked map[right]bool) map[right]bool {
	t.Helper()
	claims := listClaims(t, e, r)
	all := maps.Clone(claims)
	maps.Copy(all, asked)
	granted := map[right]bool{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for one := range all {
		group.Go(func() error {
			isGranted, err := isAllowed(t.Context(), e, r, one)
			mu.Lock()
			defer mu.Unlock()
			if isGranted {
				granted[one] = true
			}
			return err
		})
	}
	testenv.ExpectNoError(t, group.Wait())
	if !maps.Equal(claims, granted) {
		t.Errorf("%s: expected the rights that the API server lists, found others for single questions: %v and %v", r.user(), claims, granted)
	}
	return granted
}

// listParts returns the roles that are bound to the account of the manager in all namespaces.
func listParts(t *testing.T, e *testenv.Environment) map[string]bool {
	t.Helper()
	parts := map[string]bool{}
	var all rbacv1.ClusterRoleBindingList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &all))
	for i := range all.Items {
		for _, subject := range all.Items[i].Subjects {
			if subject.Namespace == system && subject.Name == "torpor-manager" {
				parts[all.Items[i].RoleRef.Name] = true
			}
		}
	}
	return parts
}

// TestRightsOfEachRole asks a real API server about every verb on every resource, for a user of each role and for the
// account of the manager. It compares the answers with the table on the page.
func TestRightsOfEachRole(t *testing.T) {
	e := shared.Get(t).Environment
	roles := bindEachRole(t, e)
	last := roles[len(roles)-1]
	testenv.Eventually(t, "the API server applies the last role", func() error {
		return testenv.ErrorIf(len(listClaims(t, e, last)) == 0, "found no rights of %s", last.name)
	})
	served, parts, ofParts := listResources(t, e), listParts(t, e), map[right]bool{}
	var table strings.Builder
	table.WriteString("| role | verbs | resources |\n|---|---|---|\n")
	for _, r := range roles {
		if !parts[r.name] || r.namespace != "" {
			table.WriteString(describeRole(r, askForEach(t, e, r, served)))
			continue
		}
		granted := askForEach(t, e, r, nil)
		maps.Copy(ofParts, granted)
		table.WriteString(describeRole(r, granted))
	}
	manager := role{account: "system:serviceaccount:" + system + ":torpor-manager"}
	if granted := askForEach(t, e, manager, served); !maps.Equal(granted, ofParts) {
		t.Errorf("expected the manager to have the rights of its parts, found %v and %v", granted, ofParts)
	}
	comparePage(t, "rights", table.String())
	expectReserved(t, e, ofParts)
}

// expectReserved expects that no StopAdapter can select a kind for which the manager has permissions because of another
// feature.
func expectReserved(t *testing.T, e *testenv.Environment, granted map[right]bool) {
	t.Helper()
	for one := range granted {
		isFull := !slices.ContainsFunc([]string{"get", "list", "watch"}, func(verb string) bool {
			return !granted[right{group: one.group, resource: one.resource, verb: verb}]
		})
		if one.verb != "patch" || one.group == "" || strings.Contains(one.resource, "/") || !isFull {
			continue // The schema of StopAdapters requires a group, and the manager needs all four rights.
		}
		kind, err := e.Client.RESTMapper().KindFor(schema.GroupVersionResource{Group: one.group, Resource: one.resource})
		if meta.IsNoMatchError(err) {
			continue
		}
		testenv.ExpectNoError(t, err)
		adapter := &torporv1alpha1.StopAdapter{Spec: torporv1alpha1.StopAdapterSpec{
			Target: torporv1alpha1.StopAdapterTarget{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Resource: one.resource},
			Stop:   []torporv1alpha1.StopOperation{{Op: torporv1alpha1.RemoveOperation, Path: "/spec/x"}},
		}}
		if _, err := stopadapter.NewKind(adapter); err == nil {
			t.Errorf("%s: expected a StopAdapter to be refused, because the manager has the rights for another feature; add it to isReserved", kind)
		}
	}
}

// describeRole returns one row for each set of verbs.
func describeRole(r role, granted map[right]bool) string {
	verbs := map[right][]string{}
	for one := range granted {
		of := right{group: one.group, resource: one.resource, names: one.names}
		verbs[of] = append(verbs[of], one.verb)
	}
	resources := map[string][]string{}
	for of, some := range verbs {
		text := describeVerbs(some)
		resources[text] = append(resources[text], describeResource(of))
	}
	name := "`" + r.name + "`"
	if r.namespace != "" {
		name += " in `" + r.namespace + "`"
	}
	var rows strings.Builder
	for _, text := range slices.Sorted(maps.Keys(resources)) {
		slices.Sort(resources[text])
		rows.WriteString("| " + name + " | " + text + " | " + strings.Join(resources[text], ", ") + " |\n")
		name = ""
	}
	if len(resources) == 0 {
		rows.WriteString("| " + name + " | – | nothing |\n")
	}
	return rows.String()
}

func describeVerbs(verbs []string) string {
	read := []string{"get", "list", "watch"}
	slices.Sort(verbs)
	if slices.Contains(verbs, read[0]) && slices.Contains(verbs, read[1]) && slices.Contains(verbs, read[2]) {
		verbs = append([]string{"read"}, slices.DeleteFunc(verbs, func(verb string) bool { return slices.Contains(read, verb) })...)
	}
	return strings.Join(verbs, ", ")
}

func describeResource(of right) string {
	text := of.resource
	if of.group != "" && !strings.HasSuffix(of.group, "cloudfoundry.org") {
		text += "." + of.group
	}
	text = "`" + text + "`"
	if of.names != "" {
		text += " (" + strings.Join(strings.Fields(of.names), ", ") + ")"
	}
	return text
}
