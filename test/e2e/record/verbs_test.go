// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/torpor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// runPlugin runs kubectl torpor as a user, and returns its output.
func (h *hub) runPlugin(t *testing.T, who string, want exit.Code, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	all := append(args, "--kubeconfig", h.KubeconfigPath(t), "-n", metav1.NamespaceDefault, "--as", who, "--as-group", "system:masters")
	if code := exit.Code(torpor.Run(t.Context(), torpor.Streams{Out: &out, Err: &stderr}, all)); code != want {
		t.Errorf("%s: found exit code %d, want %d: %s%s", strings.Join(args, " "), code, want, &out, &stderr)
	}
	return out.String()
}

// TestPluginStopsAndStarts stops, extends and starts an object of each kind with kubectl torpor as three users,
// while the manager's own program runs.
func TestPluginStopsAndStarts(t *testing.T) {
	t.Parallel()
	h := newManagedHub(t)
	h.startManager(t)
	h.waitUntilNoted(t)
	for _, k := range allKinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			obj := k.build(t, h.hub, "verbs")
			h.ExpectCreated(t, obj)
			parts, name := []string{}, cmp.Or(k.argument, strings.ToLower(k.name))+"/verbs"
			if k.name == "MySQLCluster" {
				parts = []string{"--part", "clustering"}
			}
			isRecorded := func(what, by, startedBy string) torporv1alpha1.StopRecord {
				t.Helper()
				var stop torporv1alpha1.StopRecord
				h.WaitFor(t, what, obj, func() error {
					stops := k.records(obj)[0]
					if len(stops) == 0 || stops[0].By != by || stops[0].StartedBy != startedBy {
						return fmt.Errorf("expected a stop by %q that was ended by %q, found %+v", by, startedBy, stops)
					}
					stop = stops[0]
					return nil
				})
				return stop
			}
			if k.isScaled { // No controller creates Pods in this test and reports their number.
				testenv.ExpectNoError(t, h.Client.Status().Patch(t.Context(), obj, mergePatch(t, map[string]any{"status": map[string]any{"observedGeneration": 1000, "replicas": 0}})))
			}
			h.runPlugin(t, "alice", exit.Done, append(parts, "stop", name, "--reason", "no budget", "--until", "8h")...)
			stop := isRecorded("alice stops the object", "alice", "")
			if stop.Reason != "no budget" || stop.UntilBy != "alice" || stop.Until == nil || stop.Until.Sub(stop.Since.Time).Round(time.Minute) != 8*time.Hour { // A webhook and the API server may use different seconds.
				t.Errorf("expected a reason and an end after eight hours, found %+v", stop)
			}
			if k.name != "ClusterDeployment" { // The ClusterDeployment has no cloud in this test.
				h.runPlugin(t, "alice", exit.Done, append(parts, "stop", name, "--wait")...)
			}
			if k.name == "CFApp" {
				h.runPlugin(t, "alice", exit.Refused, "restart", name, "--wait")
			}
			h.runPlugin(t, "bob", exit.Done, append(parts, "extend", name, "--until", "2099-01-01T00:00:00Z")...)
			h.WaitFor(t, "the stop is extended", obj, func() error {
				stops := k.records(obj)[0]
				return testenv.ErrorIf(len(stops) != 1 || stops[0].RequestedUntil != "2099-01-01T00:00:00Z" || stops[0].UntilBy != "bob", "found %+v", stops)
			})
			h.runPlugin(t, "bob", exit.Refused, append(parts, "extend", name, "--until", "1h")...)
			var told struct {
				Parts []struct{ Part, By, Reason, Until, UntilBy string }
			}
			testenv.ExpectNoError(t, json.Unmarshal([]byte(h.runPlugin(t, "bob", exit.Done, "why", name, "-o", "json")), &told))
			if one := told.Parts[0]; one.By != "alice" || one.Reason != "no budget" || one.Until != "2099-01-01T00:00:00Z" || one.UntilBy != "bob" {
				t.Errorf("expected the requester, the reason and the end, found %+v", told)
			}
			h.runPlugin(t, "carol", exit.Done, append(parts, "start", name)...)
			isRecorded("carol starts the object", "alice", "carol")
			testenv.ExpectNoError(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			if annotations := obj.GetAnnotations(); annotations[torporv1alpha1.UntilAnnotation]+annotations[torporv1alpha1.ReasonAnnotation] != "" {
				t.Errorf("expected the annotations of the stop to be removed, found %v", annotations)
			}
			if k.name == "MySQLCluster" {
				h.runPlugin(t, "carol", exit.Done, append(parts, "start", name, "--wait")...)
			}
			if k.name == "CFApp" { // No controller creates Pods in this test, so the new revision has none.
				h.runPlugin(t, "carol", exit.TimedOut, "restart", name, "--wait", "--timeout", "3s")
			}
		})
	}
}
