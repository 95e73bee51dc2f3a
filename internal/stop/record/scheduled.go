// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxScheduledAnnotation is the maximum number of bytes of an annotation with a ScheduledStop.
	maxScheduledAnnotation = 32 << 10
	// maxSlumbers is the maximum number of Slumbers whose annotations are read.
	maxSlumbers = 20
)

// ReadScheduled returns at most maxSlumbers ScheduledStops in the annotations of an object, sorted by the name of their
// Slumber. It ignores an annotation that is malformed or too large, or whose value is about another Slumber than its
// key.
func ReadScheduled(annotations map[string]string) []torporv1alpha1.ScheduledStop {
	return readScheduledExcept(nil, annotations)
}

// readScheduledExcept is like ReadScheduled, but omits the Slumbers of known. It must be cheap, because it is called
// for each event of a member.
func readScheduledExcept(known []torporv1alpha1.ScheduledStop, annotations map[string]string) (stops []torporv1alpha1.ScheduledStop) {
	for name, text := range annotations {
		slumber, isSlumber := strings.CutPrefix(name, torporv1alpha1.SlumberAnnotationPrefix)
		isKnown := isSlumber && slices.ContainsFunc(known, func(s torporv1alpha1.ScheduledStop) bool { return s.Slumber == slumber })
		if !isSlumber || isKnown || len(text) > maxScheduledAnnotation {
			continue
		}
		var stop torporv1alpha1.ScheduledStop
		if json.Unmarshal([]byte(text), &stop) == nil && stop.Slumber == slumber {
			stops = append(stops, stop)
		}
	}
	slices.SortFunc(stops, func(a, b torporv1alpha1.ScheduledStop) int { return strings.Compare(a.Slumber, b.Slumber) })
	return stops[:min(len(stops), maxSlumbers)]
}

// NameSlumber returns the kind and the name of the Slumber or ClusterSlumber that is recorded in a ScheduledStop.
func NameSlumber(recorded string) string {
	if name, isOfCluster := strings.CutPrefix(recorded, torporv1alpha1.ClusterSlumberPrefix); isOfCluster {
		return "ClusterSlumber " + name
	}
	return "Slumber " + recorded
}

// ListScheduled returns all ScheduledStops of an object: those in status.scheduledStops, and those that only an
// annotation holds. Another project's CRD drops the status field, but keeps the annotations.
func ListScheduled(inStatus []torporv1alpha1.ScheduledStop, annotations map[string]string) []torporv1alpha1.ScheduledStop {
	return append(slices.Clip(inStatus), readScheduledExcept(inStatus, annotations)...)
}

// ScheduledAnnotation returns the annotation in which a Slumber keeps its ScheduledStop. An empty ScheduledStop has an
// empty value.
func ScheduledAnnotation(stop torporv1alpha1.ScheduledStop, slumber string) (name, value string, err error) {
	name = torporv1alpha1.SlumberAnnotationPrefix + slumber
	if stop.Slumber == "" {
		return name, "", nil
	}
	data, err := json.Marshal(stop)
	if err != nil {
		return name, "", fmt.Errorf("encode a stop: %w", err)
	}
	return name, string(data), nil
}

// FindScheduled returns the first ScheduledStop that is in effect for an object now; nil if none exists.
func FindScheduled(inStatus []torporv1alpha1.ScheduledStop, annotations map[string]string, now time.Time) *torporv1alpha1.ScheduledStop {
	return FindHolding(ListScheduled(inStatus, annotations), annotations, now)
}

// FindHolding returns the first of the stops that is in effect; nil if there is none. A stop that has expired is not in
// effect, so that an object starts even if no controller reconciles Slumbers. No stop is in effect while the annotation
// torpor.dev/skip-until exempts the object from Slumbers.
func FindHolding(stops []torporv1alpha1.ScheduledStop, annotations map[string]string, now time.Time) *torporv1alpha1.ScheduledStop {
	if skippedUntil, _ := ReadSkip(annotations); now.Before(skippedUntil) {
		return nil
	}
	for i, stop := range stops {
		if Records(stop.Stops).Holds() && (stop.ExpiresAt == nil || now.Before(stop.ExpiresAt.Time)) {
			return &stops[i]
		}
	}
	return nil
}

// ScheduledEnd returns when the Slumber's stop in effect expires; zero if no stop is in effect or it never expires.
func ScheduledEnd(inStatus []torporv1alpha1.ScheduledStop, annotations map[string]string, now time.Time) time.Time {
	if scheduled := FindScheduled(inStatus, annotations, now); scheduled != nil && scheduled.ExpiresAt != nil {
		return scheduled.ExpiresAt.Time
	}
	return time.Time{}
}

// ReadSkip returns the time until which the object is exempt from Slumbers; zero without the annotation. It returns
// an error if the annotation is invalid.
func ReadSkip(annotations map[string]string) (time.Time, error) {
	text := annotations[torporv1alpha1.SkipUntilAnnotation]
	if text == "" {
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: expected a time such as 2026-11-20T22:00:00Z, found %.40q; correct or remove it", torporv1alpha1.SkipUntilAnnotation, text)
	}
	return until, nil
}
