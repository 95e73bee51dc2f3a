// SPDX-License-Identifier: Apache-2.0

// Package delegatingmanager contains the manager of conditional.NewManager, with its cache, client and API reader. Calls
// with the context of a scope use the scope's instead. Scopes read the manager's options from the cache, and groups
// notify the cache when kinds appear or disappear.
package delegatingmanager

import (
	"errors"
	"fmt"
	"maps"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ScopeSettings are the options that scopes inherit from their manager.
type ScopeSettings struct {
	// Cache has all entries of ByObject, including those for kinds that the manager's own cache omits.
	Cache cache.Options
	// Client has no reader and no mapper. It has an HTTP client only if it differs from the manager's.
	Client    client.Options
	NewClient client.NewClientFunc
	NewMapper func(*rest.Config, *http.Client) (meta.RESTMapper, error)

	metricsPrefix string
}

// MetricsPrefix returns the prefix of the metric names.
func (c *Cache) MetricsPrefix() string {
	if c == nil || c.settings.metricsPrefix == "" {
		return "conditional"
	}
	return c.settings.metricsPrefix
}

// switchingManager is a manager whose client, cache and API reader switch to the scope of a call's context.
type switchingManager struct {
	manager.Manager
	apiReader client.Reader
}

func (m *switchingManager) GetAPIReader() client.Reader { return m.apiReader }

// NewManager returns a manager from which scopes inherit the options.
func NewManager(cfg *rest.Config, o manager.Options, metricsPrefix string) (manager.Manager, error) {
	mgr, err := manager.New(cfg, wrapOptions(o, metricsPrefix))
	if err != nil {
		return nil, err
	}
	c := FromCache(mgr.GetCache())
	// controller-runtime has no option for the API reader, and would cache the resources of kinds in it forever.
	direct := client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	if c.reader, err = newSwitchingClient(cfg, direct, client.New, c.apiReaderOf); err != nil {
		return nil, fmt.Errorf("create the API reader: %w", err)
	}
	return &switchingManager{mgr, c.reader}, nil
}

// wrapOptions returns the options with a mapper, a cache and a client of this package, which wrap the configured ones.
func wrapOptions(o manager.Options, metricsPrefix string) manager.Options {
	newMapper, newCache, newClient := o.MapperProvider, o.NewCache, o.NewClient
	if newMapper == nil {
		newMapper = apiutil.NewDynamicRESTMapper
	}
	if newCache == nil {
		newCache = cache.New
	}
	if newClient == nil {
		newClient = client.New
	}
	o.MapperProvider = func(cfg *rest.Config, hc *http.Client) (meta.RESTMapper, error) {
		return NewRefreshableMapper(func() (meta.RESTMapper, error) { return newMapper(cfg, hc) })
	}
	o.NewCache = func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		return wrapCache(cfg, opts, newCache, ScopeSettings{NewMapper: newMapper, NewClient: newClient, metricsPrefix: metricsPrefix})
	}
	o.NewClient = wrapClient
	return o
}

// wrapCache creates the manager's cache without the entries of ByObject for kinds that are not served now. With these
// entries, controller-runtime's cache would fail.
func wrapCache(cfg *rest.Config, opts cache.Options, open cache.NewCacheFunc, s ScopeSettings) (cache.Cache, error) {
	c := newCache(opts.Scheme)
	c.mapper, _ = opts.Mapper.(*RefreshableMapper)
	s.Cache = opts
	// Scopes get the entries that are deleted from opts below, because their kinds may be served later.
	s.Cache.ByObject = maps.Clone(opts.ByObject)
	c.settings = s
	opts.ByObject = maps.Clone(opts.ByObject)
	for obj := range s.Cache.ByObject {
		gvk, err := apiutil.GVKForObject(obj, opts.Scheme)
		if err != nil {
			continue // The cache itself returns an error for this entry.
		}
		if _, err := opts.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			delete(opts.ByObject, obj)
			c.leftOut[gvk] = struct{}{}
		}
	}
	var err error
	c.Cache, err = open(cfg, opts)
	return c, err
}

// wrapClient creates the manager's client. It runs after wrapCache.
func wrapClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	var c *Cache
	if opts.Cache != nil {
		c, _ = opts.Cache.Reader.(*Cache)
	}
	if c == nil {
		return nil, errors.New("expected no Reader in the Client.Cache of the options of conditional.NewManager, " +
			"found one: leave it out, because a client reads from the cache of its manager or scope")
	}
	reading := *opts.Cache
	reading.Reader = clientReader{c}
	opts.Cache = &reading

	c.settings.Client = opts
	// A scope wraps the manager's HTTP client, so only an HTTP client that was configured for the client alone is kept.
	if opts.HTTPClient == c.settings.Cache.HTTPClient {
		c.settings.Client.HTTPClient = nil
	}
	c.settings.Client.Mapper = nil // A scope has its own mapper, without results from before the scope.
	var err error
	c.client, err = newSwitchingClient(cfg, opts, c.settings.NewClient, c.clientOf)
	return c.client, err
}

// ScopeSettings returns the settings that a scope inherits. For a nil cache they are controller-runtime's defaults.
func (c *Cache) ScopeSettings() ScopeSettings {
	if c == nil {
		return ScopeSettings{NewClient: client.New, NewMapper: apiutil.NewDynamicRESTMapper}
	}
	s := c.settings
	if s.Client.Cache != nil {
		reading := *s.Client.Cache
		reading.Reader = nil
		s.Client.Cache = &reading
	}
	return s
}
