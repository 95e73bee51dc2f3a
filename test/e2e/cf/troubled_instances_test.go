// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// Spaces enforce the Pod Security standard "restricted". Torpor's Pods conform to it, but other webhooks and
// policies may change them so that they do not.
func TestInstancesRefusedByPodSecurityReportTheReason(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	testenv.ExpectNoError(t, w.requireLabel(t, space, "pod-security.kubernetes.io/enforce"))
	app := alice.createApp(t, space, "shop", 1, started)
	w.letOthersChangePods(t, space, app)
	const why = "violates PodSecurity"
	deployment := alice.createDeployment(t, app, "DEPLOYING")
	w.waitForMessage(t, space, deployment, why)
	alice.expectStatus(t, http.StatusOK, "POST", deployment+"/actions/cancel", "")
	alice.waitForDeployment(t, deployment, "CANCELED")
	// The previous revision has served until now. After a restart no revision serves, and the instance itself
	// reports the reason.
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.waitForDetails(t, app, why)
}

// letOthersChangePods creates a policy that changes new Pods of a space so that they violate the standard
// "restricted".
func (w *env) letOthersChangePods(t *testing.T, space, app string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "inject-" + space}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: space}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/hostPID", value: true}]`},
		}},
	}}
	w.ExpectCreated(t, policy, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	})
	w.DeleteAfterTest(t, policy)
	pod := w.awaitPod(t, space, app, "")
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: space, Name: "probe"}
	pod.Spec.NodeName = ""
	testenv.Eventually(t, "the policy is enforced", func() error {
		err := w.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
		return testenv.ErrorIf(!k8serrors.IsForbidden(err), "found %v", err)
	})
}

// A kubelet ignores a missing Secret, so that the registry's refusal looks as if the password were wrong.
func TestImageWithoutItsPullSecretReportsTheReason(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	w.fitOnlyPlayedNodes(t, space, app)
	field := func(body, path string) string { return conversation.JSONField(t, body, path) }
	image := field(alice.expectStatus(t, http.StatusCreated, "POST", "/v3/packages",
		`{"type":"docker","data":{"image":"registry.example/shop:1","username":"u","password":"p"},"relationships":{"app":{"data":{"guid":"`+app+`"}}}}`), "guid")
	build := field(alice.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+image+`"}}`), "guid")
	droplet := field(alice.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, ""), "droplet.guid")
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	testenv.ExpectNoError(t, w.Client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(space), client.MatchingFields{"type": string(corev1.SecretTypeDockerConfigJson)}))

	deployment := alice.createDeployment(t, app, "DEPLOYING")
	pod := w.awaitPod(t, space, app, "")
	w.bind(t, pod, w.createPlayedNode(t))
	now := metav1.NewTime(time.Now())
	const refusal = "Back-off pulling image: pull access denied"
	said := "Unable to retrieve some image pull secrets (" + pod.Spec.ImagePullSecrets[0].Name + ")"
	w.ExpectCreated(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "pull-"}, Type: corev1.EventTypeWarning, Reason: "FailedToRetrieveImagePullSecret",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: space, Name: pod.Name, UID: pod.UID},
		Message:        said + "; attempting to pull the image may not succeed.", FirstTimestamp: now, LastTimestamp: now,
	})
	w.reportPod(t, pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: refusal}})
	for _, why := range []string{said, refusal} {
		w.waitForMessage(t, space, deployment, why)
		alice.waitForDetails(t, app, why)
	}
}

