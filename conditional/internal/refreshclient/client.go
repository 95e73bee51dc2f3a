// SPDX-License-Identifier: Apache-2.0

// Package refreshclient has a client and a REST mapper that can be refreshed: those of controller-runtime keep for ever
// the resource and the scope that they have found for a kind.
package refreshclient

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client is a client that can be refreshed.
type Client struct {
	cfg   *rest.Config
	opts  client.Options
	build client.NewClientFunc
	now   atomic.Pointer[client.Client]
}

// NewClient returns a client that build makes, now and at every refresh.
func NewClient(cfg *rest.Config, opts client.Options, open client.NewClientFunc) (*Client, error) {
	c := &Client{cfg: cfg, opts: opts, build: open}
	return c, c.Refresh()
}

// Refresh replaces the client. Calls under way go on with the old one.
func (c *Client) Refresh() error {
	made, err := c.build(c.cfg, c.opts)
	if err != nil {
		return err
	}
	c.now.Store(&made)
	return nil
}

func (c *Client) currentClient() client.Client { return *c.now.Load() }

// Get reads one object.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.currentClient().Get(ctx, key, obj, opts...)
}

// List reads many objects.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.currentClient().List(ctx, list, opts...)
}

// Apply applies a configuration.
func (c *Client) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.currentClient().Apply(ctx, obj, opts...)
}

// Create creates an object.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.currentClient().Create(ctx, obj, opts...)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.currentClient().Delete(ctx, obj, opts...)
}

// Update replaces an object.
func (c *Client) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.currentClient().Update(ctx, obj, opts...)
}

// Patch changes an object.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.currentClient().Patch(ctx, obj, patch, opts...)
}

// DeleteAllOf deletes many objects.
func (c *Client) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return c.currentClient().DeleteAllOf(ctx, obj, opts...)
}

// Status returns the client of the status subresource.
func (c *Client) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource returns the client of a subresource.
func (c *Client) SubResource(name string) client.SubResourceClient {
	return c.currentClient().SubResource(name)
}

// Scheme returns the scheme.
func (c *Client) Scheme() *runtime.Scheme { return c.opts.Scheme }

// RESTMapper returns the mapper.
func (c *Client) RESTMapper() meta.RESTMapper { return c.opts.Mapper }

// GroupVersionKindFor returns the kind of an object.
func (c *Client) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return c.currentClient().GroupVersionKindFor(obj)
}

// IsObjectNamespaced returns whether an object's kind is namespaced.
func (c *Client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return c.currentClient().IsObjectNamespaced(obj)
}
