// SPDX-License-Identifier: Apache-2.0

package refreshclient

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper is a REST mapper that can be refreshed.
type Mapper struct {
	build func() (meta.RESTMapper, error)
	now   atomic.Pointer[meta.RESTMapper]
}

// NewMapper returns a mapper that build makes, now and at every refresh.
func NewMapper(open func() (meta.RESTMapper, error)) (*Mapper, error) {
	m := &Mapper{build: open}
	return m, m.Refresh()
}

// Refresh replaces the mapper by one that knows nothing yet.
func (m *Mapper) Refresh() error {
	made, err := m.build()
	if err != nil {
		return err
	}
	m.now.Store(&made)
	return nil
}

func (m *Mapper) currentMapper() meta.RESTMapper { return *m.now.Load() }

// RESTMapping returns where the API server has a kind.
func (m *Mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.currentMapper().RESTMapping(gk, versions...)
}

// RESTMappings returns all places of a kind.
func (m *Mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return m.currentMapper().RESTMappings(gk, versions...)
}

// KindFor returns the kind of a resource.
func (m *Mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return m.currentMapper().KindFor(resource)
}

// KindsFor returns the kinds of a resource.
func (m *Mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return m.currentMapper().KindsFor(resource)
}

// ResourceFor completes a resource.
func (m *Mapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return m.currentMapper().ResourceFor(input)
}

// ResourcesFor completes a resource.
func (m *Mapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return m.currentMapper().ResourcesFor(input)
}

// ResourceSingularizer returns the singular of a resource.
func (m *Mapper) ResourceSingularizer(resource string) (string, error) {
	return m.currentMapper().ResourceSingularizer(resource)
}
