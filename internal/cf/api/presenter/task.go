// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// These are the states of a task in CF v3.
const (
	PendingTask   = "PENDING"
	RunningTask   = "RUNNING"
	CancelingTask = "CANCELING"
	SucceededTask = "SUCCEEDED"
	FailedTask    = "FAILED"
)

// TaskResponse is a task of CF v3.
type TaskResponse struct {
	Resource
	SequenceID    int64                   `json:"sequence_id"`
	Name          string                  `json:"name"`
	Command       string                  `json:"command"`
	State         string                  `json:"state"`
	MemoryMB      int64                   `json:"memory_in_mb"`
	DiskMB        int64                   `json:"disk_in_mb"`
	Result        TaskResult              `json:"result"`
	DropletGUID   string                  `json:"droplet_guid"`
	Relationships map[string]Relationship `json:"relationships"`
	Metadata      Metadata                `json:"metadata"`
	Links         Links                   `json:"links"`
}

// TaskResult holds the reason for a task's failure.
type TaskResult struct {
	FailureReason *string `json:"failure_reason"`
}

// ForTask returns the CF v3 response for a task.
func ForTask(base string, t *korifiv1alpha1.CFTask) TaskResponse {
	self, app := base+"/v3/tasks/"+t.Name, t.Spec.AppRef.Name
	shown := TaskResponse{
		Resource: newResource(t.Name, t.CreationTimestamp.Time), SequenceID: t.Status.SequenceID, Name: cmp.Or(t.Spec.DisplayName, t.Name), Command: t.Spec.Command,
		State: TaskState(t), MemoryMB: t.Status.MemoryMB, DiskMB: t.Status.DiskQuotaMB, DropletGUID: t.Status.DropletRef.Name,
		Relationships: map[string]Relationship{"app": RelationshipTo(app)}, Metadata: metadataOf(t),
		Links: Links{
			"self": {HRef: self}, "app": {HRef: base + "/v3/apps/" + app}, "cancel": {HRef: self + "/actions/cancel", Method: http.MethodPost},
			"droplet": {HRef: base + "/v3/droplets/" + t.Status.DropletRef.Name},
		},
	}
	if failed := meta.FindStatusCondition(t.Status.Conditions, korifiv1alpha1.TaskFailedCondition); failed != nil {
		shown.Result.FailureReason = new(failed.Message)
	}
	return shown
}

// TaskState returns the state of a task.
func TaskState(t *korifiv1alpha1.CFTask) string {
	holds := func(kind string) bool { return meta.IsStatusConditionTrue(t.Status.Conditions, kind) }
	switch {
	case holds(korifiv1alpha1.TaskSucceededCondition):
		return SucceededTask
	case holds(korifiv1alpha1.TaskFailedCondition):
		return FailedTask
	case t.Spec.Canceled:
		return CancelingTask
	case holds(korifiv1alpha1.TaskStartedCondition):
		return RunningTask
	default:
		return PendingTask
	}
}
