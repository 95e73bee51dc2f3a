// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

// caller sends requests as one user.
type caller struct {
	*env
	authorization string
}

func (w *env) newCaller(t *testing.T, account string) caller {
	t.Helper()
	return caller{env: w, authorization: "Bearer " + w.createToken(t, account)}
}

// expectStatus sends a request and expects a status.
func (c caller) expectStatus(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	a, err := c.send(t.Context(), method, path, body)
	if err != nil || a.Status != want {
		t.Fatalf("%s %s: found %d %s (%v), want %d", method, path, a.Status, a.Body, err, want)
	}
	return a.Body
}

func (c caller) send(ctx context.Context, method, path, body string) (conversation.APIAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return conversation.APIAnswer{}, err
	}
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return conversation.APIAnswer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	return conversation.APIAnswer{Status: response.StatusCode, Location: response.Header.Get("Location"), Body: string(raw)}, err
}

// createApp makes an app with a droplet, as a push leaves it; a started one runs.
func (c caller) createApp(t *testing.T, space, name string, instances int32, state string) string {
	t.Helper()
	field := func(body, path string) string { return conversation.JSONField(t, body, path) }
	in := `"relationships":{"space":{"data":{"guid":"` + space + `"}}}`
	guid := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/apps", `{"name":"`+name+`","lifecycle":{"type":"docker"},`+in+`}`), "guid")
	of := `"relationships":{"app":{"data":{"guid":"` + guid + `"}}}`
	image := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+of+`}`), "guid")
	build := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+image+`"}}`), "guid")
	droplet := field(c.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, ""), "droplet.guid")
	c.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+guid+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	c.expectStatus(t, http.StatusAccepted, "POST", "/v3/apps/"+guid+"/processes/web/actions/scale", `{"instances":`+strconv.Itoa(int(instances))+`}`)
	if state == string(korifiv1alpha1.StartedState) {
		c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+guid+"/actions/start", "")
		c.waitUntilRunning(t, guid, int(instances))
	}
	return guid
}

// waitUntilRunning waits until stats have as many rows, and every one runs.
func (c caller) waitUntilRunning(t *testing.T, app string, instances int) {
	t.Helper()
	testenv.Eventually(t, "every instance runs", func() error {
		a, err := c.send(t.Context(), http.MethodGet, "/v3/apps/"+app+"/processes/web/stats", "")
		if err != nil {
			return err
		}
		if strings.Count(a.Body, `"RUNNING"`) != instances || conversation.JSONField(t, a.Body, "resources#") != strconv.Itoa(instances) {
			return errors.New("found " + a.Body)
		}
		return nil
	})
}

// listPodRevisions returns the Pods of an app, by name, with their revision.
func (w *env) listPodRevisions(t *testing.T, space, app string) map[string]string {
	t.Helper()
	var list corev1.PodList
	if err := w.Client.List(t.Context(), &list, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels[korifiv1alpha1.VersionLabel]
	}
	return found
}

// waitForOnlyRevision waits until the app has as many Pods, all of one revision.
func (w *env) waitForOnlyRevision(t *testing.T, space, app, revision string, instances int) {
	t.Helper()
	testenv.Eventually(t, "only revision "+revision+" is left", func() error {
		found := w.listPodRevisions(t, space, app)
		for name, of := range found {
			if of != revision {
				return fmt.Errorf("found %s of revision %s", name, of)
			}
		}
		if len(found) != instances {
			return fmt.Errorf("found %d Pods, want %d", len(found), instances)
		}
		return nil
	})
}
