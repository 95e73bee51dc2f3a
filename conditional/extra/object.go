// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/conditional"
)

// Object is true while the object with the given name exists and f returns true for it, for example because of an
// annotation or an entry of a ConfigMap. The type of obj defines the kind to watch, as in a client's Get. f receives
// its own copy of the object. Object needs the right to list and watch this object only.
func Object(obj client.Object, key client.ObjectKey, f func(client.Object) bool) conditional.Condition {
	o := observedObject{like: obj, key: key, holds: f}
	return condition{
		name: strings.Join([]string{conditional.ServedObject(obj).String(), key.Namespace, key.Name}, ":"),
		mistake: errorUnless(obj != nil && key.Name != "" && f != nil,
			"condition Object needs an object of the type to watch, the name of the object and a function: pass all three"),
		validate: func(src conditional.Sources) error {
			if _, err := apiutil.GVKForObject(obj, src.Scheme); err != nil {
				return fmt.Errorf("find the kind of %T in the scheme of its manager or cluster (add it with AddToScheme): %w", obj, err)
			}
			return nil
		},
		observe: func(ctx context.Context, src conditional.Sources, report func(conditional.Status)) error {
			first := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 30 * time.Second}
			pause := first
			// After each failure there is an attempt with a new cache, because the kind may have another scope or
			// plural now.
			for ctx.Err() == nil {
				began := time.Now()
				if err := o.observe(ctx, src, report); err != nil && ctx.Err() == nil {
					report(conditional.Status{State: conditional.Unknown, Reason: "ObserveFailed", Message: key.String() + ": " + err.Error()})
				}
				if time.Since(began) > first.Cap {
					pause = first
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause.Step()):
				}
			}
			return nil
		},
	}
}

type observedObject struct {
	like  client.Object
	key   client.ObjectKey
	holds func(client.Object) bool
}

// observe runs a cache for the object until ctx is cancelled, or a list or a watch fails.
func (o observedObject) observe(ctx context.Context, src conditional.Sources, report func(conditional.Status)) error {
	ctx, fail := context.WithCancelCause(ctx)
	selector := fields.Set{metav1.ObjectNameField: o.key.Name}
	if o.key.Namespace != "" {
		selector["metadata.namespace"] = o.key.Namespace // controller-runtime then lists and watches only this namespace.
	}
	objects, err := cache.New(src.Config, cache.Options{
		HTTPClient: src.HTTPClient, Scheme: src.Scheme, DefaultFieldSelector: selector.AsSelector(),
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			// The reflector itself recovers from these errors. For example, a server closes a watch every few minutes.
			if !errors.Is(err, io.EOF) && !k8serrors.IsResourceExpired(err) && !k8serrors.IsGone(err) {
				fail(fmt.Errorf("list and watch: %w", err))
			}
		},
	})
	if err != nil {
		fail(nil)
		return fmt.Errorf("create a cache: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer fail(nil)
	running.Go(func() { _ = objects.Start(ctx) }) // Start fails only if it is called twice.
	informer, err := objects.GetInformer(ctx, o.like, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("start an informer: %w", err)
	}
	latest := make(chan client.Object, 1) // The handler only stores the object, because f may panic.
	leave := func(obj any) {
		select {
		case <-latest:
		default:
		}
		found, _ := obj.(client.Object)
		latest <- found
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
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
			report(o.judge(obj))
		case <-synced:
			synced = nil // The channel is closed and must not be received from again.
			if !isSeen && len(latest) == 0 {
				report(o.judge(nil))
			}
		}
	}
}

// judge calls f with a copy of the object, because the cache shares the object with other readers. If obj is nil, the
// object is absent.
func (o observedObject) judge(obj client.Object) conditional.Status {
	if obj == nil {
		return conditional.Status{State: conditional.False, Reason: "NotFound", Message: "the object does not exist"}
	}
	own, _ := obj.DeepCopyObject().(client.Object)
	state := stateFromBool(o.holds(own))
	return conditional.Status{State: state, Reason: "Object" + state.String()}
}
