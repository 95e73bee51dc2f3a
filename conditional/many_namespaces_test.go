// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// isReview matches the creation of a review, for example of selfsubjectrulesreviews.
func isReview(resource string) requestMatch {
	return func(r *http.Request) bool { return path.Base(r.URL.Path) == resource }
}

// watchCRDs is the right to watch CRDs.
func watchCRDs() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list", "watch"}}
}

// grantInNamespaces creates namespaces in which a user has the rights of a rule. It returns when the last of the rights
// is in effect.
func (s *apiServer) grantInNamespaces(user string, count int, rule rbacv1.PolicyRule) []string {
	s.t.Helper()
	c, named := s.newClient(), metav1.ObjectMeta{Name: user + "-in-namespaces"}
	testenv.Must(s.t, c.Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{rule}}))
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint(user, "-", i))
		s.namespace(names[i])
		testenv.Must(s.t, c.Create(s.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: names[i], Name: named.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))
	}
	s.eventually("the rights are in effect", func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: names[count-1], Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	})
	return names
}

// TestManyNamespacesCostFewRequests runs five groups in thirty namespaces and counts the requests of their manager. All
// groups except one index the same field in different ways.
func TestManyNamespacesCostFewRequests(t *testing.T) {
	const groups, count = 5, 30
	s := startAPIServer(t)
	addWidgets(s.scheme)
	kind := widgetKind()
	s.installCRD(newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped))
	namespaces := s.grantInNamespaces("few", count, fullRight(kind.Group, "widgets", "widgets/status"))
	proxy := s.newProxy(s.newUser("few", watchCRDs()))
	watched := map[string]cache.Config{}
	var rights []authorizationv1.ResourceAttributes
	for _, namespace := range namespaces {
		watched[namespace] = cache.Config{}
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
			for _, subresource := range []string{"", "status"} {
				rights = append(rights, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: kind.Group, Resource: "widgets", Subresource: subresource})
			}
		}
	}
	mgr := s.managerWith(proxy.config(), ctrl.Options{Cache: cache.Options{DefaultNamespaces: watched}})
	clients := make([]client.Client, groups)
	var all []*Group
	for i := range groups {
		setup := func(mgr manager.Manager) error {
			clients[i] = mgr.GetClient()
			if i > 0 {
				if err := mgr.GetFieldIndexer().IndexField(t.Context(), &Widget{}, "message", func(obj client.Object) []string {
					return []string{fmt.Sprint(i, obj.GetName())}
				}); err != nil {
					return err
				}
			}
			return ctrl.NewControllerManagedBy(mgr).For(&Widget{}).Named(fmt.Sprint("few-", i)).Complete(ignoreRequests())
		}
		all = append(all, mustSetUp(t, mgr, All(Served(kind), Allowed(time.Hour, rights...)), setup, Name(fmt.Sprint("few-", i))))
	}
	s.createWidgetIn(namespaces[0], "one")
	s.startManager(mgr)
	for i, g := range all {
		s.waitForPhase(g, Running)
		var byIndex []client.ListOption
		if i > 0 {
			byIndex = append(byIndex, client.MatchingFields{"message": fmt.Sprint(i, "one")})
		}
		var found WidgetList
		testenv.Must(t, clients[i].List(t.Context(), &found, byIndex...)) // The list waits for the informers to sync.
		if len(found.Items) != 1 {
			t.Errorf("group %d: found %d objects by its index, want 1", i, len(found.Items))
		}
	}
	if rules, access := proxy.countRequests(isReview("selfsubjectrulesreviews")), proxy.countRequests(isReview("selfsubjectaccessreviews")); rules != count || access != 0 {
		t.Errorf("expected %d rules reviews and no access review for %d rights of %d groups, found %d and %d", count, len(rights), groups, rules, access)
	}
	if watches := proxy.countStreams(isWatch(isObjectRequest(kind.GroupVersion(), "widgets"))); watches != count {
		t.Errorf("expected one watch in each of %d namespaces, found %d", count, watches)
	}
}

func ignoreRequests() reconcile.Func {
	return func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }
}

// TestRightsOfAWebhookAuthorizer runs an API server with an authorizer that does not list its rules.
func TestRightsOfAWebhookAuthorizer(t *testing.T) {
	authorizer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		err := json.NewDecoder(r.Body).Decode(&review)
		if right := review.Spec.ResourceAttributes; right != nil {
			review.Status.Allowed = review.Spec.User == "hooked" && right.Verb == "list" && right.Resource == "secrets"
		}
		if err == nil {
			err = json.NewEncoder(w).Encode(review)
		}
		if err != nil {
			t.Errorf("answer of the authorizer: %v", err)
		}
	}))
	t.Cleanup(authorizer.Close)
	file := filepath.Join(t.TempDir(), "authorizer.json")
	testenv.Must(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "one", "users": [{"name": "one", "user": {}}],
		"contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
		"clusters": [{"name": "one", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}]}`, authorizer.URL), 0o600))
	s := startAPIServer(t, func(env *envtest.Environment) {
		env.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC", "Webhook").
			Set("authorization-webhook-config-file", file).Set("authorization-webhook-version", "v1")
	})
	proxy := s.newProxy(s.newUser("hooked", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}))
	mgr := s.newManagerFor(proxy.config())
	list := func(resource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: "list", Resource: resource}
	}
	granted := s.setUpAs(mgr, "hooked", Allowed(time.Hour, list("secrets"), list("configmaps")))
	missing := s.setUpAs(mgr, "unhooked", Allowed(time.Hour, list("pods")))
	s.startManager(mgr)
	s.waitForPhase(granted, Running)
	s.waitForShown("unhooked", ForbiddenReason)
	if message := missing.Status().Condition.Message; !strings.HasSuffix(message, "no permission to list pods") {
		t.Errorf("expected the missing right in the message, found %q", message)
	}
	if rules, access := proxy.countRequests(isReview("selfsubjectrulesreviews")), proxy.countRequests(isReview("selfsubjectaccessreviews")); rules != 1 || access < 3 {
		t.Errorf("expected one rules review and an access review of each right, found %d and %d", rules, access)
	}
}

// TestAnIndexComesBeforeABorrowedInformer runs a group that uses the informer of a plain controller. That informer
// outlives the group, so an index of the group cannot be added to it.
func TestAnIndexComesBeforeABorrowedInformer(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.cfg)
	seen := make(chan string, 100)
	testenv.Must(t, all(&corev1.ConfigMap{}, seen)(mgr))
	s.startManager(mgr)
	s.createConfigMap("one")
	s.expectReconcile(seen, "default/one")
	none := func(client.Object) []string { return nil }
	results := make(chan error, 2)
	early := func(mgr manager.Manager) error {
		err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", none)
		if err == nil {
			_, err = mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		}
		results <- err
		return nil
	}
	late := func(mgr manager.Manager) error {
		_, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		if err == nil {
			err = mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", none)
		}
		results <- err
		return nil
	}
	g := mustSetUp(t, mgr, ServedObject(&corev1.Secret{}), late, Name("late"))
	if err := <-results; err == nil || !strings.Contains(err.Error(), "IndexField first") {
		t.Errorf("an index after the first use: got %v, want an error that names the next step", err)
	}
	s.waitForPhase(g, Running)
	if n := g.server.Informers.InformerCount(); n != 0 {
		t.Errorf("a group without an index has %d informers in addition to that of the plain controller, want none", n)
	}
	mustSetUp(t, mgr, ServedObject(&corev1.Secret{}), early, Name("early"))
	if err := <-results; err != nil {
		t.Errorf("an index before the first use: %v", err)
	}
}
