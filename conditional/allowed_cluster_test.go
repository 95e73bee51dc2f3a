// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// TestAGroupFollowsItsRights grants and revokes the rights of a group, while another group is disabled.
func TestAGroupFollowsItsRights(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.newUser("poor"))
	group := s.setUpAs(mgr, "rights", Allowed(100*time.Millisecond,
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
		authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "statefulsets", Subresource: "status"},
		authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "default", Name: "one"},
	))
	s.setUpAs(mgr, "off", Disabled())
	s.startManager(mgr)
	s.waitForShown("off", DisabledReason)
	s.waitForShown("rights", ForbiddenReason)

	s.grantRight("rights", "poor", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "get"}})
	s.eventually("the right that is still missing is named", func(context.Context) (bool, error) {
		return strings.HasSuffix(group.Status().Condition.Message, "no permission to patch statefulsets.apps/status"), nil
	})
	s.grantRight("more", "poor", rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"statefulsets/status"}, Verbs: []string{"patch"}})
	s.waitForShown("rights", string(Running))
	testenv.Must(t, s.newClient().Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "rights"}}))
	s.waitForShown("rights", ForbiddenReason)
}

// TestRightsAreReviewedTogether counts the reviews of a group that needs rights in all namespaces and rights in one
// namespace.
func TestRightsAreReviewedTogether(t *testing.T) {
	s := startAPIServer(t)
	proxy := s.newProxy(s.newUser("asks"))
	s.grantRight("asks", "asks", rbacv1.PolicyRule{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"list", "get", "patch"}})
	var rights []authorizationv1.ResourceAttributes
	for _, verb := range []string{"list", "get", "patch"} {
		rights = append(rights, authorizationv1.ResourceAttributes{Verb: verb, Resource: "secrets"},
			authorizationv1.ResourceAttributes{Verb: verb, Group: "apps", Resource: "statefulsets", Subresource: "scale", Namespace: "default"})
	}
	c, err := authorizationclient.NewForConfig(proxy.config())
	testenv.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rounds := 0
	group := rightsReviewer{server: c, cache: &process.RulesCache{}, every: time.Millisecond, rights: rights}
	group.observe(ctx, func(status Status) {
		if rounds++; status.State != True || rounds == 3 {
			cancel()
		}
	})
	var asked []string
	for _, request := range proxy.asked {
		asked = append(asked, path.Base(request.URL.Path))
	}
	want := slices.Repeat([]string{"selfsubjectrulesreviews"}, 3*2) // Three rounds, two namespaces.
	if !slices.Equal(asked, want) {
		t.Errorf("expected the questions %v, found %v", want, asked)
	}
}

func TestAllowedRequiresAPeriodAndARight(t *testing.T) {
	for _, c := range []Condition{Allowed(0, authorizationv1.ResourceAttributes{Verb: "get"}), Allowed(time.Second)} {
		if _, err := Setup(newFakeManager(), c, func(manager.Manager) error { return nil }); err == nil || !strings.Contains(err.Error(), "pass both") {
			t.Errorf("expected an error that says what to pass, found %v", err)
		}
	}
}

func (s *apiServer) setUpAs(mgr manager.Manager, name string, when Condition) *Group {
	s.t.Helper()
	return mustSetUp(s.t, mgr, when, func(manager.Manager) error { return nil }, Name(name))
}

// waitForShown waits until a group's metric reports exactly one state.
func (s *apiServer) waitForShown(group, state string) {
	s.t.Helper()
	s.eventually(group+" shows "+state, func(context.Context) (bool, error) {
		var shown []string
		for name, value := range series(s.t, group) {
			if strings.HasPrefix(name, "state ") && value == 1 {
				shown = append(shown, name)
			}
		}
		return len(shown) == 1 && shown[0] == "state "+state, nil
	})
}
