// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// History knows when a watch of CRDs has seen each of them established, and gone.
type History struct {
	mu          sync.Mutex
	established map[string]time.Time
	gone        map[string]time.Time
	moved       chan struct{} // closed and replaced on every event
	broken      error         // why there will be no more events
}

// Watch keeps a history until ctx ends. It sees everything that happens after it has returned.
func (c *Cluster) Watch(ctx context.Context) (*History, error) {
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	h := &History{established: map[string]time.Time{}, gone: map[string]time.Time{}, moved: make(chan struct{})}
	first, err := c.open(ctx, list.ResourceVersion)
	if err != nil {
		return nil, err
	}
	go func() { h.fail(c.follow(ctx, first, list.ResourceVersion, h)) }()
	return h, nil
}

func (c *Cluster) open(ctx context.Context, version string) (watch.Interface, error) {
	w, err := c.client.Watch(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: version},
	})
	if err != nil {
		return nil, fmt.Errorf("watch CRDs: %w", err)
	}
	return w, nil
}

// follow opens the watch again where the server has ended it.
func (c *Cluster) follow(ctx context.Context, w watch.Interface, version string, h *History) error {
	for {
		for event := range w.ResultChan() {
			at := time.Now()
			if event.Type == watch.Error {
				w.Stop()
				return fmt.Errorf("watch CRDs: %w", k8serrors.FromObject(event.Object))
			}
			if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok {
				version = crd.ResourceVersion
				h.note(crd, event.Type == watch.Deleted, at)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if w, err = c.open(ctx, version); err != nil {
			return err
		}
	}
}

func (h *History) note(crd *apiextensionsv1.CustomResourceDefinition, gone bool, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gone {
		h.gone[crd.Name] = at
		delete(h.established, crd.Name)
	} else if _, known := h.established[crd.Name]; !known && isEstablished(crd) {
		h.established[crd.Name] = at
		delete(h.gone, crd.Name)
	}
	close(h.moved)
	h.moved = make(chan struct{})
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func (h *History) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = err
	close(h.moved)
	h.moved = make(chan struct{})
}

// Established waits for, and returns, the moment at which the kind's CRD was seen established.
func (h *History) Established(ctx context.Context, kind schema.GroupVersionKind) (time.Time, error) {
	return h.await(ctx, h.established, kind, "established")
}

// Gone waits for, and returns, the moment at which the kind's CRD was seen deleted.
func (h *History) Gone(ctx context.Context, kind schema.GroupVersionKind) (time.Time, error) {
	return h.await(ctx, h.gone, kind, "gone")
}

func (h *History) await(ctx context.Context, from map[string]time.Time, kind schema.GroupVersionKind, what string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		h.mu.Lock()
		at, ok := from[CRDName(kind)]
		moved, broken := h.moved, h.broken
		h.mu.Unlock()
		if ok {
			return at, nil
		}
		if broken != nil {
			return at, broken
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return at, fmt.Errorf("wait until the CRD of %s is %s: %w", kind.Kind, what, context.Cause(ctx))
		}
	}
}
