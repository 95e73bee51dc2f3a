// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// The doors by which users reach objects of the hub.
const (
	apiServer = "API server"
	page      = "page"
	cfAPI     = "CF API"
	plugin    = "`kubectl torpor`"
)

// visitor is a service account with one role.
type visitor struct {
	*trustHub
	account, token string
}

// act is an action of a visitor, with a function for each door that offers it.
type act struct {
	name string
	// changes is true if the changed object must be reset before each attempt.
	changes bool
	doors   map[string]door
}

// door performs an action as a visitor, and returns whether the visitor is allowed to. The error is an answer that is
// not about permissions.
type door func(*testing.T, visitor) (isAllowed bool, err error)

// TestDoorsFollowTheAPIServer has a user of each role perform each action through every door, and compares the answers
// with the table on the page. No door may allow an action that the API server refuses to the user.
func TestDoorsFollowTheAPIServer(t *testing.T) {
	h := shared.Get(t)
	name := types.NamespacedName{Namespace: space, Name: "doors"}
	app := testenv.BuildCFApp(name)
	app.Spec.EnvSecretName = "key"
	h.ExpectCreated(t, app, testenv.BuildClusterDeployment(name, "missing", "missing"))
	visitors := h.createVisitors(t)
	var table strings.Builder
	doors := []string{apiServer, page, cfAPI, plugin}
	documented := ""
	if !isUpdating() {
		_, documented, _ = readPage(t, "doors")
	}
	table.WriteString("| act | " + strings.Join(doors, " | ") + " |\n|---|---|---|---|---|\n")
	for _, a := range listActs() {
		table.WriteString("| " + a.name)
		var first []string
		for _, door := range doors {
			enter := a.doors[door]
			if enter == nil {
				table.WriteString(" | –")
				continue
			}
			allowed := h.listAllowed(t, a, enter, visitors, readDoor(documented, a.name, slices.Index(doors, door)))
			if door == apiServer {
				first = allowed
			}
			for _, who := range allowed {
				if !slices.Contains(first, who) {
					t.Errorf("%s: %s: expected no more than the API server allows, found %s", a.name, door, who)
				}
			}
			table.WriteString(" | " + strings.Join(allowed, ", "))
		}
		table.WriteString(" |\n")
	}
	comparePage(t, "doors", table.String())
}

// listAllowed returns the accounts of the visitors that are allowed to perform an action through a door. The API
// server, the page and the CF API may refuse an allowed action until their caches have the role or the object.
// Therefore listAllowed waits until the expected accounts are allowed. For other accounts, the first answer counts.
func (h *trustHub) listAllowed(t *testing.T, a act, enter door, visitors []visitor, expected []string) (allowed []string) {
	t.Helper()
	for _, v := range visitors {
		var isAllowed bool
		testenv.Eventually(t, v.account+": "+a.name, func() (err error) {
			if a.changes {
				if err := h.resetDoors(t); err != nil {
					return err
				}
			}
			isAllowed, err = enter(t, v)
			return cmp.Or(err, testenv.ErrorIf(!isAllowed && slices.Contains(expected, v.account), "expected the act to be allowed, found it refused"))
		})
		if isAllowed {
			allowed = append(allowed, v.account)
		}
	}
	return allowed
}

// readDoor returns the accounts that a table lists for an action through a door.
func readDoor(table, name string, column int) (accounts []string) {
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n"), " | ")
		if cells[0] == name && len(cells) > column+1 {
			accounts = strings.Split(cells[column+1], ", ")
		}
	}
	return accounts
}

// resetDoors reverts the changes of all actions.
func (h *trustHub) resetDoors(t *testing.T) error {
	t.Helper()
	for object, patch := range map[*unstructured.Unstructured]string{
		refer(t, hive, "ClusterDeployment/space/doors"): `{"spec":{"powerState":"Running"}}`,
		refer(t, korifi, "CFApp/space/doors"):           `{"spec":{"desiredState":"STARTED","displayName":"doors"}}`,
	} {
		if err := h.Client.Patch(t.Context(), object, client.RawPatch(client.Merge.Type(), []byte(patch))); err != nil {
			return err
		}
	}
	return nil
}

// createVisitors creates a service account for each role of users, and one without a role.
func (h *trustHub) createVisitors(t *testing.T) []visitor {
	t.Helper()
	all := []visitor{{h, "no role", ""}}
	for role, isClusterWide := range map[string]bool{
		"switch-viewer": false, "switch-operator": false, "space-auditor": false, "space-developer": false, "cf-admin": true, "clusterslumber-editor": true,
	} {
		all = append(all, visitor{h, role, ""})
		meta := metav1.ObjectMeta{Namespace: space, Name: "visits-" + role}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-" + role}
		subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "visits-" + role}}
		if isClusterWide {
			meta.Namespace = ""
			h.ExpectCreated(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		} else {
			h.ExpectCreated(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		}
	}
	slices.SortFunc(all, func(a, b visitor) int { return strings.Compare(a.account, b.account) })
	for i := range all {
		account := "visits-" + strings.ReplaceAll(all[i].account, " ", "-")
		h.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}})
		all[i].token = h.createToken(t, system, account)
	}
	return all
}

func (v visitor) user() string {
	return "system:serviceaccount:" + system + ":visits-" + strings.ReplaceAll(v.account, " ", "-")
}

