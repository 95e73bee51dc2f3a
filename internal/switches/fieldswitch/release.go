// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"fmt"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Release returns the plan for an object whose kind can no longer be stopped; the argument because is the reason that
// the event reports. An object that only Slumbers stopped is restored. A stop that a user requested remains, with its
// saved values, because only the user ends it, and the next StopAdapter of the kind uses these values.
func Release(o ObservedSwitch, because string) SwitchPlan {
	is := ReadSwitch(o.Object)
	s := &decisionStep{ObservedSwitch: o, is: is, next: is, annotations: map[string]string{}, plan: SwitchPlan{Rule: "released", Next: o.Object.DeepCopy()}}
	for name := range o.Object.GetAnnotations() {
		if strings.HasPrefix(name, torporv1alpha1.SlumberAnnotationPrefix) {
			s.annotations[name] = "" // A later StopAdapter must not find a stop by a Slumber that may no longer exist.
		}
	}
	s.updateRecords() // Withdraws a stop that has expired.
	isChanged := len(is.Saved) > 0 && !holdsAll(o.Object.Object, is.Saved)
	isLeft := s.next.Records.Holds() && len(is.Saved) > 0 && !isChanged || is.Unreadable != ""
	switch {
	case isChanged && s.beginsStop():
		s.revertOldStop()
	case isChanged:
		s.yield()
	case is.Unreadable != "":
		s.plan.Events = append(s.plan.Events, leftEvent(because, fmt.Sprintf("expected %s as written by Torpor, found other content; restore the fields by hand, and remove the annotation", is.Unreadable)))
	case isLeft:
		s.plan.Events = append(s.plan.Events, leftEvent(because, "a user has stopped the object"+s.next.Records.Describe()+"; to start the object, restore the values in "+torporv1alpha1.RestoreAnnotation+", and remove that annotation"))
	case len(is.Saved) > 0:
		s.restore()
		s.plan.Events[len(s.plan.Events)-1].Note += "; " + because
	}
	if !isLeft {
		s.annotations[torporv1alpha1.ResumedAnnotation], s.annotations[torporv1alpha1.StopRefusedAnnotation] = "", ""
	}
	s.finish()
	return s.plan
}

func leftEvent(because, why string) decision.Event {
	return decision.Event{Warning: true, Reason: EventLeftStopped, Action: action, Note: fmt.Sprintf("The object remains unchanged although %s: %s", because, why)}
}
