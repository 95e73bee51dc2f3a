// SPDX-License-Identifier: Apache-2.0

// Package managercache contains the cache and the client that conditional.ManagerOptions gives to a manager. Scopes
// read the manager's options from them; groups notify them of kinds that come and go.
package managercache

import (
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ScopeSettings are the options that scopes inherit from their manager.
type ScopeSettings struct {
	// Cache has all of ByObject, including the kinds that the manager's own cache omits.
	Cache cache.Options
	// Client has no reader and no mapper, and an HTTP client only if it differs from the manager's.
	Client    client.Options
	NewClient client.NewClientFunc
	NewMapper func(*rest.Config, *http.Client) (meta.RESTMapper, error)

	metricsPrefix string
}

// MetricsPrefix returns the first word of the metrics' names.
func (c *Cache) MetricsPrefix() string {
	if c == nil || c.settings.metricsPrefix == "" {
		return "conditional"
	}
	return c.settings.metricsPrefix
}

// WrapOptions returns the options with a cache and a client of this package, which wrap the configured ones.
func WrapOptions(o manager.Options, metricsPrefix string) manager.Options {
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

// wrapCache creates the manager's cache without the entries for kinds that are not served now, with which
// controller-runtime's cache would fail.
func wrapCache(cfg *rest.Config, opts cache.Options, open cache.NewCacheFunc, s ScopeSettings) (cache.Cache, error) {
	c := newCache(opts.Scheme)
	c.mapper, _ = opts.Mapper.(*RefreshableMapper)
	s.Cache = opts
	// Scopes get the entries that are deleted from opts below: their kinds may be served later.
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

// wrapClient creates the manager's client, after its cache.
func wrapClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	var c *Cache
	if opts.Cache != nil {
		c, _ = opts.Cache.Reader.(*Cache)
	}
	if c == nil {
		return nil, errors.New("expected no Reader in the Client.Cache of conditional.ManagerOptions, found one: leave it out, a client reads from the cache of its manager or scope")
	}
	reading := *opts.Cache
	reading.Reader = clientReader{c}
	opts.Cache = &reading

	c.settings.Client = opts
	// A scope wraps the HTTP client of the manager; a different one was configured for the client alone.
	if opts.HTTPClient == c.settings.Cache.HTTPClient {
		c.settings.Client.HTTPClient = nil
	}
	c.settings.Client.Mapper = nil // A scope has its own mapper, which has no results older than the scope.
	var err error
	c.client, err = NewRefreshableClient(cfg, opts, c.settings.NewClient)
	return c.client, err
}

// MayHaveOptions reports whether groups miss options of a manager that was made without ManagerOptions: whether its
// cache or its client differs from one with controller-runtime's defaults. These have no accessors for their options,
// so that the fields are compared. It reports true for other types, whose options cannot be determined.
func MayHaveOptions(c cache.Cache, cl client.Client) bool {
	hc, mapper := http.DefaultClient, meta.NewDefaultRESTMapper(nil) // Without them, New would make requests.
	plainCache, err := cache.New(&rest.Config{}, cache.Options{HTTPClient: hc, Mapper: mapper})
	if err != nil {
		return true
	}
	plainClient, err := client.New(&rest.Config{}, client.Options{HTTPClient: hc, Mapper: mapper, Cache: &client.CacheOptions{Reader: plainCache}})
	if err != nil {
		return true
	}
	return !haveEqualFields(c, plainCache, "readerFailOnMissingInformer", "resync", "namespace", "selector", "transform",
		"unsafeDisableDeepCopy", "enableWatchBookmarks", "newInformer", "watchErrorHandler") ||
		!haveEqualFields(cl, plainClient, "uncachedGVKs", "cacheUnstructured")
}

// haveEqualFields compares two values of one type of struct. A field that the type lacks counts as different.
func haveEqualFields(a, b any, names ...string) bool {
	x, y := reflect.Indirect(reflect.ValueOf(a)), reflect.Indirect(reflect.ValueOf(b))
	return x.IsValid() && x.Kind() == reflect.Struct && x.Type() == y.Type() && !slices.ContainsFunc(names, func(name string) bool {
		return !isEqualField(x.FieldByName(name), y.FieldByName(name))
	})
}

// isEqualField compares two values of one type. It needs no right to read an unexported field as an interface.
func isEqualField(x, y reflect.Value) bool {
	switch {
	case !x.IsValid():
		return false
	case x.Kind() == reflect.Func:
		return x.Pointer() == y.Pointer()
	case x.Kind() == reflect.Map:
		return x.Len() == 0 && y.Len() == 0
	}
	return x.Comparable() && x.Equal(y)
}

// ScopeSettings returns the settings that a scope inherits; those of nil are controller-runtime's defaults.
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
