// SPDX-License-Identifier: Apache-2.0

package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const typed, pinned = "registry.example/shop:1", "registry.example/shop:1@sha256:abc"

func TestDropletFollowsTheAnswerOfTheRegistry(t *testing.T) {
	secrets := []corev1.LocalObjectReference{{Name: "login"}}
	dropletOf := func(image string, ports ...int32) *korifiv1alpha1.Droplet {
		return &korifiv1alpha1.Droplet{
			Registry: korifiv1alpha1.Registry{Image: image, ImagePullSecrets: secrets}, Ports: ports, ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
		}
	}
	staged := decision.True(korifiv1alpha1.StagedReason, "the droplet exists")
	missing := decision.False(korifiv1alpha1.ImageMissingReason, "expected an image, found none")
	byOthers := dropletOf("registry.example/built")
	for name, row := range map[string]struct {
		answer ImageAnswer
		status korifiv1alpha1.CFBuildStatus
		want   Plan
	}{
		"an image is pinned, and its ports are recorded": {
			answer: ImageAnswer{Image: pinned, Ports: []int32{3000, 9090}, Message: "it runs as root"},
			want: Plan{
				Droplet: dropletOf(pinned, 3000, 9090), State: korifiv1alpha1.StagedBuild, Succeeded: staged,
				Pinned: new(decision.True(korifiv1alpha1.ImagePinnedReason, "instances run "+pinned+"; the image exposes 3000 9090; it runs as root")),
			},
		},
		"an image without ports is pinned": {
			answer: ImageAnswer{Image: pinned},
			want: Plan{
				Droplet: dropletOf(pinned), State: korifiv1alpha1.StagedBuild, Succeeded: staged,
				Pinned: new(decision.True(korifiv1alpha1.ImagePinnedReason, "instances run "+pinned)),
			},
		},
		"an image is not pinned if its registry does not respond": {
			answer: ImageAnswer{Reason: korifiv1alpha1.RegistrySilentReason, Message: "no answer"},
			want: Plan{
				Droplet: dropletOf(typed), State: korifiv1alpha1.StagedBuild, Succeeded: staged,
				Pinned: new(decision.False(korifiv1alpha1.RegistrySilentReason, "nodes resolve the name of the image at each start of an instance, and EXPOSE is not read: no answer")),
			},
		},
		"a build of a missing image fails": {
			answer: ImageAnswer{Reason: missing.Reason, Message: missing.Message},
			want:   Plan{State: korifiv1alpha1.FailedBuild, Succeeded: missing},
		},
		"a failed build of a missing image stays failed": {
			status: korifiv1alpha1.CFBuildStatus{State: korifiv1alpha1.FailedBuild, Conditions: []metav1.Condition{{Type: korifiv1alpha1.SucceededCondition, Status: metav1.ConditionFalse, Reason: missing.Reason, Message: missing.Message}}},
			want:   Plan{State: korifiv1alpha1.FailedBuild, Succeeded: missing},
		},
		"an existing droplet is kept": {
			answer: ImageAnswer{Image: pinned},
			status: korifiv1alpha1.CFBuildStatus{Droplet: byOthers},
			want:   Plan{Droplet: byOthers, State: korifiv1alpha1.StagedBuild, Succeeded: staged},
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.want.Staging = decision.False(row.want.Succeeded.Reason, row.want.Succeeded.Message)
			plan := Decide(Observed{
				Build: &korifiv1alpha1.CFBuild{Status: row.status}, Answer: row.answer,
				Package: &korifiv1alpha1.CFPackage{Spec: korifiv1alpha1.CFPackageSpec{
					Type: korifiv1alpha1.DockerPackage, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: typed, ImagePullSecrets: secrets}},
				}},
			})
			if diff := cmp.Diff(row.want, plan); diff != "" {
				t.Errorf("expected another plan (-want +got):\n%s", diff)
			}
		})
	}
}
