// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// clusterPart is one of the two parts of a cluster that can be stopped.
type clusterPart struct{ name, annotation, condition string }

func clusteringPart() clusterPart {
	return clusterPart{"clustering", mocov1beta2.ClusteringStoppedAnnotation, mocov1beta2.ClusteringActiveCondition}
}

func reconciliationPart() clusterPart {
	return clusterPart{"reconciliation", mocov1beta2.ReconciliationStoppedAnnotation, mocov1beta2.ReconciliationActiveCondition}
}

// stopValue is the only value of an annotation that stops.
const stopValue = "true"

// partRequest is to stop or start a part. reason and until are nil where no flag was given.
type partRequest struct {
	part          clusterPart
	stop          bool
	reason, until *string
}

// annotationChange is what a request does to annotations.
type annotationChange struct {
	// annotations are those after the change.
	annotations map[string]string
	// alreadyDone is true if the part was as requested.
	alreadyDone bool
	// removedValue is a value that was there and did not stop anything.
	removedValue string
}

// stoppedAt reports whether the part is stopped: only by that one value, and only until the time in its annotation.
func (p clusterPart) stoppedAt(annotations map[string]string, now time.Time) bool {
	until, err := time.Parse(time.RFC3339, annotations[torporv1alpha1.UntilAnnotation])
	return annotations[p.annotation] == stopValue && (err != nil || now.Before(until))
}

// changeAnnotations returns what the request changes. Both parts share a reason and a time; they go when neither is stopped.
func (w partRequest) changeAnnotations(annotations map[string]string, now time.Time) annotationChange {
	c := annotationChange{annotations: maps.Clone(annotations)}
	if c.annotations == nil {
		c.annotations = map[string]string{}
	}
	was := w.part.stoppedAt(annotations, now)
	value, found := annotations[w.part.annotation]
	c.alreadyDone = was == w.stop
	if found && !was {
		c.removedValue = value
	}
	delete(c.annotations, w.part.annotation)
	other := clusteringPart().stoppedAt(c.annotations, now) || reconciliationPart().stoppedAt(c.annotations, now)
	if w.stop {
		c.annotations[w.part.annotation] = stopValue
	}
	if !other && (w.stop && !was || !w.stop && found) {
		delete(c.annotations, torporv1alpha1.ReasonAnnotation)
		delete(c.annotations, torporv1alpha1.UntilAnnotation)
	}
	setOrDelete(c.annotations, torporv1alpha1.ReasonAnnotation, w.reason)
	setOrDelete(c.annotations, torporv1alpha1.UntilAnnotation, w.until)
	return c
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

// parseUntil reads a time to come or a duration from now, and returns what the annotation holds.
func parseUntil(text string, now time.Time) (string, error) {
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		after, err := time.ParseDuration(text)
		if err != nil {
			return "", exit.WrongUsage("--until: expected a time such as 2026-11-20T22:00:00Z or a duration such as 40m, found %q", text)
		}
		until = now.Add(after)
	}
	if !until.After(now) {
		return "", exit.WrongUsage("--until: expected a time to come, found %s, which has passed", until.UTC().Format(time.RFC3339))
	}
	return until.UTC().Format(time.RFC3339), nil
}

// conditionOf is the part's condition in a status, Unknown while there is none.
func (p clusterPart) conditionOf(c *mocov1beta2.MySQLCluster) metav1.Condition {
	for _, found := range c.Status.Conditions {
		if found.Type == p.condition {
			return found
		}
	}
	return metav1.Condition{Type: p.condition, Status: metav1.ConditionUnknown, Message: "nothing is reported yet"}
}

// isReportedIn reports whether the status is as requested. Quiescing is neither stopped nor started.
func (w partRequest) isReportedIn(c *mocov1beta2.MySQLCluster) bool {
	found := w.part.conditionOf(c)
	if w.stop {
		return found.Status == metav1.ConditionFalse
	}
	return found.Status == metav1.ConditionTrue && found.Reason != mocov1beta2.QuiescingReason
}
