// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/conditional/internal/refreshclient"
)

// scopedMapper answers without a request for kinds that the detector knows, and asks discovery for others.
type scopedMapper struct {
	*refreshclient.Mapper
	cache *scopedCache
}

func (v *scopedCache) newMapper(cfg *rest.Config, hc *http.Client) (*scopedMapper, error) {
	open := v.managerCache.ScopeSettings().NewMapper
	lookUp, err := refreshclient.NewMapper(func() (meta.RESTMapper, error) { return open(cfg, hc) })
	return &scopedMapper{lookUp, v}, err
}

// RESTMapping returns where the API server has a kind.
func (m *scopedMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	for _, version := range versions {
		kind, known, err := m.cache.knownKind(gk.WithVersion(version))
		if known {
			return kind.RESTMapping(), nil
		}
		if err != nil && len(versions) == 1 {
			return nil, err
		}
	}
	return m.Mapper.RESTMapping(gk, versions...)
}
