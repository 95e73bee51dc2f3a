// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"regexp"
	"slices"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/requester"
)

// Notes describes the switches of a kind for which admission records the requester of a change. The policies and
// webhooks of config/record are generated from it, one for all kinds with the same policy.
type Notes struct {
	// Policy is the name of the manifests below config/record, and Path is the URL path of the webhook.
	Policy, Path string
	Switches     []NotedSwitch
	// HasRecordInAnnotations is true if annotations contain the record of stops. If a client other than the manager
	// changes these, it is replacing all annotations, as kubectl rollout undo does, and requests neither a stop nor
	// a start.
	HasRecordInAnnotations bool
}

// NotedSwitch is a switch for which admission records who changed it.
type NotedSwitch struct {
	// Annotations are the annotations of the switch. The name of the switch is empty if it is a field of the spec.
	Annotations stoprecord.AnnotationSwitch
	// SpecField is the field of the spec that is the switch; empty if the switch is an annotation.
	SpecField string
	// StoppedValue is the value of the switch on a stopped object. If it is empty, StoppedPattern is a regular
	// expression that matches such values.
	StoppedValue, StoppedPattern string
}

// ListNotes returns the notes of all kinds, one for each policy.
func (r Registry) ListNotes() (all []Notes) {
	for _, k := range r {
		n := k.Notes()
		if n != nil && !slices.ContainsFunc(all, func(other Notes) bool { return other.Policy == n.Policy }) {
			all = append(all, *n)
		}
	}
	return all
}

// NextAnnotations returns the annotations that the object gets if the request is admitted. specBefore and specSent
// are the specs of the old object and of the new one.
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
