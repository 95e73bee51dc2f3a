// SPDX-License-Identifier: Apache-2.0

// Package repositories reads what is known of apps from a cache of the API's own, and writes with the caller's rights. Who reads
// from the cache asks first, through package access, whether the caller may see it.
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// byGUID and byApp are indexes of the cache.
	byGUID = "guid"
	byApp  = "app"
	// cacheTimeout bounds the wait until the cache shows what a caller has written.
	cacheTimeout = 2 * time.Second
)

// Store is the cache and who waits for it.
type Store struct {
	cache cache.Cache
	// apps and processes are what the cache holds, for lists: reading thousands through the cache copies each of them.
	apps, processes toolscache.Indexer
	changes         *changeNotifier
	// rootNamespace is the namespace of CFOrgs.
	rootNamespace string
	// stopped is closed when nobody shall wait any more.
	stopped  chan struct{}
	stopOnce sync.Once
}

// NewStore makes a store; nothing is read before Start. root is the namespace of CFOrgs.
func NewStore(cfg *rest.Config, scheme *runtime.Scheme, root string) (*Store, error) {
	inOrg, err := labels.NewRequirement(korifiv1alpha1.OrgGUIDLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select namespaces: %w", err)
	}
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, DefaultUnsafeDisableDeepCopy: new(true), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {Label: labels.NewSelector().Add(*inOrg)}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	return &Store{cache: c, changes: newChangeNotifier(), rootNamespace: root, stopped: make(chan struct{})}, nil
}

// StopWaiting ends all waits, as if their time was up.
func (s *Store) StopWaiting() { s.stopOnce.Do(func() { close(s.stopped) }) }

// Start fills the cache and returns when it is full, or when ctx ends; the cache lives as long as living. ended gets why it
// ended.
func (s *Store) Start(ctx, living context.Context, ended chan<- error) error {
	appOf := map[client.Object]func(client.Object) []string{
		&korifiv1alpha1.CFProcess{}: func(o client.Object) []string { return appRef(o) },
		&korifiv1alpha1.CFBuild{}:   func(o client.Object) []string { return appRef(o) },
		&korifiv1alpha1.CFPackage{}: func(o client.Object) []string { return appRef(o) },
	}
	for kind, app := range appOf {
		if err := s.cache.IndexField(ctx, kind, byApp, app); err != nil {
			return fmt.Errorf("index the cache: %w", err)
		}
	}
	for _, kind := range []client.Object{
		&korifiv1alpha1.CFApp{}, &korifiv1alpha1.CFProcess{}, &korifiv1alpha1.CFBuild{}, &korifiv1alpha1.CFPackage{},
		&korifiv1alpha1.CFOrg{}, &korifiv1alpha1.CFSpace{}, &corev1.Namespace{}, &torporv1alpha1.CFDeployment{},
	} {
		guid := func(o client.Object) []string { return []string{o.GetName()} }
		if err := s.cache.IndexField(ctx, kind, byGUID, guid); err != nil {
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
	go func() { ended <- s.cache.Start(living) }()
	if !s.cache.WaitForCacheSync(ctx) {
		return fmt.Errorf("fill the cache: %w", context.Cause(ctx))
	}
	return nil
}

// keepIndexer remembers where the objects of the long lists are.
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

func appRef(o client.Object) []string {
	switch o := o.(type) {
	case *korifiv1alpha1.CFProcess:
		return []string{o.Spec.AppRef.Name}
	case *korifiv1alpha1.CFBuild:
		return []string{o.Spec.AppRef.Name}
	case *korifiv1alpha1.CFPackage:
		return []string{o.Spec.AppRef.Name}
	default:
		return nil
	}
}

// WaitForCache waits until the cache shows an object as a caller has just written it, so that the caller's next request sees
// it. If that takes too long the next request sees the past, which stats find out by themselves.
func (s *Store) WaitForCache(ctx context.Context, written client.Object) {
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	key := client.ObjectKeyFromObject(written)
	found, ok := written.DeepCopyObject().(client.Object)
	if !ok {
		return
	}
	_ = s.WaitFor(ctx, written.GetName(), func() (bool, error) {
		if err := s.cache.Get(ctx, key, found); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return resourceVersion(found) >= resourceVersion(written), nil
	})
}

// WaitFor calls done whenever the object of this name changes, until it says so or fails, or ctx ends, which is no error.
func (s *Store) WaitFor(ctx context.Context, name string, done func() (bool, error)) error {
	for {
		if over, err := s.checkOnce(ctx, name, done); over {
			return err
		}
	}
}

func (s *Store) checkOnce(ctx context.Context, name string, done func() (bool, error)) (over bool, err error) {
	changed, leave := s.changes.subscribe(name)
	defer leave()
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

// resourceVersion of an object; versions of one kind can be compared as numbers.
func resourceVersion(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

var _ toolscache.ResourceEventHandler = (*changeNotifier)(nil)
