// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	// StopValue is the only value of the stop annotations that requests a stop.
	StopValue = "true"
	// refuseSeverity is the severity of the findings because of which kubectl moco refuses a start without --force.
	refuseSeverity = "refuse"
)

// Part describes a part of a MySQLCluster that users can stop and start.
type Part struct {
	stoprecord.AnnotationSwitch
	// PartName is "clustering" or "reconciliation".
	PartName string
	// Condition is the type of the condition that reports the state of the part.
	Condition string
	// Controllers is the name, as in the flag --controllers, of the controllers that act on the part.
	Controllers string
}

// ClusteringPart returns the part that performs failovers and switchovers and repairs replication.
func ClusteringPart() Part {
	return Part{ClusteringSwitch(), "clustering", mocov1beta2.ClusteringActiveCondition, "clustering"}
}

// ReconciliationPart returns the part that applies the spec to other objects.
func ReconciliationPart() Part {
	return Part{ReconciliationSwitch(), "reconciliation", mocov1beta2.ReconciliationActiveCondition, "provisioning"}
}

// ListParts returns the parts that users can stop and start.
func ListParts() []Part { return []Part{ClusteringPart(), ReconciliationPart()} }

// IsRefusal reports whether kubectl moco refuses a start without --force because of a finding. The manager refuses a
// start because of most of these findings.
func IsRefusal(f mocov1beta2.StartFinding) bool { return f.Severity == refuseSeverity }

// IsStopped reports whether a stop of the part is requested. Only StopValue requests it.
func (p Part) IsStopped(annotations map[string]string) bool { return annotations[p.Name] == StopValue }

// IsStartRefused reports whether the manager keeps the part stopped although a stop is no longer requested.
func (p Part) IsStartRefused(c *mocov1beta2.MySQLCluster) bool {
	return p == ClusteringPart() && p.ReadCondition(c).Reason == mocov1beta2.StartRefusedReason
}

// isOver reports whether a part's stop has expired.
func (p Part) isOver(annotations map[string]string, now time.Time) bool {
	until, err := time.Parse(time.RFC3339, annotations[p.UntilAnnotation(annotations)])
	return err == nil && !now.Before(until)
}

// ReadCondition returns the part's condition in a status, or Unknown if the condition is missing.
func (p Part) ReadCondition(c *mocov1beta2.MySQLCluster) metav1.Condition {
	for _, found := range c.Status.Conditions {
		if found.Type == p.Condition {
			return found
		}
	}
	return metav1.Condition{Type: p.Condition, Status: metav1.ConditionUnknown, Message: "nothing is reported yet"}
}

// readState derives the part's state from the requested and the reported state.
func (p Part) readState(c *mocov1beta2.MySQLCluster) string {
	asked, found := p.IsStopped(c.Annotations) || p.IsStartRefused(c), p.ReadCondition(c).Status
	switch {
	case found == metav1.ConditionUnknown && !asked:
		return "unknown"
	case asked && found == metav1.ConditionFalse:
		return "stopped"
	case asked:
		return "stopping"
	case found == metav1.ConditionFalse:
		return "starting"
	default:
		return "running"
	}
}

// StartCommand returns the command that starts the part. The command contains the namespace of the cluster, so the
// current namespace does not matter.
func (p Part) StartCommand(c *mocov1beta2.MySQLCluster) string {
	return fmt.Sprintf("kubectl moco start -n %s %s %s", c.Namespace, p.PartName, c.Name)
}

// PartRequest is a request to stop or start a part. Reason and Until are nil if the user does not set them.
type PartRequest struct {
	Part          Part
	IsStop        bool
	Reason, Until *string
}

// AnnotationChange describes the effect of a request on annotations.
type AnnotationChange struct {
	// Annotations holds the annotations after the change.
	Annotations map[string]string
	// AlreadyDone is true if the part was already in the requested state.
	AlreadyDone bool
	// RemovedValue is the previous value of the part's stop annotation if it did not stop the part, or its stop had
	// expired.
	RemovedValue string
}

