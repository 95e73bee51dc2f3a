// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// swapping is a client that can be told to forget: controller-runtime's keeps for ever where it found a kind.
type swapping struct {
	cfg  *rest.Config
	opts client.Options
	now  atomic.Pointer[client.Client]
}

func newSwapping(cfg *rest.Config, opts client.Options) (*swapping, error) {
	s := &swapping{cfg: cfg, opts: opts}
	return s, s.renew()
}

func (s *swapping) renew() error {
	c, err := client.New(s.cfg, s.opts)
	if err != nil {
		return err
	}
	s.now.Store(&c)
	return nil
}

func (s *swapping) current() client.Client { return *s.now.Load() }

// Get reads one object.
func (s *swapping) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return s.current().Get(ctx, key, obj, opts...)
}

// List reads many objects.
func (s *swapping) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return s.current().List(ctx, list, opts...)
}

// Apply applies a configuration.
func (s *swapping) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return s.current().Apply(ctx, obj, opts...)
}

// Create creates an object.
func (s *swapping) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return s.current().Create(ctx, obj, opts...)
}

// Delete deletes an object.
func (s *swapping) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return s.current().Delete(ctx, obj, opts...)
}

// Update replaces an object.
func (s *swapping) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return s.current().Update(ctx, obj, opts...)
}

// Patch changes an object.
func (s *swapping) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return s.current().Patch(ctx, obj, patch, opts...)
}

// DeleteAllOf deletes many objects.
func (s *swapping) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return s.current().DeleteAllOf(ctx, obj, opts...)
}

// Status returns the client of the status subresource.
func (s *swapping) Status() client.SubResourceWriter { return s.SubResource("status") }

// SubResource returns the client of a subresource.
func (s *swapping) SubResource(name string) client.SubResourceClient {
	return s.current().SubResource(name)
}

// Scheme returns the scheme.
func (s *swapping) Scheme() *runtime.Scheme { return s.opts.Scheme }

// RESTMapper returns the scope's mapper.
func (s *swapping) RESTMapper() meta.RESTMapper { return s.opts.Mapper }

// GroupVersionKindFor returns the kind of an object.
func (s *swapping) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return s.current().GroupVersionKindFor(obj)
}

// IsObjectNamespaced tells the scope of an object's kind.
func (s *swapping) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return s.current().IsObjectNamespaced(obj)
}

// transport refuses requests after the scope is closed, so that no late worker reaches the API.
type transport struct {
	base http.RoundTripper
	life context.Context
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.life.Err() != nil {
		return nil, ErrClosed
	}
	if t.base == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return t.base.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below, for example to close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }
