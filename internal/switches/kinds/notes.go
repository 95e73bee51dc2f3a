// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"regexp"
	"slices"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/requester"
)

// Notes describes which requests admission records for the objects of a kind. The policies and webhooks of config/record
// are generated from it, for all kinds of a policy at once.
type Notes struct {
	// Policy is the name of the manifests below config/record, and Path is where the webhook is served.
	Policy, Path string
	Switches     []NotedSwitch
	// HasRecordInAnnotations is true if annotations contain the record of stops. A client other than the manager that
	// changes them replaces all annotations at once, as kubectl rollout undo does, and requests nothing.
	HasRecordInAnnotations bool
}

// NotedSwitch is a switch of which admission records the requester.
type NotedSwitch struct {
	// Annotations are the annotations of the switch. Its name is empty if the switch is a field of the spec.
	Annotations stoprecord.AnnotationSwitch
	// SpecField is the field of the spec that is the switch; empty if an annotation is.
	SpecField string
	// StoppedValue is the value of the switch on a stopped object. StoppedPattern is a regular expression that matches
	// such values instead.
	StoppedValue, StoppedPattern string
}

// ListNotes returns what admission records, once for each policy.
func (r Registry) ListNotes() (all []Notes) {
	for _, k := range r {
		n := k.Notes()
		if n != nil && !slices.ContainsFunc(all, func(other Notes) bool { return other.Policy == n.Policy }) {
			all = append(all, *n)
		}
	}
	return all
}

// NextAnnotations returns the annotations with which a request for an object proceeds. specBefore and specSent are the
// specs of the old object and the new one.
func (n Notes) NextAnnotations(r requester.Request, specBefore, specSent map[string]any) map[string]string {
	if n.HasRecordInAnnotations {
		r = r.WithRecordKept()
	}
	var changes []requester.SwitchChange
	for _, s := range n.Switches {
		changes = append(changes, requester.SwitchChange{
			Of: s.Annotations, WasStopped: s.isStopped(r.Before, specBefore), IsStopped: s.isStopped(r.Sent, specSent),
		})
	}
	return r.NextAnnotations(changes...)
}

func (s NotedSwitch) isStopped(annotations map[string]string, spec map[string]any) bool {
	value := annotations[s.Annotations.Name]
	if s.SpecField != "" {
		value, _ = spec[s.SpecField].(string)
	}
	if s.StoppedPattern != "" {
		return regexp.MustCompile(s.StoppedPattern).MatchString(value)
	}
	return value == s.StoppedValue
}
