// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper answers without a request for kinds that the detector knows. The others it looks up, as controller-runtime
// does, and forgets them when it is told.
type mapper struct {
	cfg  *rest.Config
	hc   *http.Client
	view *view
	now  atomic.Pointer[meta.RESTMapper]
}

func newMapper(cfg *rest.Config, hc *http.Client, v *view) (*mapper, error) {
	m := &mapper{cfg: cfg, hc: hc, view: v}
	return m, m.renew()
}

func (m *mapper) renew() error {
	lazy, err := apiutil.NewDynamicRESTMapper(m.cfg, m.hc)
	if err != nil {
		return err
	}
	m.now.Store(&lazy)
	return nil
}

func (m *mapper) lazy() meta.RESTMapper { return *m.now.Load() }

// RESTMapping returns where the API server has a kind.
func (m *mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	for _, version := range versions {
		kind, known, err := m.view.known(gk.WithVersion(version))
		if known {
			return kind.Mapping(), nil
		}
		if err != nil && len(versions) == 1 {
			return nil, err
		}
	}
	return m.lazy().RESTMapping(gk, versions...)
}

// RESTMappings returns all places of a kind.
func (m *mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return m.lazy().RESTMappings(gk, versions...)
}

// KindFor returns the kind of a resource.
func (m *mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return m.lazy().KindFor(resource)
}

// KindsFor returns the kinds of a resource.
func (m *mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return m.lazy().KindsFor(resource)
}

// ResourceFor completes a resource.
func (m *mapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return m.lazy().ResourceFor(input)
}

// ResourcesFor completes a resource.
func (m *mapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return m.lazy().ResourcesFor(input)
}

// ResourceSingularizer returns the singular of a resource.
func (m *mapper) ResourceSingularizer(resource string) (string, error) {
	return m.lazy().ResourceSingularizer(resource)
}
