// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// ObjectCondition is one object of an API server and a question about it.
type ObjectCondition struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	Like       client.Object // its type
	Key        client.ObjectKey
	Holds      func(client.Object) bool
}

// Watch reports the answer on every change until ctx ends. Each failure is Unknown, and is followed by another try
// with a new informer: the kind may have got another scope or plural.
func (o ObjectCondition) Watch(ctx context.Context, report func(Status)) {
	pause := DefaultBackoff()
	pause.Cap = 30 * time.Second
	Child{Name: o.Key.String(), Observe: o.observeObject}.ObserveWithBackoff(ctx, pause, report)
}

func (o ObjectCondition) observeObject(ctx context.Context, report func(Status)) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	lease, err := o.leaseInformer(ctx, fail)
	if err != nil {
		return err
	}
	defer func() { <-lease.Stopped() }()
	defer lease.Release()
	latest := make(chan client.Object, 1) // The handler only leaves the object: the question may panic.
	leave := func(obj any) {
		select {
		case <-latest:
		default:
		}
		found, _ := obj.(client.Object)
		latest <- found
	}
	registration, err := lease.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: leave, UpdateFunc: func(_, obj any) { leave(obj) }, DeleteFunc: func(any) { leave(nil) },
	})
	if err != nil {
		return fmt.Errorf("add a handler: %w", err)
	}
	synced, isSeen := registration.HasSyncedChecker().Done(), false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case obj := <-latest:
			isSeen = true
			report(o.judgeObject(obj))
		case <-synced:
			synced = nil // Once is enough.
			if !isSeen && len(latest) == 0 {
				report(o.judgeObject(nil))
			}
		}
	}
}

// leaseInformer runs an informer of the one object. It fails when the server does.
func (o ObjectCondition) leaseInformer(ctx context.Context, fail func(error)) (*informers.Lease, error) {
	gvk, form, err := informers.IdentifyObject(o.Like, o.Scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", o.Like, err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(o.Config, o.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("build a mapper: %w", err)
	}
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("find the resource: %w", err)
	}
	opts := cache.Options{
		HTTPClient: o.HTTPClient, Scheme: o.Scheme, DefaultFieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Key.Name),
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			// The reflector goes on by itself after these: a server ends a watch every few minutes.
			if !errors.Is(err, io.EOF) && !k8serrors.IsResourceExpired(err) && !k8serrors.IsGone(err) {
				fail(fmt.Errorf("list and watch: %w", err))
			}
		},
	}
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	if namespaced {
		opts.DefaultNamespaces = map[string]cache.Config{o.Key.Namespace: {}}
	}
	kind := informers.InformerKind{GVK: gvk, Form: form, Plural: mapping.Resource.Resource, Namespaced: namespaced}
	lease, err := informers.New(o.Config, opts, nil).Lease(ctx, kind, true)
	if err != nil {
		return nil, fmt.Errorf("start an informer: %w", err)
	}
	return lease, nil
}

// judgeObject answers the question for a copy of the object, which other parts of the cache share; nil is absent.
func (o ObjectCondition) judgeObject(obj client.Object) Status {
	if obj == nil {
		return Status{State: False, Reason: "NotFound", Message: "the object does not exist"}
	}
	own, _ := obj.DeepCopyObject().(client.Object)
	state := stateFromBool(o.Holds(own))
	return Status{State: state, Reason: "Object" + state.String()}
}