// If a node is lost permanently, Kubernetes cannot know that its instances have ended, and starts no others until an
// administrator marks the node as out of service. Until then the app reports what it waits for.
func TestInstanceOfANodeThatIsGoneComesBack(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	w.fitOnlyPlayedNodes(t, space, app)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}}
	pod, node := w.awaitPod(t, space, app, ""), w.createPlayedNode(t)
	w.bind(t, pod, node)
	w.reportPod(t, pod, running)
	alice.waitUntilRunning(t, app, 1)
	// Kubernetes also deletes the Pods of a node that has not answered for five minutes. The Pod remains, because no
	// kubelet confirms its end.
	testenv.ExpectNoError(t, w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(1), client.Preconditions{UID: &pod.UID}))
	alice.waitForDetails(t, app, "kubectl taint nodes "+node+" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	testenv.ExpectPatched(t, w.Environment, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	})
	next := w.awaitPod(t, space, app, pod.UID)
	w.bind(t, next, w.createPlayedNode(t))
	w.reportPod(t, next, running)
	alice.waitUntilRunning(t, app, 1)
}

// waitForMessage waits until a CFDeployment reports why it does not proceed.
func (w *env) waitForMessage(t *testing.T, space, path, why string) {
	t.Helper()
	name := path[strings.LastIndex(path, "/")+1:]
	testenv.Eventually(t, "the deployment reports "+why, func() error {
		var d torporv1alpha1.CFDeployment
		err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, &d)
		if err == nil && !strings.Contains(d.Status.Message, why) {
			err = fmt.Errorf("found %+v", d.Status)
		}
		return err
	})
}

// waitForDetails waits until an instance reports why it does not run.
func (c caller) waitForDetails(t *testing.T, app, why string) {
	t.Helper()
	testenv.Eventually(t, "an instance reports "+why, func() error {
		a, err := c.send(t.Context(), http.MethodGet, "/v3/apps/"+app+"/processes/web/stats", "")
		if err == nil && !strings.Contains(conversation.JSONField(t, a.Body, "resources.0.details"), why) {
			err = fmt.Errorf("found %s", a.Body)
		}
		return err
	})
}

// fitOnlyPlayedNodes gives an app more memory than a node has, so that only the test assigns its instances to a
// node.
func (w *env) fitOnlyPlayedNodes(t *testing.T, space, app string) {
	t.Helper()
	process := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: revision.ProcessName(app, korifiv1alpha1.WebProcess)}}
	testenv.ExpectPatched(t, w.Environment, process, func(p *korifiv1alpha1.CFProcess) { p.Spec.MemoryMB = korifiv1alpha1.MaxMegabytes })
}

// createPlayedNode creates a node without a kubelet; the test simulates the kubelet. The scheduler assigns no Pod to
// it, because the node was never ready.
func (w *env) createPlayedNode(t *testing.T) string {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "played-" + rand.String(5)}}
	w.ExpectCreated(t, node)
	w.DeleteAfterTest(t, node)
	return node.Name
}

// awaitPod waits until the Pod of an app's only instance differs from the previous one, and returns it.
func (w *env) awaitPod(t *testing.T, space, app string, before types.UID) (pod *corev1.Pod) {
	t.Helper()
	testenv.Eventually(t, "the instance has a Pod", func() error {
		var list corev1.PodList
		if err := w.Client.List(t.Context(), &list, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}); err != nil {
			return err
		}
		at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.UID != before && p.DeletionTimestamp == nil })
		if at < 0 {
			return fmt.Errorf("found %d other Pods", len(list.Items))
		}
		pod = &list.Items[at]
		return nil
	})
	return pod
}

// bind assigns a Pod to a node, as the scheduler does.
func (w *env) bind(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	testenv.ExpectNoError(t, w.Client.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// reportPod writes the state of a Pod's container as the kubelet does; a running container is ready.
func (w *env) reportPod(t *testing.T, pod *corev1.Pod, state corev1.ContainerState) {
	t.Helper()
	is := corev1.ConditionFalse
	if state.Running != nil {
		is = corev1.ConditionTrue
	}
	testenv.Eventually(t, "the status of the Pod is written", func() error {
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodRunning
		now := metav1.NewTime(time.Now())
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}, {Type: corev1.PodReady, Status: is, LastTransitionTime: now}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: eiriniv1.ApplicationContainer, Image: pod.Spec.Containers[0].Image, Ready: state.Running != nil, State: state}}
		return w.Client.Status().Update(t.Context(), pod)
	})
}