// ChangeAnnotations returns the effect of the request. A part's own reason and end are removed with its stop. The
// shared reason and end are removed with the last stop.
func (r PartRequest) ChangeAnnotations(annotations map[string]string, now time.Time) AnnotationChange {
	c := AnnotationChange{Annotations: maps.Clone(annotations)}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	// An expired stop may end at any moment. A new stop replaces it, and does not keep the expired end.
	was := r.Part.IsStopped(annotations) && (!r.IsStop || !r.Part.isOver(annotations, now))
	value, found := annotations[r.Part.Name]
	c.AlreadyDone = was == r.IsStop
	if found && !was {
		c.RemovedValue = value
	}
	delete(c.Annotations, r.Part.Name)
	isAnother := r.IsStop && !was || !r.IsStop && found
	isAlone := !isAnythingStopped(c.Annotations, now)
	if isAnother {
		delete(c.Annotations, r.Part.Reason)
		delete(c.Annotations, r.Part.Until)
	}
	if isAlone && (isAnother || r.Reason != nil) {
		delete(c.Annotations, torporv1alpha1.ReasonAnnotation)
	}
	if isAlone && (isAnother || r.Until != nil) {
		delete(c.Annotations, torporv1alpha1.UntilAnnotation)
	}
	if r.IsStop {
		c.Annotations[r.Part.Name] = StopValue
	}
	if r.Part == ClusteringPart() {
		delete(c.Annotations, mocov1beta2.LookRequestedAnnotation)
		delete(c.Annotations, mocov1beta2.ForceStartAnnotation)
	}
	setOrDelete(c.Annotations, r.Part.Reason, r.Reason)
	setOrDelete(c.Annotations, r.Part.Until, r.Until)
	return c
}

// isAnythingStopped reports whether a stop is requested that has not expired.
func isAnythingStopped(annotations map[string]string, now time.Time) bool {
	for _, p := range ListParts() {
		if p.IsStopped(annotations) && !p.isOver(annotations, now) {
			return true
		}
	}
	return HasStoppedInstances(annotations)
}

func setOrDelete(annotations map[string]string, name string, value *string) {
	switch {
	case value == nil:
	case *value == "":
		delete(annotations, name)
	default:
		annotations[name] = *value
	}
}

// PartState describes the state of a part of a MySQLCluster that can be stopped.
type PartState struct {
	Part
	// State is running, stopping, stopped, starting or unknown.
	State string
	// Stop is the recorded stop. It is nil if no stop is in effect.
	Stop *mocov1beta2.Stop
	// Message is the message of the part's condition.
	Message string
	// Refusal is the reason why the manager refuses to start a part whose stop is no longer requested. It is empty if
	// the start is not refused.
	Refusal string
	// Next describes what the user has to do next, or what Torpor does next. It is empty if nothing is left to do.
	Next string
}

// DescribeParts returns the states of clustering and reconciliation. At most one of them has Next: reconciliation if
// clustering runs and reconciliation does not, otherwise clustering.
func DescribeParts(c *mocov1beta2.MySQLCluster) (clustering, reconciliation PartState) {
	var noted mocov1beta2.Pause
	if c.Status.Pause != nil {
		noted = *c.Status.Pause
	}
	clustering, reconciliation = ClusteringPart().describe(c, noted.Clustering), ReconciliationPart().describe(c, noted.Reconciliation)
	if clustering.IsStartRefused(c) {
		clustering.Refusal = clustering.Message
	}
	next := nextStep(c, clustering, reconciliation, noted)
	if clustering.State == "running" && reconciliation.State != "running" {
		reconciliation.Next = next
	} else {
		clustering.Next = next
	}
	return clustering, reconciliation
}

func (p Part) describe(c *mocov1beta2.MySQLCluster, stop *mocov1beta2.Stop) PartState {
	return PartState{Part: p, State: p.readState(c), Stop: stop, Message: p.ReadCondition(c).Message}
}

// hasEnd reports whether the recorded stop of a part has an end time.
func (s PartState) hasEnd() bool { return s.Stop != nil && s.Stop.Until != nil }

// nextStep returns the next step of the user or of Torpor.
func nextStep(c *mocov1beta2.MySQLCluster, clustering, reconciliation PartState, noted mocov1beta2.Pause) string {
	for _, p := range ListParts() {
		if value, found := c.Annotations[p.Name]; found && value != StopValue {
			return fmt.Sprintf("the annotation %s=%q stops nothing; remove it: %s", p.Name, value, p.StartCommand(c))
		}
	}
	harmful := slices.IndexFunc(noted.StartFindings, IsRefusal)
	switch {
	case noted.Quiescing != "":
		return "wait until this operation reaches a safe point: " + noted.Quiescing
	case harmful >= 0:
		return "before a start: " + noted.StartFindings[harmful].Message + ": " + noted.StartFindings[harmful].Remedy
	case clustering.State == "stopped" && !clustering.hasEnd():
		return clustering.StartCommand(c)
	case reconciliation.State == "stopped" && !reconciliation.hasEnd():
		return reconciliation.StartCommand(c)
	case clustering.State == "stopped" || reconciliation.State == "stopped":
		return stoprecord.StartsByItself
	}
	for _, s := range c.Status.Instances {
		if s.Message != "" {
			return s.Message
		}
	}
	return ""
}
