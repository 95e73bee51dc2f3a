// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// testReplicas asks two replicas at once for what only one may get.
func (w *testEnv) testReplicas(t *testing.T) {
	other := w.startReplica(t, 1000)
	space := w.createSpace(t)
	alice := w.callerNamed(t, "alice")
	both := []caller{alice, alice.atReplica(other)}
	// each sends the same to both at once, and says how many got what they wanted.
	each := func(method, path, body string, want int) (got []response) {
		answers := make([]response, len(both))
		var group sync.WaitGroup
		for i, c := range both {
			group.Go(func() {
				a, err := c.try(t.Context(), method, path, body)
				if err != nil {
					a.body = err.Error()
				}
				answers[i] = a
			})
		}
		group.Wait()
		for _, a := range answers {
			if a.status == want {
				got = append(got, a)
			} else if a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "already exists.") {
				t.Errorf("%s %s: found %d %s, want %d, or that the name is taken", method, path, a.status, a.body, want)
			}
		}
		return got
	}
	t.Run("one name, one app", func(t *testing.T) {
		const rounds = 20
		for i := range rounds {
			name := fmt.Sprintf("app-%d", i)
			made := each("POST", "/v3/apps", `{"name":"`+name+`","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`, http.StatusCreated)
			if len(made) > 1 {
				t.Fatalf("%s: found %d apps of this name", name, len(made))
			}
			w.requireAppsNamed(t, space, name, len(made))
		}
	})
	t.Run("one name, however it came about", func(t *testing.T) {
		const rounds = 10
		for i := range rounds {
			var apps [2]string
			for j := range apps {
				body := fmt.Sprintf(`{"name":"from-%d-%d","relationships":{"space":{"data":{"guid":"%s"}}}}`, i, j, space)
				apps[j] = jsonField(t, alice.send(t, "POST", "/v3/apps", body).body, "guid")
			}
			name := fmt.Sprintf("to-%d", i)
			w.awaitApp(t, both[1], apps[1])
			var group sync.WaitGroup
			for j, c := range both {
				group.Go(func() { _, _ = c.try(t.Context(), "PATCH", "/v3/apps/"+apps[j], `{"name":"`+name+`"}`) })
			}
			group.Wait()
			if found := w.countAppsNamed(t, space, name); found > 1 {
				t.Fatalf("%s: found %d apps of this name", name, found)
			}
		}
	})
	t.Run("restarts are each counted once", func(t *testing.T) {
		app := w.createApp(t, space, "restarted", 1, korifiv1alpha1.StartedState)
		w.awaitApp(t, both[1], app)
		got := each("POST", "/v3/apps/"+app+"/actions/restart", "", http.StatusOK)
		if len(got) != 2 || jsonField(t, got[0].body, "revision") == jsonField(t, got[1].body, "revision") {
			t.Errorf("found %v, want two revisions", got)
		}
	})
	t.Run("a job is known to who did not begin it", func(t *testing.T) {
		app := w.createApp(t, space, "deleted", 1, korifiv1alpha1.StoppedState)
		w.awaitApp(t, both[1], app)
		a := alice.send(t, "DELETE", "/v3/apps/"+app, "")
		b := both[1].get(t, strings.TrimPrefix(a.location, w.url))
		if b.status != http.StatusOK || jsonField(t, b.body, "state") != "COMPLETE" {
			t.Errorf("found %d %s, want it complete", b.status, b.body)
		}
	})
	for _, path := range []string{"/v3/apps?order_by=name&space_guids=" + space, "/v3/spaces", "/v3/organizations", "/whoami"} {
		testenv.Eventually(t, "both say the same of "+path, func() error {
			a, b := alice.get(t, path), both[1].get(t, path)
			if strings.ReplaceAll(a.body, w.url, other.url) != b.body {
				return fmt.Errorf("found %s and %s", a.body, b.body)
			}
			return nil
		})
	}
}

// awaitApp waits until a replica knows an app.
func (w *testEnv) awaitApp(t *testing.T, c caller, app string) {
	t.Helper()
	testenv.Eventually(t, "the replica knows the app", func() error {
		if a := c.get(t, "/v3/apps/"+app); a.status != http.StatusOK {
			return fmt.Errorf("found %d", a.status)
		}
		return nil
	})
}

