// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Change is a start, a stop, or an extension of a stop that a user requests for a part of an object.
type Change struct {
	// IsStart requests a start. IsExtension postpones the end of a stop. Otherwise a stop is requested.
	IsStart, IsExtension bool
	// Reason and Until are the reason and the end of the stop; nil if the user does not set them.
	Reason, Until *string
	// With is namespace/NAME if the user stops the whole namespace.
	With string
}

// Apply writes the change into an object. before is the row of the part before the change, and now the time of the
// request.
func (c Change) Apply(obj Object, part Part, before Row, now time.Time) error {
	present := obj.GetAnnotations()[part.Annotations.Until]
	switch {
	case c.IsStart:
		part.Start(obj, now)
		SetAnnotation(obj, torporv1alpha1.StoppedWithAnnotation, "")
		return nil
	case !c.IsExtension && !before.IsAsked: // Drop the reason and the end of an earlier stop.
		part.Stop(obj, now)
		SetAnnotation(obj, torporv1alpha1.StoppedWithAnnotation, c.With)
	}
	if c.Reason != nil {
		SetAnnotation(obj, part.Annotations.Reason, *c.Reason)
	}
	if c.Until != nil {
		text, err := c.untilText(present, before.Stops, now)
		if err != nil {
			return err
		}
		SetAnnotation(obj, part.Annotations.Until, text)
	}
	return nil
}

// untilText returns the value of the annotation for the end. A word such as tomorrow is converted to a time. A
// duration is kept, because policies can evaluate it, except in two cases in which it would not count from now: the
// annotation or the record already holds the same duration, or a stop is extended. In these cases, the resulting
// time is returned.
func (c Change) untilText(present string, stops stoprecord.Records, now time.Time) (string, error) {
	until, err := stoprecord.ParseNewUntil(*c.Until, now)
	if err != nil {
		return "", err
	}
	newest := stops.RequestedStop()
	isThere := present == *c.Until || newest != nil && newest.RequestedUntil == *c.Until
	if _, err := time.ParseDuration(*c.Until); err == nil && !c.IsExtension && !isThere {
		return *c.Until, nil
	}
	return until.UTC().Format(time.RFC3339), nil
}

// of converts a function on one Go type to a function on Object.
func of[T Object](change func(T, time.Time)) func(Object, time.Time) {
	return func(obj Object, now time.Time) { change(obj.(T), now) }
}

// sharedAnnotations returns the annotations that all kinds with a single switch use for the reason and the end of a
// stop.
func sharedAnnotations() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation}
}

func removeSharedAnnotations(obj Object) {
	SetAnnotation(obj, torporv1alpha1.ReasonAnnotation, "")
	SetAnnotation(obj, torporv1alpha1.UntilAnnotation, "")
}

// SetAnnotation writes an annotation, or removes it if the value is empty.
func SetAnnotation(obj Object, name, value string) {
	annotations := obj.GetAnnotations()
	if _, isThere := annotations[name]; !isThere && value == "" {
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[name] = value; value == "" {
		delete(annotations, name)
	}
	obj.SetAnnotations(annotations)
}
