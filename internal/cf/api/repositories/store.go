// SPDX-License-Identifier: Apache-2.0

// Package repositories reads objects from the API's cache, and writes them with the caller's rights. The cache contains
// more objects than a caller may see, so the caller's right to see them is first checked with package authorization.
package repositories

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

const (
	// byGUID and byApp are cache indexes.
	byGUID = "guid"
	byApp  = "app"
	// byHost is the index of routes in all spaces by their host.
	byHost = "host"
	// cacheTimeout limits the wait until the cache contains a caller's write.
	cacheTimeout = 2 * time.Second
)

// Store reads from the cache, waits for changes in it, and writes as the caller.
type Store struct {
	cache cache.Cache
	// apps and processes are the indexers of the cache. They serve lists without the cache's client, which would copy
	// thousands of objects.
	apps, processes toolscache.Indexer
	changes         *changeNotifier
	watches         *watchMonitor
	usage           *usageAvailability
	followers       *logFollowers
	// rootNamespace is the namespace of CFOrgs and CFDomains.
	rootNamespace string
	// stopped is closed to stop all waits.
	stopped  chan struct{}
	stopOnce sync.Once
}

// NewStore returns a Store, which reads nothing until StartCache is called. CheckFreshness returns an error if a kind
// has had no watch for longer than maxAge.
func NewStore(cfg *rest.Config, scheme *runtime.Scheme, rootNamespace string, maxAge time.Duration) (*Store, error) {
	watches := newWatchMonitor(clock.RealClock{}, maxAge)
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(watches.wrap)
	inOrg, err := labels.NewRequirement(korifiv1alpha1.OrgGUIDLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select namespaces: %w", err)
	}
	// Lists return objects that are shared with the cache, so every write starts with a copy.
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, DefaultUnsafeDisableDeepCopy: new(true), DefaultTransform: restoreStatus,
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {Label: labels.NewSelector().Add(*inOrg)}},
	})
	if err != nil {
		return nil, fmt.Errorf("create the cache: %w", err)
	}
	return &Store{cache: c, changes: newChangeNotifier(), watches: watches, usage: &usageAvailability{clock: clock.RealClock{}}, followers: newLogFollowers(clock.RealClock{}), rootNamespace: rootNamespace, stopped: make(chan struct{})}, nil
}

// CheckFreshness returns an error if the cache may be stale.
func (s *Store) CheckFreshness() error { return s.watches.check() }

// StopWaiting ends all waits as if they had timed out.
func (s *Store) StopWaiting() { s.stopOnce.Do(func() { close(s.stopped) }) }

// StartCache starts the cache. It returns when the cache has synced, or with an error when ctx is cancelled. The cache
// runs until cacheCtx is cancelled. When the cache stops, its error, or nil, is sent to ended, which must be buffered.
func (s *Store) StartCache(ctx, cacheCtx context.Context, ended chan<- error) error {
	for _, kind := range []client.Object{&korifiv1alpha1.CFProcess{}, &korifiv1alpha1.CFBuild{}, &korifiv1alpha1.CFPackage{}, &torporv1alpha1.CFDeployment{}, &korifiv1alpha1.CFTask{}} {
		if err := s.cache.IndexField(ctx, kind, byApp, appNameOf); err != nil {
			return fmt.Errorf("index the cache: %w", err)
		}
	}
	if err := s.cache.IndexField(ctx, &korifiv1alpha1.CFRoute{}, byHost, hostOf); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	for _, kind := range []client.Object{
		&korifiv1alpha1.CFApp{}, &korifiv1alpha1.CFProcess{}, &korifiv1alpha1.CFBuild{}, &korifiv1alpha1.CFPackage{},
		&korifiv1alpha1.CFOrg{}, &korifiv1alpha1.CFSpace{}, &corev1.Namespace{}, &torporv1alpha1.CFDeployment{},
		&korifiv1alpha1.CFDomain{}, &korifiv1alpha1.CFRoute{}, &korifiv1alpha1.CFTask{},
		&korifiv1alpha1.CFServiceInstance{}, &korifiv1alpha1.CFServiceBinding{},
	} {
		guidOf := func(o client.Object) []string { return []string{o.GetName()} }
		if err := s.cache.IndexField(ctx, kind, byGUID, guidOf); err != nil {
			return fmt.Errorf("index the cache: %w", err)
		}
		informer, err := s.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(s.changes); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if err := s.keepIndexer(kind, informer); err != nil {
			return err
		}
	}
	go func() { ended <- s.cache.Start(cacheCtx) }()
	if !s.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("fill the cache: %w", context.Cause(ctx))
	}
	return nil
}

// keepIndexer stores the indexers of apps and processes, which have long lists.
func (s *Store) keepIndexer(kind client.Object, informer cache.Informer) error {
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("watch %T: expected an informer with an index, found %T", kind, informer)
	}
	switch kind.(type) {
	case *korifiv1alpha1.CFApp:
		s.apps = shared.GetIndexer()
	case *korifiv1alpha1.CFProcess:
		s.processes = shared.GetIndexer()
	}
	return nil
}

func appNameOf(o client.Object) []string {
	switch o := o.(type) {
	case *korifiv1alpha1.CFProcess:
		return []string{o.Spec.AppRef.Name}
	case *korifiv1alpha1.CFBuild:
		return []string{o.Spec.AppRef.Name}
	case *korifiv1alpha1.CFPackage:
		return []string{o.Spec.AppRef.Name}
	case *torporv1alpha1.CFDeployment:
		return []string{o.Spec.AppRef.Name}
	case *korifiv1alpha1.CFTask:
		return []string{o.Spec.AppRef.Name}
	default:
		return nil
	}
}

// WaitForCache waits until the cache contains an object that a caller has just written, so the caller's next request
// reads the change. After cacheTimeout, the next request may read an older state; requests for stats detect this.
func (s *Store) WaitForCache(ctx context.Context, written client.Object) {
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	cached, ok := written.DeepCopyObject().(client.Object)
	if !ok {
		return
	}
	// A timeout is not an error, because the response is correct without the wait.
	_ = s.WatchUntil(ctx, written.GetName(), func() (bool, error) {
		if err := s.cache.Get(ctx, client.ObjectKeyFromObject(written), cached); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return resourceVersion(cached) >= resourceVersion(written), nil
	})
}

// WatchUntil calls done immediately and after each change to an object with this name, until done returns true or an
// error. It also stops when ctx is cancelled or StopWaiting is called, which is not an error.
func (s *Store) WatchUntil(ctx context.Context, name string, done func() (bool, error)) error {
	for {
		if over, err := s.checkOnce(ctx, name, done); over {
			return err
		}
	}
}

func (s *Store) checkOnce(ctx context.Context, name string, done func() (bool, error)) (over bool, err error) {
	// The subscription precedes the check, so a change between the two is not missed.
	changed, unsubscribe := s.changes.subscribe(name)
	defer unsubscribe()
	if over, err = done(); over || err != nil {
		return true, err
	}
	select {
	case <-ctx.Done():
		return true, nil
	case <-s.stopped:
		return true, nil
	case <-changed:
		return false, nil
	}
}

// resourceVersion returns an object's resource version as a number. Within a kind, these numbers are ordered.
func resourceVersion(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// restoreStatus is the cache's transform function. It restores the status that is stored in annotations, and removes
// the managed fields, which are never read.
func restoreStatus(o any) (any, error) {
	if obj, ok := o.(client.Object); ok {
		statusannotation.RestoreStatus(obj)
	}
	return cache.TransformStripManagedFields()(o)
}
