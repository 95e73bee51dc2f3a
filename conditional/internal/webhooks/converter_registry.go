// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// converterRegistry has the converters of the groups before those of the outer manager. controller-runtime's own takes each
// kind once, and nothing while it serves: it has no lock.
type converterRegistry struct {
	groups *Multiplexer
	outer  conversion.Registry
}

// ConverterRegistry returns a registry where the last converter of a kind counts, and stays when its group stops.
func (m *Multiplexer) ConverterRegistry(outer conversion.Registry) conversion.Registry {
	return converterRegistry{groups: m, outer: outer}
}

// RegisterConverter replaces the converter that an earlier start of a group has registered.
func (r converterRegistry) RegisterConverter(kind schema.GroupKind, converter conversion.Converter) error {
	if _, outside := r.outer.GetConverter(kind); outside {
		return fmt.Errorf("expected no other converter of %s, found one that was registered outside of conditional groups: register one of the two only", kind)
	}
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	r.groups.converters[kind] = converter
	return nil
}

// GetConverter returns the converter of a kind.
func (r converterRegistry) GetConverter(kind schema.GroupKind) (conversion.Converter, bool) {
	r.groups.mu.RLock()
	converter, ok := r.groups.converters[kind]
	r.groups.mu.RUnlock()
	if ok {
		return converter, true
	}
	return r.outer.GetConverter(kind)
}
