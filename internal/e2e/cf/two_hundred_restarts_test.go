// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

// TestTwoHundredRestartsLeaveOneRevisionEach is the decision as one test: a stop and a start within milliseconds, as `cf restart` sends them, two
// hundred times. Each time the revision rises by exactly one, the LRP has a name that none had before, no Pod of an older
// revision is left when the app runs, and until then stats never show one as running.
func TestTwoHundredRestartsLeaveOneRevisionEach(t *testing.T) {
	const rounds, instances = 200, 2
	w := shared.Get(t)
	space, alice, bob := w.createSpace(t), w.newCaller(t, "alice"), w.newCaller(t, "bob")
	app := alice.createApp(t, space, "shop", instances, started)
	path := "/v3/apps/" + app
	alice.expectStatus(t, http.StatusOK, "PATCH", path+"/processes/web", `{"command":"HOLLOW_STOP=20ms ./shop"}`)
	names := map[string]bool{w.requireOnlyLRP(t, space, app, "0"): true}
	asked := 0
	for round := 1; round <= rounds; round++ {
		revision := strconv.Itoa(round)
		for _, action := range []string{"stop", "start"} {
			answer := alice.expectStatus(t, http.StatusOK, "POST", path+"/actions/"+action, "")
			if found := conversation.JSONField(t, answer, "revision"); found != revision {
				t.Fatalf("round %s: found revision %s after the %s", revision, found, action)
			}
		}
		// Bob has started nothing, so his stats are not held: he sees everything on the way.
		testenv.Eventually(t, "revision "+revision+" runs", func() error {
			asked++
			if running := bob.countTrulyRunning(t, space, app, revision, instances); running != instances {
				return fmt.Errorf("found %d instances running", running)
			}
			return nil
		})
		for name, found := range w.listPodRevisions(t, space, app) {
			if found != revision {
				t.Fatalf("round %s: found the Pod %s of revision %s", revision, name, found)
			}
		}
		name := w.requireOnlyLRP(t, space, app, revision)
		if names[name] {
			t.Fatalf("round %s: found the LRP %s once more", revision, name)
		}
		names[name] = true
	}
	t.Logf("%d restarts had %d LRPs; stats were asked for %d times", rounds, len(names)-1, asked)
}

// countTrulyRunning asks for stats and returns how many rows show an instance as running: each has to be a ready Pod of the revision.
// There are as many rows as instances are wanted, always.
func (c caller) countTrulyRunning(t *testing.T, space, app, revision string, instances int) (running int) {
	t.Helper()
	var stats struct {
		Resources []struct {
			Index int                          `json:"index"`
			State korifiv1alpha1.InstanceState `json:"state"`
		} `json:"resources"`
	}
	body := c.expectStatus(t, http.StatusOK, "GET", "/v3/apps/"+app+"/processes/web/stats", "")
	if err := json.Unmarshal([]byte(body), &stats); err != nil || len(stats.Resources) != instances {
		t.Fatalf("found %s (%v), want %d rows", body, err, instances)
	}
	var pods corev1.PodList
	of := client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app, korifiv1alpha1.VersionLabel: revision}
	if err := c.Client.List(t.Context(), &pods, client.InNamespace(space), of); err != nil {
		t.Fatal(err)
	}
	ready := map[string]bool{}
	for i := range pods.Items {
		for _, is := range pods.Items[i].Status.Conditions {
			if is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue {
				ready[pods.Items[i].Labels[appsv1.PodIndexLabel]] = true
			}
		}
	}
	for _, row := range stats.Resources {
		if row.State != korifiv1alpha1.RunningInstance {
			continue
		}
		if running++; !ready[strconv.Itoa(row.Index)] {
			t.Fatalf("instance %d is shown as running, but none of revision %s is ready", row.Index, revision)
		}
	}
	return running
}

// requireOnlyLRP returns the name of the app's LRP, of which there is one, of the revision.
func (w *env) requireOnlyLRP(t *testing.T, space, app, revision string) string {
	t.Helper()
	var lrps eiriniv1.LRPList
	if err := w.Client.List(t.Context(), &lrps, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}); err != nil {
		t.Fatal(err)
	}
	if len(lrps.Items) != 1 || lrps.Items[0].Spec.Version != revision {
		t.Fatalf("found %d LRPs, want one of revision %s", len(lrps.Items), revision)
	}
	return lrps.Items[0].Name
}
