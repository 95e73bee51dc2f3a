// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"os/exec"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestRollbackKeepsStops rolls a Deployment back with kubectl itself, while the controllers of Kubernetes run. The
// Deployment gets the annotations of an old ReplicaSet, which contain no stop, or one that ended long ago.
func TestRollbackKeepsStops(t *testing.T) {
	t.Parallel()
	if os.Getenv("TORPOR_LOCAL") == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the binary local; run with `make test`")
	}
	h := &hub{Environment: testenv.StartControlPlane(t, 0)}
	h.ApplyManifest(t, "record/workloads.yaml")
	h.expectRollbacksToChangeNothing(t)
}

// TestRollbackKeepsStopsRecordedByTheWebhook runs the same test with the webhook instead of the policies.
func TestRollbackKeepsStopsRecordedByTheWebhook(t *testing.T) {
	t.Parallel()
	if os.Getenv("TORPOR_LOCAL") == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the binary local; run with `make test`")
	}
	h := &hub{Environment: testenv.StartOlderControlPlane(t, olderKubernetes)}
	h.serveRecordWebhooks(t)
	h.expectRollbacksToChangeNothing(t)
}

func (h *hub) expectRollbacksToChangeNothing(t *testing.T) {
	t.Helper()
	testenv.StartManager(t, h.Environment, fieldswitchcontroller.Controller{Clock: clock.RealClock{}, Kind: kinds.ListWorkloads()[0]}.SetupWithManager)
	k := deployments()
	web := h.buildDeployment(t, k, "web")
	web.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType // No Pod becomes ready in this test.
	h.ExpectCreated(t, web)
	h.waitForRollout(t, web, 3)
	testenv.Eventually(t, "requesters are recorded", func() error {
		tried := h.buildDeployment(t, k, "tried")
		merge(t, tried, k.stop)
		err := h.Client.Create(t.Context(), tried, client.DryRunAll)
		return testenv.ErrorIf(err != nil || tried.Annotations[k.notes[0]] == "", "found no requester (%v)", err)
	})
	image := func(name string) map[string]any {
		return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": name}}}}}}
	}
	h.patch(t, "alice", web, image("example.com/b"))
	h.waitForRollout(t, web, 3)
	h.runPlugin(t, "alice", exit.Done, "stop", "deployment/web", "--reason", "no budget", "--wait")
	h.rollBack(t)
	h.waitForRollout(t, web, 0)
	stops := fieldswitch.ReadSwitch(web).Records
	if len(stops) != 1 || stops[0].By != "alice" || !stops.Holds() || web.Spec.Template.Spec.Containers[0].Image != "example.com/a" {
		t.Errorf("expected the old image, stopped by alice, found %+v and %v", web.Spec.Template.Spec, web.Annotations)
	}
	h.patch(t, "alice", web, k.start)
	h.waitForRollout(t, web, 3)
	h.rollBack(t) // The previous revision is the one at the time of the stop.
	h.waitForRollout(t, web, 3)
	if stops := fieldswitch.ReadSwitch(web).Records; len(stops) != 1 || stops.Holds() || web.Spec.Template.Spec.Containers[0].Image != "example.com/b" {
		t.Errorf("expected the newer image and no stop, found %+v and %v", web.Spec.Template.Spec, web.Annotations)
	}
	if of := h.findReplicaSet(t, "example.com/b"); of.Annotations[torporv1alpha1.StopsAnnotation] == "" {
		t.Errorf("expected annotations of a Deployment to be copied, of which this test is about, found %v", of.Annotations)
	}
}

func (h *hub) buildDeployment(t *testing.T, k kind, name string) *appsv1.Deployment {
	t.Helper()
	u, _ := k.build(t, h, name).(*unstructured.Unstructured)
	built := &appsv1.Deployment{}
	testenv.ExpectNoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, built))
	return built
}

// waitForRollout waits until the Deployment's own controller has observed the wanted state.
func (h *hub) waitForRollout(t *testing.T, web *appsv1.Deployment, replicas int32) {
	t.Helper()
	h.WaitFor(t, "the Deployment has the wanted replicas", web, func() error {
		isSeen := web.Status.ObservedGeneration >= web.Generation
		return testenv.ErrorIf(!isSeen || *web.Spec.Replicas != replicas || web.Status.UpdatedReplicas != replicas, "found %+v, %+v and %v", *web.Spec.Replicas, web.Status, web.Annotations)
	})
}

// rollBack rolls the Deployment back with kubectl.
func (h *hub) rollBack(t *testing.T) {
	t.Helper()
	kubectl := exec.CommandContext(t.Context(), testenv.KubectlPath(t), "rollout", "undo", "deployment/web",
		"-n", metav1.NamespaceDefault, "--kubeconfig", h.KubeconfigPath(t), "--as", "bob", "--as-group", "system:masters")
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("kubectl rollout undo: %v: %s", err, out)
	}
}

func (h *hub) findReplicaSet(t *testing.T, image string) *appsv1.ReplicaSet {
	t.Helper()
	var list appsv1.ReplicaSetList
	testenv.ExpectNoError(t, h.Client.List(t.Context(), &list))
	for i := range list.Items {
		if list.Items[i].Spec.Template.Spec.Containers[0].Image == image {
			return &list.Items[i]
		}
	}
	t.Fatalf("expected a ReplicaSet of %s, found %d others", image, len(list.Items))
	return nil
}
