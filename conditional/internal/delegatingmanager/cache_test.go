// SPDX-License-Identifier: Apache-2.0

package delegatingmanager

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func configMaps() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("ConfigMap") }

// emptyCache is a cache that records the use of its informers.
type emptyCache struct {
	cache.Cache
	opts    cache.Options
	removed []informers.ObjectForm
	indexed []string
}

func (*emptyCache) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (*emptyCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (*emptyCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

func (b *emptyCache) RemoveInformer(_ context.Context, obj client.Object) error {
	b.removed = append(b.removed, informers.FormOf(obj))
	return nil
}

// wrappedManager counts the objects that a manager creates with wrapped options.
type wrappedManager struct {
	bare            *emptyCache
	cache           *Cache
	clients, mapper int
}

// build builds the cache and client in the same way as controller-runtime's cluster.New.
func build(t *testing.T, o manager.Options, known ...schema.GroupVersionKind) *wrappedManager {
	t.Helper()
	m := &wrappedManager{bare: &emptyCache{}}
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m.mapper++
		mapper := meta.NewDefaultRESTMapper(nil)
		for _, gvk := range known {
			mapper.Add(gvk, meta.RESTScopeNamespace)
		}
		return mapper, nil
	}
	o.NewCache = func(_ *rest.Config, opts cache.Options) (cache.Cache, error) {
		m.bare.opts = opts
		return m.bare, nil
	}
	o.NewClient = func(*rest.Config, client.Options) (client.Client, error) {
		m.clients++
		return nil, nil
	}
	o = wrapOptions(o, "")
	mapper, err := o.MapperProvider(nil, nil)
	testenv.Must(t, err)
	o.Cache.Scheme, o.Cache.Mapper = clientgoscheme.Scheme, mapper
	c, err := o.NewCache(nil, o.Cache)
	testenv.Must(t, err)
	m.cache = FromCache(c)
	o.Client.Cache = &client.CacheOptions{Reader: c, Unstructured: true}
	o.Client.Mapper = mapper
	outer, err := o.NewClient(nil, o.Client)
	testenv.Must(t, err)
	if _, ok := outer.(*RefreshableClient); !ok {
		t.Fatalf("the client is a %T, which cannot forget", outer)
	}
	m.cache.reader, err = NewRefreshableClient(nil, client.Options{}, func(*rest.Config, client.Options) (client.Client, error) { return nil, nil })
	testenv.Must(t, err)
	return m
}

func (m *wrappedManager) learn(t *testing.T, v detect.Verdict) {
	t.Helper()
	testenv.Must(t, m.cache.NoteVerdicts(t.Context(), []schema.GroupVersionKind{configMaps()}, []detect.Verdict{v}))
}

func TestChangedKindsReplaceClientsAndInformers(t *testing.T) {
	here := detect.Verdict{Presence: detect.Served, Identity: "1", Plural: "configmaps", Namespaced: true}
	again, wide, other := here, here, here
	again.Identity, wide.Namespaced, other.Identity, other.Plural = "2", false, "3", "maps"
	absent, unclear := detect.Verdict{Presence: detect.Absent}, detect.Verdict{}
	type done struct {
		Clients, Mappers int // numbers of created clients and mappers
		Removed          []informers.ObjectForm
	}
	for name, c := range map[string]struct {
		verdicts []detect.Verdict
		want     done
	}{
		"a kind that stays served changes nothing":                            {[]detect.Verdict{unclear, here, here}, done{}},
		"an unclear verdict changes nothing":                                  {[]detect.Verdict{here, unclear, here}, done{}},
		"a kind that becomes absent removes informers and resets the mapper":  {[]detect.Verdict{here, absent, absent}, done{0, 1, []informers.ObjectForm{informers.Typed}}},
		"a kind that is served again after its absence has no further effect": {[]detect.Verdict{here, absent, again}, done{0, 1, []informers.ObjectForm{informers.Typed}}},
		"a replaced kind removes informers and resets the mapper":             {[]detect.Verdict{here, again}, done{0, 1, []informers.ObjectForm{informers.Typed}}},
		"a kind with another scope also resets the client":                    {[]detect.Verdict{here, absent, wide}, done{1, 1, []informers.ObjectForm{informers.Typed}}},
		"a kind with another plural also resets the client":                   {[]detect.Verdict{here, other}, done{1, 1, []informers.ObjectForm{informers.Typed}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := build(t, manager.Options{}, configMaps())
				metadata := &metav1.PartialObjectMetadata{}
				metadata.SetGroupVersionKind(configMaps())
				_ = m.cache.List(t.Context(), &corev1.ConfigMapList{})
				_ = m.cache.Get(t.Context(), client.ObjectKey{}, metadata)
				_, _ = m.cache.GetInformer(t.Context(), metadata) // Another caller has added handlers to the informer.
				_ = m.cache.Get(t.Context(), client.ObjectKey{}, metadata)
				_ = m.cache.Get(t.Context(), client.ObjectKey{}, &corev1.Secret{})
				clients, mappers := m.clients, m.mapper
				for _, v := range c.verdicts {
					m.learn(t, v)
				}
				synctest.Wait()
				if diff := cmp.Diff(c.want, done{m.clients - clients, m.mapper - mappers, m.bare.removed}); diff != "" {
					t.Errorf("want -, got +:\n%s", diff)
				}
			})
		})
	}
}

