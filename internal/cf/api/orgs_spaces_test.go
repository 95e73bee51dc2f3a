// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAdminMakesOrgsSpacesAndRoles creates an org and a space, gives a user roles in them, and deletes the space and
// the org. It sends the requests of cf create-org, create-space, set-space-role and delete-space.
func TestAdminMakesOrgsSpacesAndRoles(t *testing.T) {
	e := shared.Get(t)
	// The roles are given to a new user. The orgs outlive this test, and other tests expect that alice has access only
	// to their orgs.
	otherNamespace, other := e.createServiceAccount(t, "carol")
	ada, carol := e.adminCaller(t), e.callerOf(t, otherNamespace, "carol")
	name := "org-of-" + otherNamespace
	carol.expect(t, http.StatusForbidden, "POST /v3/organizations", `{"name":"mine"}`)
	org := ada.expect(t, http.StatusCreated, "POST /v3/organizations", `{"name":"`+name+`","suspended":null}`).field(t, "guid")
	ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/organizations", `{"name":"`+name+`"}`, "errors.0.detail=Organization '"+name+"' already exists.")
	inOrg := `"relationships":{"organization":{"data":{"guid":"` + org + `"}}}`
	space := ada.expect(t, http.StatusCreated, "POST /v3/spaces", `{"name":"stage",`+inOrg+`}`).field(t, "guid")
	ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces", `{"name":"stage",`+inOrg+`}`, "errors.0.detail=Name must be unique per organization")
	// Without this error, the client would use a space in which nothing can be created.
	if r := ada.expect(t, http.StatusServiceUnavailable, "POST /v3/spaces", `{"name":"`+spaceWithoutNamespace+`",`+inOrg+`}`); !strings.Contains(r.body, "was created, but has no namespace yet") {
		t.Errorf("found %s, want a sentence about the current state", r.body)
	}
	carol.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces", `{"name":"mine",`+inOrg+`}`)
	asUser := `"user":{"data":{"username":"` + other + `"}}`
	role := `{"type":"space_developer","relationships":{` + asUser + `,"space":{"data":{"guid":"` + space + `"}}}}`
	carol.expect(t, http.StatusNotFound, "POST /v3/roles", role)
	ada.expect(t, http.StatusCreated, "POST /v3/roles", `{"type":"organization_user","relationships":{`+asUser+`,"organization":{"data":{"guid":"`+org+`"}}}}`)
	ada.expect(t, http.StatusCreated, "POST /v3/roles", role, "relationships.space.data.guid="+space)
	if r := ada.expect(t, http.StatusUnprocessableEntity, "POST /v3/roles", role); !strings.Contains(r.body, "already has 'space_developer' role") {
		t.Errorf("found %s, want the text that the client matches", r.body)
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

// TestAdminListsAndRevokesRoles sends the requests of cf space-users, org-users, unset-space-role and unset-org-role.
func TestAdminListsAndRevokesRoles(t *testing.T) {
	e := shared.Get(t)
	ada, org, space := e.adminCaller(t), e.org, e.createSpace(t)
	namespace, user := e.createServiceAccount(t, "carol")
	carol := e.callerOf(t, namespace, "carol")
	give := func(role, in, guid string) {
		t.Helper()
		ada.expect(t, http.StatusCreated, "POST /v3/roles", `{"type":"`+role+`","relationships":{"user":{"data":{"username":"`+user+`"}},"`+in+`":{"data":{"guid":"`+guid+`"}}}}`)
	}
	carol.awaitStatus(t, http.StatusNotFound, "/v3/spaces/"+space)
	give("space_developer", "space", space)
	// The denial from the previous request is not cached.
	carol.expect(t, http.StatusOK, "GET /v3/spaces/"+space, "", "guid="+space)
	give("organization_user", "organization", org)
	// Two CF roles with the same ClusterRole are given and revoked independently.
	give("organization_manager", "organization", org)

	ofCarol := "&user_guids=" + user
	ada.expect(t, http.StatusOK, "GET /v3/users?usernames="+user, "", "resources#=1", "resources.0.guid="+user, "resources.0.username="+user)
	ada.expect(t, http.StatusOK, "GET /v3/roles?include=user&organization_guids="+org+ofCarol, "", "resources#=2", "included.users#=1", "included.users.0.username="+user)
	listed := ada.expect(t, http.StatusOK, "GET /v3/roles?types=space_developer&space_guids="+space+ofCarol, "", "resources#=1", "resources.0.type=space_developer", "resources.0.relationships.user.data.guid="+user)
	if everybody := ada.get(t, "/v3/roles?space_guids="+space); everybody.field(t, "resources#") != "3" {
		t.Errorf("expected the roles of alice, bob and carol, found %s", everybody.body)
	}
	ada.expect(t, http.StatusOK, "GET /v3/roles?types=space_developer"+ofCarol, "", "resources#=1", "resources.0.relationships.space.data.guid="+space)
	carol.expect(t, http.StatusForbidden, "GET /v3/roles?space_guids="+space, "")
	if hidden := e.callerNamed(t, "mallory").get(t, "/v3/roles?space_guids="+space); hidden.field(t, "resources#") != "0" {
		t.Errorf("expected no role of a space that mallory does not see, found %s", hidden.body)
	}

	role := listed.field(t, "resources.0.guid")
	carol.expect(t, http.StatusNotFound, "DELETE /v3/roles/"+role, "")
	job := ada.expect(t, http.StatusAccepted, "DELETE /v3/roles/"+role, "").location
	ada.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE", "operation=role.delete")
	carol.awaitStatus(t, http.StatusNotFound, "/v3/spaces/"+space)
	ada.expect(t, http.StatusNotFound, "DELETE /v3/roles/"+role, "")
	ada.expect(t, http.StatusNotFound, "DELETE /v3/roles/kube-system.kube-proxy", "")
	manager := ada.get(t, "/v3/roles?types=organization_manager&organization_guids="+org+ofCarol).field(t, "resources.0.guid")
	ada.expect(t, http.StatusAccepted, "DELETE /v3/roles/"+manager, "")
	carol.expect(t, http.StatusOK, "GET /v3/organizations/"+org, "")
}

// TestAdminRenamesAndLabelsOrgsAndSpaces sends the requests of cf rename-org, rename-space, set-label and labels.
func TestAdminRenamesAndLabelsOrgsAndSpaces(t *testing.T) {
	e := shared.Get(t)
	ada, alice := e.adminCaller(t), e.callerNamed(t, "alice")
	for path, org := range map[string]string{"organizations": "", "spaces": e.org} {
		t.Run(path, func(t *testing.T) {
			create := func(name string) string {
				t.Helper()
				return ada.expect(t, http.StatusCreated, "POST /v3/"+path, `{"name":"`+name+`","relationships":{"organization":{"data":{"guid":"`+org+`"}}}}`).field(t, "guid")
			}
			old := e.CreateNamespace(t) // No other test uses this name.
			guid, patch := create(old), "PATCH /v3/"+path+"/"
			create(old + "-taken")
			ada.expect(t, http.StatusOK, patch+guid, `{"name":"`+old+`-new"}`, "guid="+guid, "name="+old+"-new")
			ada.expect(t, http.StatusOK, "GET /v3/"+path+"?names="+old+"-new", "", "resources#=1", "resources.0.guid="+guid)
			ada.expect(t, http.StatusOK, "GET /v3/"+path+"?names="+old, "", "resources#=0")
			ada.expect(t, http.StatusOK, patch+guid, `{"name":"`+old+`-new"}`)
			ada.expect(t, http.StatusUnprocessableEntity, patch+guid, `{"name":"`+old+`-taken"}`)
			alice.expect(t, http.StatusNotFound, patch+guid, `{"name":"mine"}`)

			ada.expect(t, http.StatusOK, patch+guid, `{"metadata":{"labels":{"env":"`+old+`"},"annotations":{"note":"any text"}}}`, "metadata.labels.env="+old, "metadata.annotations.note=any text", "name="+old+"-new")
			ada.expect(t, http.StatusOK, "GET /v3/"+path+"?label_selector=env%3D"+old, "", "resources#=1", "resources.0.guid="+guid)
			ada.expect(t, http.StatusOK, patch+guid, `{"metadata":{"labels":{"env":null}}}`, "metadata.labels.env=")
			ada.expect(t, http.StatusUnprocessableEntity, patch+guid, `{"metadata":{"labels":{"korifi.cloudfoundry.org/org-guid":"x"}}}`)
			ada.expect(t, http.StatusUnprocessableEntity, patch+guid, `{"metadata":{"labels":{"env":"a b"}}}`)
		})
	}
	// A labelled namespace without a CFOrg or CFSpace can store neither a name nor metadata.
	plain := e.CreateNamespace(t)
	e.labelNamespace(t, plain, map[string]string{korifiv1alpha1.OrgGUIDLabel: e.org, korifiv1alpha1.SpaceGUIDLabel: plain})
	ada.awaitStatus(t, http.StatusOK, "/v3/spaces/"+plain)
	ada.expect(t, http.StatusUnprocessableEntity, "PATCH /v3/spaces/"+plain, `{"name":"other"}`)
}
