// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestAdminMakesOrgsSpacesAndRoles makes an org and a space, gives a role in it, and deletes both, as cf create-org,
// create-space, set-space-role and delete-space do.
func TestAdminMakesOrgsSpacesAndRoles(t *testing.T) {
	e := shared.Get(t)
	namespace, user := e.createServiceAccount(t, "ada")
	e.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "ada-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "ada"}},
	})
	// The user of the new roles is new, because orgs outlive this test and others expect alice to see only theirs.
	otherNamespace, other := e.createServiceAccount(t, "carol")
	ada, carol := e.callerOf(t, namespace, "ada"), e.callerOf(t, otherNamespace, "carol")
	e.awaitBinding(t, user, nil, "default")
	name := "org-of-" + namespace
	carol.expect(t, http.StatusForbidden, "POST /v3/organizations", `{"name":"mine"}`)
	org := ada.expect(t, http.StatusCreated, "POST /v3/organizations", `{"name":"`+name+`","suspended":null}`).field(t, "guid")
	ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/organizations", `{"name":"`+name+`"}`, "errors.0.detail=Organization '"+name+"' already exists.")
	inOrg := `"relationships":{"organization":{"data":{"guid":"` + org + `"}}}`
	space := ada.expect(t, http.StatusCreated, "POST /v3/spaces", `{"name":"stage",`+inOrg+`}`).field(t, "guid")
	ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces", `{"name":"stage",`+inOrg+`}`, "errors.0.detail=Name must be unique per organization")
	carol.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces", `{"name":"mine",`+inOrg+`}`)
	asUser := `"user":{"data":{"username":"` + other + `"}}`
	role := `{"type":"space_developer","relationships":{` + asUser + `,"space":{"data":{"guid":"` + space + `"}}}}`
	carol.expect(t, http.StatusNotFound, "POST /v3/roles", role)
	ada.expect(t, http.StatusCreated, "POST /v3/roles", `{"type":"organization_user","relationships":{`+asUser+`,"organization":{"data":{"guid":"`+org+`"}}}}`)
	ada.expect(t, http.StatusCreated, "POST /v3/roles", role, "relationships.space.data.guid="+space)
	if r := ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/roles", role); !strings.Contains(r.body, "already has 'space_developer' role") {
		t.Errorf("found %s, want the words that the client knows", r.body)
	}
	ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/roles", `{"type":"king","relationships":{`+asUser+`}}`)
	testenv.Eventually(t, "carol sees the space", func() error {
		if r := carol.get(t, "/v3/spaces?names=stage&organization_guids="+org); r.field(t, "resources.0.guid") != space {
			return errorFound(r)
		}
		return nil
	})
	carol.expect(t, http.StatusCreated, "POST /v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`)
	carol.expect(t, http.StatusForbidden, "DELETE /v3/spaces/"+space, "")
	job := ada.expect(t, http.StatusAccepted, "DELETE /v3/spaces/"+space, "").location
	ada.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE", "operation=space.delete")
	ada.expect(t, http.StatusAccepted, "DELETE /v3/organizations/"+org, "")
}