func TestAnAbsentKindIsRefused(t *testing.T) {
	m := build(t, manager.Options{}, configMaps())
	uses := func() map[string]error {
		_, informer := m.cache.GetInformer(t.Context(), &corev1.ConfigMap{})
		_, byKind := m.cache.GetInformerForKind(t.Context(), configMaps())
		_, ownWrites := clientReader{m.cache}.GetInformer(t.Context(), &corev1.ConfigMap{})
		return map[string]error{
			"get":                      m.cache.Get(t.Context(), client.ObjectKey{}, &corev1.ConfigMap{}),
			"list":                     m.cache.List(t.Context(), &corev1.ConfigMapList{}),
			"informer":                 informer,
			"informer by kind":         byKind,
			"informer for own writes":  ownWrites,
			"another kind, not absent": m.cache.Get(t.Context(), client.ObjectKey{}, &corev1.Secret{}),
		}
	}
	m.learn(t, detect.Verdict{Presence: detect.Absent})
	for what, err := range uses() {
		if meta.IsNoMatchError(err) != (what != "another kind, not absent") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func (b *emptyCache) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	b.indexed = append(b.indexed, field)
	return nil
}

// An index is recorded whether or not the kind is served, and is added to the informer at the informer's first use.
func TestAnIndexWaitsForTheFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := build(t, manager.Options{}, configMaps())
		m.learn(t, detect.Verdict{Presence: detect.Absent})
		for _, field := range []string{"x", "y"} {
			testenv.Must(t, m.cache.IndexField(t.Context(), &corev1.ConfigMap{}, field, nil))
		}
		if err := m.cache.IndexField(t.Context(), &corev1.ConfigMap{}, "x", nil); err == nil {
			t.Error("a second index of one field: got no error")
		}
		if got := len(m.cache.IndexesOf(informers.InformerKind{GVK: configMaps()})); got != 2 {
			t.Errorf("scopes have %d indexes, want 2", got)
		}
		var want []string
		for range 2 { // The informer is removed together with the kind. The next informer of the kind has the same indexes.
			m.learn(t, detect.Verdict{Presence: detect.Served, Identity: "1", Plural: "configmaps", Namespaced: true})
			for range 2 {
				testenv.Must(t, m.cache.List(t.Context(), &corev1.ConfigMapList{}))
			}
			want = append(want, "x", "y")
			if diff := cmp.Diff(want, m.bare.indexed); diff != "" {
				t.Errorf("the informer has (-want +got):\n%s", diff)
			}
			m.learn(t, detect.Verdict{Presence: detect.Absent})
			synctest.Wait()
		}
	})
}

func TestKindsThatAreNotServedAreLeftOut(t *testing.T) {
	there, missing := &corev1.ConfigMap{}, &corev1.Secret{}
	m := build(t, manager.Options{Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{there: {}, missing: {}}}}, configMaps())
	if got := slices.Collect(maps.Keys(m.bare.opts.ByObject)); len(got) != 1 || got[0] != client.Object(there) {
		t.Errorf("the manager's cache has entries for %v, want ConfigMap alone", got)
	}
	if got := len(m.cache.ScopeSettings().Cache.ByObject); got != 2 {
		t.Errorf("scopes have %d entries, want both", got)
	}
	if err := m.cache.Get(t.Context(), client.ObjectKey{}, there); err != nil {
		t.Errorf("a kind that is served: %v", err)
	}
	err := m.cache.Get(t.Context(), client.ObjectKey{}, missing)
	if err == nil || !strings.Contains(err.Error(), "ByObject") {
		t.Errorf("a kind that is left out: got %v, want an error that names ByObject", err)
	}
}

func TestScopesGetTheClientOptionsWithoutAReader(t *testing.T) {
	m := build(t, manager.Options{Client: client.Options{FieldOwner: "me"}})
	got := m.cache.ScopeSettings().Client
	if got.FieldOwner != "me" || !got.Cache.Unstructured || got.Cache.Reader != nil || got.Mapper != nil || got.HTTPClient != nil {
		t.Errorf("got %+v with cache options %+v", got, got.Cache)
	}
	var none *Cache
	if s := none.ScopeSettings(); s.NewClient == nil || s.NewMapper == nil || none.NoteVerdicts(t.Context(), nil, nil) != nil {
		t.Error("a cluster without a manager has no defaults")
	}
}

func TestCustomReaderIsRefused(t *testing.T) {
	o := wrapOptions(manager.Options{}, "")
	if _, err := o.NewClient(nil, client.Options{Cache: &client.CacheOptions{Reader: &emptyCache{}}}); err == nil || !strings.Contains(err.Error(), "Reader") {
		t.Errorf("got %v, want an error that names the Reader", err)
	}
}

// BenchmarkReads measures the overhead of the switch for each read. The cache returns immediately.
func BenchmarkReads(b *testing.B) {
	outer, scoped := newCache(clientgoscheme.Scheme), &emptyClient{}
	plain, err := newSwitchingClient(nil, client.Options{}, func(*rest.Config, client.Options) (client.Client, error) { return scoped, nil }, outer.clientOf)
	if err != nil {
		b.Fatal(err)
	}
	key, obj := client.ObjectKey{Name: "x"}, &corev1.ConfigMap{}
	inScope := WithScope(b.Context(), outer, Scope{Client: scoped})
	deep := nestContext(inScope, 8) // In controller-runtime, the context contains a logger, a request and deadlines.
	for name, read := range map[string]func() error{
		"direct":    func() error { return scoped.Get(b.Context(), key, obj) },
		"outside":   func() error { return plain.Get(b.Context(), key, obj) },
		"scope":     func() error { return plain.Get(inScope, key, obj) },
		"reconcile": func() error { return plain.Get(deep, key, obj) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nestContext adds values to ctx.
func nestContext(ctx context.Context, values int) context.Context {
	if values == 0 {
		return ctx
	}
	return nestContext(context.WithValue(ctx, new(int), values), values-1)
}

type emptyClient struct{ client.Client }

func (*emptyClient) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}
