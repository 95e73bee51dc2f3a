// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": korifiv1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": "test", "namespace": "default"}, "spec": spec,
	}}
}

// Each is the smallest object that is accepted, and a little more.
func app() *unstructured.Unstructured {
	return object("CFApp", map[string]any{"displayName": "my-app", "desiredState": "STARTED", "lifecycle": docker()})
}

func process() *unstructured.Unstructured {
	return object("CFProcess", map[string]any{
		"appRef": map[string]any{"name": "a"}, "processType": "web", "healthCheck": map[string]any{"type": "port"},
		"desiredInstances": int64(3), "memoryMB": int64(64), "diskQuotaMB": int64(64),
	})
}

func build() *unstructured.Unstructured {
	return object("CFBuild", map[string]any{
		"packageRef": map[string]any{"name": "p"}, "appRef": map[string]any{"name": "a"}, "stagingMemoryMB": int64(1), "stagingDiskMB": int64(1), "lifecycle": docker(),
	})
}

func pack() *unstructured.Unstructured {
	return object("CFPackage", map[string]any{
		"type": "docker", "appRef": map[string]any{"name": "a"}, "source": map[string]any{"registry": map[string]any{"image": "example.com/app:1"}},
	})
}

func org() *unstructured.Unstructured {
	return object("CFOrg", map[string]any{"displayName": "my org"})
}

func space() *unstructured.Unstructured {
	return object("CFSpace", map[string]any{"displayName": "my space"})
}

func docker() map[string]any { return map[string]any{"type": "docker", "data": map[string]any{}} }

func conditions(now metav1.Time) []metav1.Condition {
	return []metav1.Condition{{
		Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: now,
		Reason: korifiv1alpha1.StartingReason, Message: "2 of 3 instances are ready",
	}}
}

func fullAppStatus(now metav1.Time) korifiv1alpha1.CFAppStatus {
	restart := korifiv1alpha1.Restart{Revision: 7, Cause: korifiv1alpha1.CausedByStop, By: "alice", At: now, Droplet: "d"}
	return korifiv1alpha1.CFAppStatus{
		Conditions: conditions(now), ObservedGeneration: 3, ObservedDesiredState: korifiv1alpha1.StartedState, ActualState: korifiv1alpha1.StartedState,
		ObservedRevision: 7, Instances: &korifiv1alpha1.InstanceCounts{Desired: 3, Ready: 2, Draining: 1},
		LastRestart: &restart, Restarts: []korifiv1alpha1.Restart{restart}, VCAPServicesSecretName: "s", VCAPApplicationSecretName: "a",
		ServiceBindings: []korifiv1alpha1.ServiceBinding{{GUID: "g", Name: new("n"), Secret: "s"}},
	}
}

func fullProcessStatus(now metav1.Time) korifiv1alpha1.CFProcessStatus {
	return korifiv1alpha1.CFProcessStatus{
		Conditions: conditions(now), ObservedGeneration: 3, ObservedRevision: 7, ActualInstances: 2, DrainingInstances: 1,
		Revisions: []korifiv1alpha1.RevisionStatus{{Revision: 6, Draining: 1}, {Revision: 7, Desired: 3, Ready: 2}},
		InstancesStatus: map[string]korifiv1alpha1.InstanceStatus{
			"0": {State: korifiv1alpha1.RunningInstance, Timestamp: &now},
			"1": {State: korifiv1alpha1.CrashedInstance, Details: "exit code 1"},
		},
	}
}

func fullBuildStatus(now metav1.Time) korifiv1alpha1.CFBuildStatus {
	return korifiv1alpha1.CFBuildStatus{
		Conditions: conditions(now), ObservedGeneration: 1, State: korifiv1alpha1.StagedBuild,
		Droplet: &korifiv1alpha1.Droplet{
			Registry: korifiv1alpha1.Registry{Image: "example.com/app:1"}, Stack: "s", Ports: []int32{8080},
			ProcessTypes: []korifiv1alpha1.ProcessType{{Type: "web", Command: "run"}},
		},
	}
}