func (w *testEnv) countAppsNamed(t *testing.T, space, name string) (found int) {
	t.Helper()
	var apps korifiv1alpha1.CFAppList
	if err := w.Client.List(t.Context(), &apps, client.InNamespace(space)); err != nil {
		t.Fatal(err)
	}
	for i := range apps.Items {
		if apps.Items[i].Spec.DisplayName == name {
			found++
		}
	}
	return found
}

// requireAppsNamed: who lost has taken back what it made.
func (w *testEnv) requireAppsNamed(t *testing.T, space, name string, want int) {
	t.Helper()
	if found := w.countAppsNamed(t, space, name); found != want {
		t.Fatalf("%s: found %d apps, want %d", name, found, want)
	}
}

// testJobs polls a deletion that takes long, as who began it, as somebody else, and as who may see nothing.
func (w *testEnv) testJobs(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StoppedState)
	alice, bob, mallory := w.callerNamed(t, "alice"), w.callerNamed(t, "bob"), w.callerNamed(t, "mallory")
	kept := w.getApp(t, space, app)
	kept.Finalizers = append(kept.Finalizers, "example.com/pods-are-left")
	if err := w.Client.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	job := "/v3/jobs/app.delete~" + app
	if a := alice.get(t, job); a.status != http.StatusNotFound {
		t.Errorf("found %d %s before the deletion, want no such job", a.status, a.body)
	}
	if a := bob.send(t, "DELETE", "/v3/apps/"+app, ""); a.status != http.StatusForbidden {
		t.Errorf("found %d %s, want bob refused", a.status, a.body)
	}
	a := alice.send(t, "DELETE", "/v3/apps/"+app, "")
	if a.status != http.StatusAccepted || a.location != w.url+job {
		t.Fatalf("found %d %s %s, want a job", a.status, a.location, a.body)
	}
	if a := mallory.get(t, job); a.status != http.StatusNotFound || jsonField(t, a.body, "errors.0.detail") != "Job not found" {
		t.Errorf("found %d %s, want that mallory learns nothing", a.status, a.body)
	}
	begin := time.Now()
	if a := bob.get(t, job); jsonField(t, a.body, "state") != "PROCESSING" || time.Since(begin) < time.Second {
		t.Errorf("found %s after %s, want it held while Pods are left", a.body, time.Since(begin))
	}
	answers := make(chan response, 1)
	ctx := t.Context()
	go func() {
		a, _ := alice.try(ctx, "GET", job, "")
		answers <- a
	}()
	kept = w.getApp(t, space, app)
	kept.Finalizers = nil
	if err := w.Client.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.status != http.StatusOK || jsonField(t, a.body, "state") != "COMPLETE" {
		t.Errorf("found %d %s, want it complete once they are gone", a.status, a.body)
	}
}

// testRevoked takes rights away. What is written is refused at once, what is only shown within the time that the page
// about the API names.
func (w *testEnv) testRevoked(t *testing.T) {
	const documented = 10 * time.Second
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StoppedState)
	own := w.CreateNamespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "dave"}}
	w.ExpectCreated(t, account)
	w.createRoleBinding(t, space, "torpor-space-developer", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: own, Name: "dave"})
	w.awaitBinding(t, "system:serviceaccount:"+own+":dave", nil, space)
	dave := caller{testEnv: w, authorization: "Bearer " + w.requestTokenOf(t, own, "dave")}
	if a := dave.get(t, "/v3/apps/"+app); a.status != http.StatusOK {
		t.Fatalf("found %d %s", a.status, a.body)
	}
	var bindings rbacv1.RoleBindingList
	if err := w.Client.List(t.Context(), &bindings, client.InNamespace(space)); err != nil {
		t.Fatal(err)
	}
	for i := range bindings.Items {
		if bindings.Items[i].Subjects[0].Name == "dave" {
			if err := w.Client.Delete(t.Context(), &bindings.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	testenv.Eventually(t, "a change is refused", func() error {
		if a := dave.send(t, "POST", "/v3/apps/"+app+"/actions/start", ""); a.status != http.StatusForbidden && a.status != http.StatusNotFound {
			return fmt.Errorf("found %d %s", a.status, a.body)
		}
		return nil
	})
	if took := time.Since(begin); took > documented {
		t.Errorf("found a change refused after %s, want it at once", took)
	}
	testenv.Eventually(t, "the app is not there any more", func() error {
		if a := dave.get(t, "/v3/apps/"+app); a.status != http.StatusNotFound {
			return fmt.Errorf("found %d", a.status)
		}
		return nil
	})
	t.Logf("not shown any more after %s", time.Since(begin))
	if err := w.Client.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the token lets nobody in any more", func() error {
		a := dave.get(t, "/whoami")
		if a.status != http.StatusUnauthorized || jsonField(t, a.body, "errors.0.title") != "CF-NotAuthenticated" {
			return errors.New("found " + a.body)
		}
		return nil
	})
}

