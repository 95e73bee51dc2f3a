// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/serverstate"
)

// NewCache returns a scope's cache without a manager, for a source whose kinds come and go in a cluster. It ends with
// stop, which returns when no handler runs any more.
func NewCache(cl cluster.Cluster, h *serverstate.SharedState, o Options) (_ cache.Cache, stop func(), err error) {
	life, end := context.WithCancel(context.Background())
	v := newScopedCache(life, cl, h, o)
	stop = func() { end(); v.close(); v.waitStopped() }
	if v.mapper, err = v.newMapper(cl.GetConfig(), cl.GetHTTPClient()); err != nil {
		end()
		return nil, nil, fmt.Errorf("prepare the look-up of kinds: %w", err)
	}
	v.reportError = func(err error) {
		if err != nil {
			h.Log.Error(err, "kind is not watched")
		}
	}
	v.refreshClients = func() { v.reportError(v.mapper.Refresh()) }
	// This cache has no Start: reads may begin at once.
	close(v.started)
	if err := v.watchOptionalKinds(h.Detector, o); err != nil {
		stop()
		return nil, nil, err
	}
	return v, stop, nil
}

// HoldInformers leases the informers of objs, whose kinds are the optional ones of o, each while its kind is served, so that a
// scope finds them synced. It makes no request and does not wait.
func HoldInformers(cl cluster.Cluster, h *serverstate.SharedState, o Options, objs []client.Object) (release func(), err error) {
	c, release, err := NewCache(cl, h, o)
	if err != nil {
		return nil, err
	}
	for _, obj := range objs {
		if _, err := c.GetInformer(context.Background(), obj); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}
