// SPDX-License-Identifier: Apache-2.0

package task

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// taskType is the process type of tasks in their environment.
const taskType = "task"

// BuildJob returns the Job for a task, which runs one Pod once. The Pod has the same restrictions as the instances of
// the app.
func BuildJob(o Observed, options lrp.PodOptions) *batchv1.Job {
	t := o.Task
	current, _, _ := revision.ReadRevision(o.App)
	spec := lrp.BuildPodSpec(&eiriniv1.LRP{Spec: eiriniv1.LRPSpec{
		GUID: t.Name, ProcessType: taskType, AppName: o.App.Spec.DisplayName, AppGUID: o.App.Name, SpaceGUID: t.Namespace, Version: revision.FormatRevision(current),
		Image: o.Droplet.Registry.Image, ImagePullSecrets: o.Droplet.Registry.ImagePullSecrets,
		Command: process.WrapCommand(o.App.Spec.Lifecycle.Type, t.Spec.Command), MemoryMB: t.Status.MemoryMB, DiskMB: t.Status.DiskQuotaMB,
	}}, options)
	spec.RestartPolicy, spec.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: t.Name}}}}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: dependentMeta(t),
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: dependentMeta(t).Labels}, Spec: spec},
		},
	}
}

// BuildSecret returns the Secret with a task's environment at the time when its Job was created.
func BuildSecret(t *korifiv1alpha1.CFTask, environment map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: dependentMeta(t), Immutable: new(true), Data: environment}
}

func dependentMeta(t *korifiv1alpha1.CFTask) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: t.Namespace, Name: t.Name, Labels: map[string]string{korifiv1alpha1.TaskGUIDLabel: t.Name, korifiv1alpha1.SpaceGUIDLabel: t.Namespace},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, korifiv1alpha1.CFTaskKind())},
	}
}