// testAdmin makes an org and a space, gives a role in it, and takes the space away, as cf create-org, create-space and
// delete-space do.
func (w *testEnv) testAdmin(t *testing.T) {
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "ada"}})
	w.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ada"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "ada"}},
	})
	ada, alice := w.callerNamed(t, "ada"), w.callerNamed(t, "alice")
	must := func(c caller, want int, method, path, body string) response {
		t.Helper()
		a := c.send(t, method, path, body)
		if a.status != want {
			t.Fatalf("%s %s: found %d %s, want %d", method, path, a.status, a.body, want)
		}
		return a
	}
	w.awaitBinding(t, "system:serviceaccount:"+system+":ada", nil, "default")
	must(alice, http.StatusForbidden, "POST", "/v3/organizations", `{"name":"mine"}`)
	org := jsonField(t, must(ada, http.StatusCreated, "POST", "/v3/organizations", `{"name":"second","suspended":null}`).body, "guid")
	if a := must(ada, http.StatusUnprocessableEntity, "POST", "/v3/organizations", `{"name":"second"}`); jsonField(t, a.body, "errors.0.detail") != "Organization 'second' already exists." {
		t.Errorf("found %s, want the words that the client knows", a.body)
	}
	inOrg := `"relationships":{"organization":{"data":{"guid":"` + org + `"}}}`
	space := jsonField(t, must(ada, http.StatusCreated, "POST", "/v3/spaces", `{"name":"stage",`+inOrg+`}`).body, "guid")
	if a := must(ada, http.StatusUnprocessableEntity, "POST", "/v3/spaces", `{"name":"stage",`+inOrg+`}`); jsonField(t, a.body, "errors.0.detail") != "Name must be unique per organization" {
		t.Errorf("found %s, want the words that the client knows", a.body)
	}
	must(alice, http.StatusUnprocessableEntity, "POST", "/v3/spaces", `{"name":"mine",`+inOrg+`}`)
	user := `"user":{"data":{"username":"system:serviceaccount:` + system + `:alice"}}`
	role := `{"type":"space_developer","relationships":{` + user + `,"space":{"data":{"guid":"` + space + `"}}}}`
	must(alice, http.StatusNotFound, "POST", "/v3/roles", role)
	must(ada, http.StatusCreated, "POST", "/v3/roles", `{"type":"organization_user","relationships":{`+user+`,"organization":{"data":{"guid":"`+org+`"}}}}`)
	if a := must(ada, http.StatusCreated, "POST", "/v3/roles", role); jsonField(t, a.body, "relationships.space.data.guid") != space {
		t.Errorf("found %s, want a role in the space", a.body)
	}
	if a := must(ada, http.StatusUnprocessableEntity, "POST", "/v3/roles", role); !strings.Contains(a.body, "already has 'space_developer' role") {
		t.Errorf("found %s, want the words that the client knows", a.body)
	}
	must(ada, http.StatusUnprocessableEntity, "POST", "/v3/roles", `{"type":"king","relationships":{`+user+`}}`)
	testenv.Eventually(t, "alice sees the space", func() error {
		if a := alice.get(t, "/v3/spaces?names=stage&organization_guids="+org); jsonField(t, a.body, "resources.0.guid") != space {
			return errors.New("found " + a.body)
		}
		return nil
	})
	must(alice, http.StatusCreated, "POST", "/v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`)
	must(alice, http.StatusForbidden, "DELETE", "/v3/spaces/"+space, "")
	gone := must(ada, http.StatusAccepted, "DELETE", "/v3/spaces/"+space, "")
	if a := ada.get(t, strings.TrimPrefix(gone.location, w.url)); jsonField(t, a.body, "state") != "COMPLETE" || jsonField(t, a.body, "operation") != "space.delete" {
		t.Errorf("found %s, want it gone", a.body)
	}
	must(ada, http.StatusAccepted, "DELETE", "/v3/organizations/"+org, "")
}