func listActs() []act {
	const stopped = `{"metadata":{"annotations":{"torpor.dev/reason":"night"}},"spec":{"powerState":"Hibernating"}}`
	type ways = map[string]door
	return []act{
		{"see a ClusterDeployment", false, ways{apiServer: onServer(reads(hive, "ClusterDeployment/space/doors")), page: seesOnPage("ClusterDeployment"), plugin: byPlugin("why", "clusterdeployment/doors")}},
		{"stop a ClusterDeployment", true, ways{apiServer: onServer(patches(hive, "ClusterDeployment/space/doors", stopped)), page: stopsOnPage("ClusterDeployment", "machines"), plugin: byPlugin("stop", "clusterdeployment/doors")}},
		{"see an app", false, ways{apiServer: onServer(reads(korifi, "CFApp/space/doors")), page: seesOnPage("CFApp"), cfAPI: onCFAPI(http.MethodGet, "/v3/apps/doors", ""), plugin: byPlugin("why", "cfapp/doors")}},
		{"stop an app", true, ways{
			apiServer: onServer(patches(korifi, "CFApp/space/doors", `{"spec":{"desiredState":"STOPPED"}}`)), page: stopsOnPage("CFApp", "app"),
			cfAPI: onCFAPI(http.MethodPost, "/v3/apps/doors/actions/stop", ""), plugin: byPlugin("stop", "cfapp/doors"),
		}},
		{"rename an app", true, ways{
			apiServer: onServer(patches(korifi, "CFApp/space/doors", `{"spec":{"displayName":"renamed"}}`)),
			cfAPI:     onCFAPI(http.MethodPatch, "/v3/apps/doors", `{"name":"renamed"}`),
		}},
		{"read a Secret, or the environment of an app", false, ways{apiServer: onServer(reads("v1", "Secret/space/key")), cfAPI: onCFAPI(http.MethodGet, "/v3/apps/doors/env", "")}},
		{"create a space", false, ways{
			apiServer: onServer(creates("{apiVersion: korifi.cloudfoundry.org/v1alpha1, kind: CFSpace, metadata: {namespace: org, name: doors}, spec: {displayName: doors}}")),
			cfAPI:     onCFAPI(http.MethodPost, "/v3/spaces", `{"name":"doors","relationships":{"organization":{"data":{"guid":"org"}}}}`),
		}},
		{"assign the role of a developer", false, ways{
			apiServer: onServer(creates(bindingManifest(space, "torpor-space-developer"))),
			cfAPI:     onCFAPI(http.MethodPost, "/v3/roles", `{"type":"space_developer","relationships":{"user":{"data":{"username":"me"}},"space":{"data":{"guid":"space"}}}}`),
		}},
	}
}

// onServer acts at the API server, as the user.
func onServer(try func(*testing.T, *trustHub, client.Client) error) door {
	return func(t *testing.T, v visitor) (bool, error) {
		t.Helper()
		err := try(t, v.trustHub, v.clientOf(t, v.user()))
		if k8serrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	}
}

// send sends a request with the token of the visitor.
func (v visitor) send(web *http.Client, request *http.Request) (status int, text string, err error) {
	request.Header.Set("Authorization", "Bearer "+v.token)
	answer, err := web.Do(request)
	if err != nil {
		return 0, "", err
	}
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), cmp.Or(err, answer.Body.Close())
}

func seesOnPage(kind string) door {
	return func(t *testing.T, v visitor) (bool, error) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+v.page+"/?kind="+kind, http.NoBody)
		testenv.ExpectNoError(t, err)
		status, text, err := v.send(http.DefaultClient, request)
		return strings.Contains(text, `data-key="`+kind+"/"+space+"/doors/"), cmp.Or(err, errorOfStatus(status, text))
	}
}

func stopsOnPage(kind, part string) door {
	return func(t *testing.T, v visitor) (bool, error) {
		t.Helper()
		form := url.Values{"verb": {"stop"}, "kind": {kind}, "namespace": {space}, "name": {"doors"}, "part": {part}, "reason": {"night"}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+v.page+"/switch", strings.NewReader(form.Encode()))
		testenv.ExpectNoError(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		status, text, err := v.send(http.DefaultClient, request)
		return status < http.StatusBadRequest, cmp.Or(err, errorOfStatus(status, text))
	}
}

func onCFAPI(method, path, body string) door {
	return func(t *testing.T, v visitor) (bool, error) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+v.api+path, strings.NewReader(body))
		testenv.ExpectNoError(t, err)
		status, text, err := v.send(v.http, request)
		if err == nil && isNoRight(status, text) {
			return false, nil
		}
		return status < http.StatusBadRequest, cmp.Or(err, errorOfStatus(status, text))
	}
}

// errorOfStatus returns an error for an answer that is not about rights.
func errorOfStatus(status int, text string) error {
	isAboutRights := status < http.StatusBadRequest || status == http.StatusForbidden || status == http.StatusNotFound
	return testenv.ErrorIf(!isAboutRights, "expected an answer about rights, found %d: %s", status, text)
}

// isNoRight reports whether an answer with another status means that the caller does not see an object of the request.
func isNoRight(status int, text string) bool {
	return status == http.StatusUnprocessableEntity && strings.Contains(text, "Ensure")
}

func byPlugin(args ...string) door {
	return func(t *testing.T, v visitor) (bool, error) {
		t.Helper()
		var out, stderr bytes.Buffer
		all := append(slices.Clone(args), "--kubeconfig", v.KubeconfigPath(t), "-n", space, "--as", v.user())
		code := exit.Code(torpor.Run(context.WithoutCancel(t.Context()), torpor.Streams{Out: &out, Err: &stderr}, all))
		isAboutRights := code == exit.Done || strings.Contains(stderr.String(), "cannot")
		return code == exit.Done, testenv.ErrorIf(!isAboutRights, "expected an answer about rights, found %s", fmt.Sprint(&out, &stderr))
	}
}
