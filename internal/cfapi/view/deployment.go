// SPDX-License-Identifier: Apache-2.0

package view

import (
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// Deployment is a deployment of CF v3.
type Deployment struct {
	GUID         string            `json:"guid"`
	CreatedAt    string            `json:"created_at"`
	UpdatedAt    string            `json:"updated_at"`
	Status       DeploymentStatus  `json:"status"`
	Strategy     string            `json:"strategy"`
	Options      DeploymentOptions `json:"options"`
	Droplet      GUID              `json:"droplet"`
	NewProcesses []struct{}        `json:"new_processes"`
	// Revision is that of the app which the deployment brings.
	Revision      DeployedRevision `json:"revision"`
	Relationships ToApp            `json:"relationships"`
	Metadata      Metadata         `json:"metadata"`
	Links         Links            `json:"links"`
}

// DeploymentOptions are how many instances are replaced at once.
type DeploymentOptions struct {
	MaxInFlight int32 `json:"max_in_flight"`
}

// DeploymentStatus is how far a deployment is.
type DeploymentStatus struct {
	Value   string            `json:"value"`
	Reason  string            `json:"reason"`
	Details map[string]string `json:"details"`
}

// DeployedRevision is a revision of an app.
type DeployedRevision struct {
	GUID    string `json:"guid"`
	Version int64  `json:"version"`
}

// Over says that nothing more comes of a deployment.
func (s DeploymentStatus) Over() bool { return s.Value == finalized }

const (
	active    = "ACTIVE"
	finalized = "FINALIZED"
)

// DeploymentOf shows a deployment of an app. One that the app has gone past is superseded.
func DeploymentOf(base, guid string, app *korifiv1alpha1.CFApp, processes []*korifiv1alpha1.CFProcess) Deployment {
	revision, _, _ := restart.RevisionOf(app)
	at := changed(app)
	return Deployment{
		GUID: guid, CreatedAt: at, UpdatedAt: at, Status: deploymentStatus(guid, app, processes), Strategy: "rolling",
		Options: DeploymentOptions{MaxInFlight: 1}, Droplet: GUID{GUID: app.Annotations[torporv1alpha1.DropletAnnotation]}, NewProcesses: []struct{}{},
		Revision: DeployedRevision{GUID: RevisionGUID(app.Name, revision), Version: revision}, Relationships: ToApp{App: To(app.Name)},
		Links: Links{
			"self": {HRef: base + "/v3/deployments/" + guid}, "app": {HRef: base + "/v3/apps/" + app.Name},
			"cancel": {HRef: base + "/v3/deployments/" + guid + "/actions/cancel", Method: "POST"},
		},
	}
}

func deploymentStatus(guid string, app *korifiv1alpha1.CFApp, processes []*korifiv1alpha1.CFProcess) DeploymentStatus {
	annotations := app.Annotations
	over := app.Spec.DesiredState != korifiv1alpha1.StartedState || annotations[torporv1alpha1.CauseAnnotation] != string(korifiv1alpha1.CausedByDeployment)
	is := func(value, reason string) DeploymentStatus {
		return DeploymentStatus{Value: value, Reason: reason, Details: map[string]string{"last_status_change": changed(app)}}
	}
	switch {
	case annotations[torporv1alpha1.DeploymentAnnotation] != guid || over:
		return is(finalized, "SUPERSEDED")
	case annotations[torporv1alpha1.CancelledDeploymentAnnotation] == guid && alone(app, processes, false):
		return is(finalized, "CANCELED")
	case annotations[torporv1alpha1.CancelledDeploymentAnnotation] == guid:
		return is(active, "CANCELING")
	case alone(app, processes, true):
		return is(finalized, "DEPLOYED")
	case paused(processes):
		return is(active, "PAUSED")
	default:
		return is(active, "DEPLOYING")
	}
}

// alone: of every process one revision is left; with current it has to be the app's own, with all its instances ready.
func alone(app *korifiv1alpha1.CFApp, processes []*korifiv1alpha1.CFProcess, current bool) bool {
	revision, _, _ := restart.RevisionOf(app)
	for _, p := range processes {
		if !reports(app, p) || len(p.Status.Revisions) > 1 {
			return false
		}
		if current && p.Status.ActualInstances < restart.DesiredInstances(p) {
			return false
		}
		for _, r := range p.Status.Revisions {
			if current && r.Revision != revision {
				return false
			}
		}
	}
	return len(processes) > 0
}

func paused(processes []*korifiv1alpha1.CFProcess) bool {
	for _, p := range processes {
		for _, c := range p.Status.Conditions {
			if c.Type == korifiv1alpha1.ReadyCondition && c.Reason == korifiv1alpha1.DeploymentPausedReason {
				return true
			}
		}
	}
	return false
}
