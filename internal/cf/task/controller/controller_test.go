// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// taskEnv runs Kubernetes' Job controller, but no kubelet. The test acts as the kubelet.
type taskEnv struct {
	*testenv.Environment
	namespace string
}

// TestTasksRunAsJobs runs several tasks of one app and expects a different number for each.
func TestTasksRunAsJobs(t *testing.T) {
	e := &taskEnv{Environment: testenv.StartControlPlane(t, 0)}
	e.InstallCRDs(t)
	e.namespace = e.CreateNamespace(t)
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: e.namespace, Name: "shop"})
	app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: "droplet"}
	build := &korifiv1alpha1.CFBuild{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "droplet"}, Spec: korifiv1alpha1.CFBuildSpec{
		PackageRef: korifiv1alpha1.Reference{Name: "package"}, AppRef: korifiv1alpha1.Reference{Name: "shop"}, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
	}}
	e.ExpectCreated(t, app, build)
	build.Status.Droplet, build.Status.State = &korifiv1alpha1.Droplet{Registry: korifiv1alpha1.Registry{Image: "example.com/shop:1"}}, korifiv1alpha1.StagedBuild
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), build))
	testenv.StartManager(t, e.Environment, Controller{Clock: clock.RealClock{}}.SetupWithManager)

	var tasks [3]*korifiv1alpha1.CFTask
	for i := range tasks {
		tasks[i] = &korifiv1alpha1.CFTask{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: fmt.Sprintf("task-%d", i)}}
		tasks[i].Spec.Command, tasks[i].Spec.AppRef.Name = "bin/migrate", "shop"
	}
	e.ExpectCreated(t, tasks[0], tasks[1], tasks[2])
	numbers := map[int64]bool{}
	for _, task := range tasks {
		e.waitForCondition(t, task, korifiv1alpha1.TaskStartedCondition, "")
		numbers[task.Status.SequenceID] = true
	}
	if len(numbers) != 3 || !numbers[1] || !numbers[2] || !numbers[3] {
		t.Errorf("expected the numbers 1 to 3, found %v", numbers)
	}
	e.endPod(t, tasks[0], 0)
	e.waitForCondition(t, tasks[0], korifiv1alpha1.TaskSucceededCondition, "")
	e.endPod(t, tasks[1], 7)
	e.waitForCondition(t, tasks[1], korifiv1alpha1.TaskFailedCondition, "exited with status 7")
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), tasks[2], client.RawPatch(types.MergePatchType, []byte(`{"spec":{"canceled":true}}`))))
	e.waitForCondition(t, tasks[2], korifiv1alpha1.TaskCanceledCondition, "task was cancelled")
	var jobs batchv1.JobList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &jobs, client.InNamespace(e.namespace)))
	if len(jobs.Items) != 2 {
		t.Errorf("expected the Jobs of the two tasks that ended by themselves, found %d", len(jobs.Items))
	}
}

func (e *taskEnv) waitForCondition(t *testing.T, task *korifiv1alpha1.CFTask, kind, message string) {
	t.Helper()
	testenv.Eventually(t, task.Name+" is "+kind, func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(task), task); err != nil {
			return err
		}
		c := meta.FindStatusCondition(task.Status.Conditions, kind)
		return testenv.ErrorIf(c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, message), "found %+v", task.Status)
	})
}

// endPod sets the status of a task's Pod as a kubelet does after the container has exited.
func (e *taskEnv) endPod(t *testing.T, task *korifiv1alpha1.CFTask, status int32) {
	t.Helper()
	var pods corev1.PodList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &pods, client.InNamespace(e.namespace), client.MatchingLabels{korifiv1alpha1.TaskGUIDLabel: task.Name}))
	if len(pods.Items) != 1 {
		t.Fatalf("expected one Pod, found %d", len(pods.Items))
	}
	pod := &pods.Items[0]
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if status != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status}},
	}}
	// Other controllers may change the Pod at the same time.
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}
