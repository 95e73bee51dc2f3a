// SPDX-License-Identifier: Apache-2.0

package stopadapter

import (
	"fmt"
	"strings"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Release says what becomes of an object whose kind nobody stops any more, because of something that an event names. What Slumbers have stopped is as
// it was before. What a person has stopped stays so, with what is to be restored: nobody else starts it, and whoever stops the kind next goes
// on there.
func Release(o ObservedSwitch, because string) SwitchPlan {
	is := ReadSwitch(o.Object)
	s := &decisionStep{ObservedSwitch: o, is: is, next: is, annotations: map[string]string{}, plan: SwitchPlan{Rule: "released", Next: o.Object.DeepCopy()}}
	for name := range o.Object.GetAnnotations() {
		if strings.HasPrefix(name, torporv1alpha1.SlumberAnnotationPrefix) {
			s.annotations[name] = "" // Another adapter must not find the wish of a Slumber that is gone by then.
		}
	}
	s.updateRecords() // A stop whose time is over is none.
	isChanged := len(is.Saved) > 0 && !holdsAll(o.Object.Object, is.Saved)
	isLeft := s.next.Records.Holds() && len(is.Saved) > 0 && !isChanged || is.Unreadable != ""
	switch {
	case isChanged && s.beginsStop():
		s.revertOldStop()
	case isChanged:
		s.yield()
	case is.Unreadable != "":
		s.plan.Events = append(s.plan.Events, leftEvent(because, "expected "+is.Unreadable+" as Torpor wrote it, found something else; set what it should restore by hand, and remove it"))
	case isLeft:
		s.plan.Events = append(s.plan.Events, leftEvent(because, "a person has stopped it"+s.next.Records.Describe()+"; to start it, set what "+torporv1alpha1.RestoreAnnotation+" says, and remove that"))
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
	return decision.Event{Warning: true, Reason: EventLeftStopped, Action: action, Note: fmt.Sprintf("The object stays as it is although %s: %s", because, why)}
}
