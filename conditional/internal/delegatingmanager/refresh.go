// SPDX-License-Identifier: Apache-2.0

package delegatingmanager

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refreshable contains the last result of build.
type refreshable[T any] struct {
	build func() (T, error)
	now   atomic.Pointer[T]
}

// Refresh replaces the value. Calls in progress continue with the old value.
func (r *refreshable[T]) Refresh() error {
	made, err := r.build()
	if err == nil {
		r.now.Store(&made)
	}
	return err
}

func (r *refreshable[T]) current() T { return *r.now.Load() }

// NewRefreshableClient returns a client that is created by build, now and at every refresh.
func NewRefreshableClient(cfg *rest.Config, opts client.Options, build client.NewClientFunc) (*RefreshableClient, error) {
	return newSwitchingClient(cfg, opts, build, func(context.Context) client.Client { return nil })
}

// newSwitchingClient returns a client whose calls in a scope use the client that inScope returns. inScope returns nil
// for a context that does not belong to a scope.
func newSwitchingClient(cfg *rest.Config, opts client.Options, build client.NewClientFunc, inScope func(context.Context) client.Client) (*RefreshableClient, error) {
	c := &RefreshableClient{opts: opts, inScope: inScope}
	c.build = func() (client.Client, error) { return build(cfg, opts) }
	return c, c.Refresh()
}

// NewRefreshableMapper returns a mapper that is created by build, now and at every refresh.
func NewRefreshableMapper(build func() (meta.RESTMapper, error)) (*RefreshableMapper, error) {
	m := &RefreshableMapper{}
	m.build = build
	return m, m.Refresh()
}

// RefreshableClient is a client that can be refreshed. Without a refresh, controller-runtime's client caches the
// resource and the scope of a kind forever.
type RefreshableClient struct {
	refreshable[client.Client]
	opts    client.Options
	inScope func(context.Context) client.Client
}

// target returns the client for a call.
func (c *RefreshableClient) target(ctx context.Context) client.Client {
	if scoped := c.inScope(ctx); scoped != nil {
		return scoped
	}
	return c.current()
}

func (c *RefreshableClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.target(ctx).Get(ctx, key, obj, opts...)
}

func (c *RefreshableClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.target(ctx).List(ctx, list, opts...)
}

func (c *RefreshableClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.target(ctx).Apply(ctx, obj, opts...)
}

func (c *RefreshableClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.target(ctx).Create(ctx, obj, opts...)
}

func (c *RefreshableClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.target(ctx).Delete(ctx, obj, opts...)
}

func (c *RefreshableClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.target(ctx).Update(ctx, obj, opts...)
}

func (c *RefreshableClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.target(ctx).Patch(ctx, obj, patch, opts...)
}

func (c *RefreshableClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return c.target(ctx).DeleteAllOf(ctx, obj, opts...)
}
func (c *RefreshableClient) Status() client.SubResourceWriter { return c.SubResource("status") }
func (c *RefreshableClient) SubResource(name string) client.SubResourceClient {
	return subResourceClient{c, name}
}
func (c *RefreshableClient) Scheme() *runtime.Scheme     { return c.opts.Scheme }
func (c *RefreshableClient) RESTMapper() meta.RESTMapper { return c.opts.Mapper }
func (c *RefreshableClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return c.current().GroupVersionKindFor(obj)
}

func (c *RefreshableClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return c.current().IsObjectNamespaced(obj)
}

// subResourceClient selects the client at each call, because callers may store it.
type subResourceClient struct {
	client *RefreshableClient
	name   string
}

func (s subResourceClient) target(ctx context.Context) client.SubResourceClient {
	return s.client.target(ctx).SubResource(s.name)
}

func (s subResourceClient) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.target(ctx).Get(ctx, obj, sub, opts...)
}

func (s subResourceClient) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.target(ctx).Create(ctx, obj, sub, opts...)
}

func (s subResourceClient) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.target(ctx).Update(ctx, obj, opts...)
}

func (s subResourceClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.target(ctx).Patch(ctx, obj, patch, opts...)
}

func (s subResourceClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.target(ctx).Apply(ctx, obj, opts...)
}

// RefreshableMapper is a REST mapper that can be refreshed.
type RefreshableMapper struct{ refreshable[meta.RESTMapper] }

func (m *RefreshableMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.current().RESTMapping(gk, versions...)
}

func (m *RefreshableMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return m.current().RESTMappings(gk, versions...)
}

func (m *RefreshableMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return m.current().KindFor(resource)
}

func (m *RefreshableMapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return m.current().KindsFor(resource)
}

func (m *RefreshableMapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return m.current().ResourceFor(input)
}

func (m *RefreshableMapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return m.current().ResourcesFor(input)
}

func (m *RefreshableMapper) ResourceSingularizer(resource string) (string, error) {
	return m.current().ResourceSingularizer(resource)
}
