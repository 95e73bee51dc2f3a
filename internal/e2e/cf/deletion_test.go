// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

// TestOrgsAndSpacesComeAndGo is cf create-org, cf create-space and cf delete-space, with an app of somebody else's in it.
func TestOrgsAndSpacesComeAndGo(t *testing.T) {
	w := shared.Get(t)
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "ada"}})
	w.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ada"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "ada"}},
	})
	testenv.Eventually(t, "ada is let in", func() error { return w.requireMayList(t, "ada", "default") })
	ada, alice := w.newCaller(t, "ada"), w.newCaller(t, "alice")
	guid := func(body string) string { return conversation.JSONField(t, body, "guid") }
	org := guid(ada.expectStatus(t, http.StatusCreated, "POST", "/v3/organizations", `{"name":"second"}`))
	space := guid(ada.expectStatus(t, http.StatusCreated, "POST", "/v3/spaces", `{"name":"stage","relationships":{"organization":{"data":{"guid":"`+org+`"}}}}`))
	user := `"user":{"data":{"username":"system:serviceaccount:` + system + `:alice"}}`
	ada.expectStatus(t, http.StatusCreated, "POST", "/v3/roles", `{"type":"space_developer","relationships":{`+user+`,"space":{"data":{"guid":"`+space+`"}}}}`)
	testenv.Eventually(t, "alice sees the space", func() error {
		if a := alice.expectStatus(t, http.StatusOK, "GET", "/v3/spaces?names=stage", ""); conversation.JSONField(t, a, "resources.0.guid") != space {
			return errors.New("found " + a)
		}
		return nil
	})
	alice.createApp(t, space, "shop", 1, started)
	alice.expectStatus(t, http.StatusForbidden, "DELETE", "/v3/spaces/"+space, "")
	a, err := ada.send(t.Context(), http.MethodDelete, "/v3/spaces/"+space, "")
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("found %d %s (%v), want a job", a.Status, a.Body, err)
	}
	testenv.Eventually(t, "the job is over", func() error {
		body := ada.expectStatus(t, http.StatusOK, "GET", strings.TrimPrefix(a.Location, w.url), "")
		if conversation.JSONField(t, body, "state") != "COMPLETE" {
			return errors.New("found " + body)
		}
		return nil
	})
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: space}, &corev1.Namespace{}); !k8serrors.IsNotFound(err) {
		t.Errorf("found %v, want no namespace left once the job is over", err)
	}
}

// TestDeletionWaitsForSlowPods deletes an app whose Pods take their time; its job is over when they are gone, and not before.
func TestDeletionWaitsForSlowPods(t *testing.T) {
	w := shared.Get(t)
	const end = 4 * time.Second
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, "STOPPED")
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/processes/web", `{"command":"HOLLOW_STOP=`+end.String()+` ./slow"}`)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	alice.waitUntilRunning(t, app, 2)
	begin := time.Now()
	alice.expectStatus(t, http.StatusAccepted, "DELETE", "/v3/apps/"+app, "")
	testenv.Eventually(t, "the job is over", func() error {
		left := len(w.listPodRevisions(t, space, app))
		body := alice.expectStatus(t, http.StatusOK, "GET", "/v3/jobs/app.delete~"+app, "")
		if conversation.JSONField(t, body, "state") == "COMPLETE" {
			return nil
		}
		if left == 0 {
			t.Logf("still %s without a Pod", body)
		}
		return errors.New("found " + body)
	})
	if left := w.listPodRevisions(t, space, app); len(left) > 0 || time.Since(begin) < end {
		t.Errorf("found the job over after %s with the Pods %v, want it over when they are gone", time.Since(begin), left)
	}
	alice.expectStatus(t, http.StatusNotFound, "GET", "/v3/apps/"+app, "")
}
