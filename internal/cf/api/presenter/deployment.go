// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// DeploymentResponse is a deployment of CF v3.
type DeploymentResponse struct {
	Resource
	Status       DeploymentStatus  `json:"status"`
	Strategy     string            `json:"strategy"`
	Options      DeploymentOptions `json:"options"`
	Droplet      Reference         `json:"droplet"`
	NewProcesses []struct{}        `json:"new_processes"`
	// Revision is the revision that the deployment has started. It is null until then.
	Revision      *DeployedRevision `json:"revision"`
	Relationships AppRelationship   `json:"relationships"`
	Metadata      Metadata          `json:"metadata"`
	Links         Links             `json:"links"`
}

// DeploymentOptions holds the options of a deployment.
type DeploymentOptions struct {
	MaxInFlight int32          `json:"max_in_flight"`
	Canary      *CanaryOptions `json:"canary,omitempty"`
}

// CanaryOptions holds the steps at which a canary pauses.
type CanaryOptions struct {
	Steps []CanaryStep `json:"steps"`
}

// CanaryStep is a share of the instances, in percent.
type CanaryStep struct {
	InstanceWeight int32 `json:"instance_weight"`
}

// DeploymentStatus describes the progress of a deployment.
type DeploymentStatus struct {
	Value   string            `json:"value"`
	Reason  string            `json:"reason"`
	Details map[string]string `json:"details"`
	Canary  *CanaryStatus     `json:"canary,omitempty"`
}

// CanaryStatus describes the progress of a canary.
type CanaryStatus struct {
	Steps CanaryProgress `json:"steps"`
}

// CanaryProgress holds the number of a canary's current step, beginning with 1, and the total number of steps.
type CanaryProgress struct {
	Current int32 `json:"current"`
	Total   int32 `json:"total"`
}

// DeployedRevision is a revision of an app.
type DeployedRevision struct {
	GUID    string `json:"guid"`
	Version int64  `json:"version"`
}

// IsFinal reports whether the deployment has finished with any result.
func (s DeploymentStatus) IsFinal() bool {
	return s.Value == string(torporv1alpha1.FinalizedDeployment)
}

// IsPaused reports whether the deployment waits until the user continues it.
func (s DeploymentStatus) IsPaused() bool { return s.Reason == string(torporv1alpha1.PausedState) }

// ForDeployment returns the CF v3 response for a deployment.
func ForDeployment(base string, d *torporv1alpha1.CFDeployment) DeploymentResponse {
	app, self := d.Spec.AppRef.Name, base+"/v3/deployments/"+d.Name
	shown := DeploymentResponse{
		Resource:     Resource{GUID: d.Name, CreatedAt: FormatTime(d.CreationTimestamp.Time), UpdatedAt: FormatTime(lastStatusChange(d))},
		Strategy:     string(cmp.Or(d.Spec.Strategy, torporv1alpha1.RollingDeployment)),
		Options:      DeploymentOptions{MaxInFlight: max(1, d.Spec.MaxInFlight)},
		Status:       ForDeploymentStatus(d),
		NewProcesses: []struct{}{}, Relationships: AppRelationship{App: RelationshipTo(app)}, Metadata: metadataOf(d),
		Links: Links{
			"self": {HRef: self}, "app": {HRef: base + "/v3/apps/" + app},
			"cancel": {HRef: self + "/actions/cancel", Method: "POST"}, "continue": {HRef: self + "/actions/continue", Method: "POST"},
		},
	}
	if d.Spec.DropletRef != nil {
		shown.Droplet = Reference{GUID: d.Spec.DropletRef.Name}
	}
	if n := d.Status.Revision; n != 0 {
		shown.Revision = &DeployedRevision{GUID: RevisionGUID(app, n), Version: n}
	}
	if d.Spec.Strategy == torporv1alpha1.CanaryDeployment {
		shown.Options.Canary = &CanaryOptions{Steps: make([]CanaryStep, 0, len(d.Spec.Steps))}
		for _, step := range d.Spec.Steps {
			shown.Options.Canary.Steps = append(shown.Options.Canary.Steps, CanaryStep{InstanceWeight: step.InstanceWeight})
		}
	}
	return shown
}

// ForDeploymentStatus returns the status of a deployment in the format of CF v3.
func ForDeploymentStatus(d *torporv1alpha1.CFDeployment) DeploymentStatus {
	s := DeploymentStatus{
		Value:   string(cmp.Or(d.Status.Value, torporv1alpha1.ActiveDeployment)),
		Reason:  string(cmp.Or(d.Status.Reason, torporv1alpha1.DeployingState)),
		Details: map[string]string{"last_status_change": FormatTime(lastStatusChange(d))},
	}
	// If the controller has not observed the last change yet, the response reflects the requested change. So a canary
	// that has just been continued is no longer reported as paused.
	if d.Status.ObservedGeneration < d.Generation && !s.IsFinal() {
		if s.Reason = string(torporv1alpha1.DeployingState); d.Spec.Cancelled {
			s.Reason = string(torporv1alpha1.CancelingState)
		}
	}
	if d.Status.TotalSteps > 0 {
		s.Canary = &CanaryStatus{Steps: CanaryProgress{Current: d.Status.CurrentStep, Total: d.Status.TotalSteps}}
	}
	return s
}

func lastStatusChange(d *torporv1alpha1.CFDeployment) time.Time {
	if d.Status.LastChange != nil {
		return d.Status.LastChange.Time
	}
	return d.CreationTimestamp.Time
}
